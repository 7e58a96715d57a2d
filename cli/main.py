"""`packer`: find the command, run it, and turn errors into messages and exit codes."""

import atexit
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from packer.display import scheme_with_credentials
from packer.errors import UsageError, did_you_mean, near
from packer.host.watchdog import limit_process
from packer_cli import reply
from packer_cli.options import HELP_OPTIONS, version_option
from packer_cli.output import guarded_streams, stdout

COMMANDS = {
    "init": "packer init first",
    "preview": "packer preview chats.jsonl --tokenizer MODEL_FOLDER",
    "build": "packer build chats.jsonl --tokenizer MODEL_FOLDER --block-len 8192 -o cache",
    "inspect": "packer inspect cache --row chats.jsonl:0",
    "verify": "packer verify cache",
    "check": "packer check cache --sources .",
    "stats": "packer stats cache",
    "report": "packer report cache -o report.html",
    "diff": "packer diff old new",
    "export": "packer export cache --to datasets -o exported",
    "explain": "packer explain prompt_diverges",
}
"""Commands with an example for the help, in the order a newcomer needs them; each is `packer_cli.<name>.command`."""


class Packer(click.Group):
    """Imports commands lazily, and reports every error itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"packer_cli.{cmd_name}").command
        command.epilog = f"Example: {COMMANDS[cmd_name]}"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest similar names."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            names = ["preview"] if args[0] == "lint" else near(args[0], COMMANDS)  # which says what lint said
            meant = (f"packer {name}" for name in names)
            hint = did_you_mean(meant, f"the commands: {', '.join(COMMANDS)}")
            raise UsageError(f"no command is called '{args[0]}'", hint=hint)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Errors are not left to click, which has its own exit codes and output."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise reply.Signalled(signal.SIGINT) from None
        except BrokenPipeError:
            raise reply.Signalled(signal.SIGPIPE) from None

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **_: Any) -> NoReturn:  # type: ignore[override]
        """Run and exit."""
        arguments = list(sys.argv[1:] if args is None else args)
        with guarded_streams():
            code = self._run(arguments, prog_name or "packer")
        sys.exit(code)

    def _run(self, arguments: list[str], prog_name: str) -> int:
        # An error may come before the options are parsed; it is reported as JSON or text all the same.
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        as_json, verbose = "--json" in options, "-v" in options or "--verbose" in options
        try:
            _refuse_credentials(arguments)
            code = super().main(arguments, prog_name, standalone_mode=False)
            sys.stdout.flush()
        except BaseException as error:  # noqa: BLE001 - the outermost frame: every error becomes a message and a code
            command = next((argument for argument in options if argument in COMMANDS), None)
            return reply.answer(error, command=command, as_json=as_json, verbose=verbose)
        return code if isinstance(code, int) else 0


@click.command(
    cls=Packer,
    context_settings=HELP_OPTIONS,
    invoke_without_command=True,
)
@version_option
@click.pass_context
def cli(context: click.Context) -> None:
    """Chat files in; a verified, packed, fingerprinted token cache out.

    Start with `packer init DIR`: it writes a folder with everything to build a first cache. `packer explain CODE`
    explains the code of a rejected row or of `packer preview`.
    """
    if context.invoked_subcommand is None:
        for line in context.get_help().splitlines():
            stdout().line(line)


def _refuse_credentials(arguments: Sequence[str]) -> None:
    """Refuse arguments that hold credentials, before a part of one is taken for something else and repeated."""
    for argument in filter(scheme_with_credentials, arguments):
        from packer.names import refuse_credentials  # noqa: PLC0415 - not for --help

        refuse_credentials(argument)


def main() -> None:
    """Entry point of the `packer` command."""
    # A command imports and reads a vocabulary before anything is garbage; looking for it takes a tenth of its start.
    gc.set_threshold(300_000, 20, 100)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads for matrices, of which there are none here
    signal.signal(signal.SIGTERM, _terminate)
    limit_process()
    sys.stdout, sys.stderr = sys.stdout or _null_stream(), sys.stderr or _null_stream()
    try:
        cli.main(prog_name="packer")
    except SystemExit as end:
        _leave(end.code if isinstance(end.code, int) else 1)


def _leave(code: int) -> NoReturn:
    """End the process without freeing every object: for a large vocabulary that takes a fifth of a second."""
    atexit._run_exitfuncs()  # noqa: SLF001 - `os._exit` leaves them out
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a broken pipe, or a closed stream
            stream.flush()
    os._exit(code)


def _null_stream() -> TextIO:
    """Return a replacement for a stream that the caller has closed."""
    return Path(os.devnull).open("w", encoding="utf-8")


def _terminate(number: int, _: object) -> NoReturn:
    raise reply.Signalled(number)
