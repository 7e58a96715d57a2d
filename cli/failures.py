"""What a person, or a program that asked for JSON, is told when something goes wrong."""

import errno
import json
import os
import signal
import sys
import traceback
from typing import Any

import click

from packer.errors import PackerError
from packer.limits import out_of
from packer_cli.output import terminal_width
from packer_cli.text import wrap_words

REPORT = "this is a bug in packer; please report it with the command and what it printed"


class Signalled(BaseException):
    """The program is to end: Ctrl-C, SIGTERM, or whoever read the output has left.

    It unwinds like KeyboardInterrupt, so that workers end and temporary files go.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.exit_code = 128 + number


def answer(error: BaseException, *, command: str | None, as_json: bool, verbose: bool) -> int:
    """Print what there is to say about an error of a command; returns the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, BrokenPipeError):
        error = Signalled(signal.SIGPIPE)
    if isinstance(error, Signalled) and error.number == signal.SIGPIPE:
        # The reader has seen enough. Nothing more may be written, not even by the interpreter on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error.exit_code
    code, message, hint, exit_code = _describe(error, command=command, verbose=verbose)
    if verbose and not isinstance(error, click.ClickException | Signalled):
        traceback.print_exception(error, file=sys.stderr)
    if as_json:
        print_json(error=error_object(code, message, hint))
    else:
        print_error(message, hint)
    return exit_code


def error_object(code: str, message: str, hint: str | None) -> dict[str, Any]:
    """An error in JSON."""
    return {"code": code, "message": message, "hint": hint}


def print_json(**fields: Any) -> None:
    """The one JSON object of a command, on stdout."""
    click.echo(json.dumps({"schema": 1, **fields}, ensure_ascii=False, indent=2))


def print_error(message: str, hint: str | None) -> None:
    """`error: …`, and after a blank line `hint: …`, on stderr: wrapped for a terminal, a line each for a pipe."""
    _say("error: ", message, "red")
    if hint:
        click.echo(err=True)
        _say("hint: ", hint, "cyan")


def _say(label: str, text: str, colour: str) -> None:
    width = terminal_width(sys.stderr)
    first, *more = printable(text).split("\n")
    lines = [*wrap_words(first, width, begun=len(label)), *(part for line in more for part in wrap_words(line, width))]
    click.secho(label, fg=colour, bold=True, nl=False, err=True, color=_colour())
    click.echo("\n".join(lines), err=True)


def _describe(error: BaseException, *, command: str | None, verbose: bool) -> tuple[str, str, str | None, int]:
    """Code, message, hint and exit code."""
    error = out_of(error) or error
    if isinstance(error, PackerError):
        return error.code, error.message, error.hint, error.exit_code
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "packer"
        return "usage", _lower(error.format_message()), f"{path} --help lists what it takes", 2
    if isinstance(error, click.ClickException):
        return "usage", error.format_message(), None, 2
    if isinstance(error, Signalled):
        name = "interrupted" if error.number == signal.SIGINT else "terminated"
        hint = "what a build has finished is kept: the same command goes on from there" if command == "build" else None
        return name, name, hint, error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        return "storage", f"{error.filename}: {error.strerror}", None, 5
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
        return "storage", f"the output cannot be written: {error.strerror}", None, 5
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return "bug", f"internal error: {told}", REPORT if verbose else f"{REPORT}; -v shows where it happened", 70


def _lower(message: str) -> str:
    """Click begins with a capital and ends with a full stop; messages here do neither."""
    return message[:1].lower() + message[1:].removesuffix(".")


def _colour() -> bool | None:
    return False if "NO_COLOR" in os.environ else None


def printable(text: str) -> str:
    """Control characters of file names and data must not reach the terminal."""
    return "".join(
        character if character.isprintable() or character == "\n" else ascii(character)[1:-1] for character in text
    )
