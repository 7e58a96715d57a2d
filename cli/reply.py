"""How a command answers: with text or one JSON object."""

import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.display import Lines, Progress, Silent, masked
from packer.errors import PackerError, did_you_mean, near
from packer.host.files import is_panic, out_of
from packer_cli.output import bars_console, stderr, stdout, wrap_words

REPORT = "this is a bug in packer; please report it with the command and what it printed"


class Signalled(BaseException):
    """Raised to end the program: on Ctrl-C, on SIGTERM, or when nothing reads its output any more.

    It unwinds like KeyboardInterrupt, so that workers end and temporary files are removed.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.exit_code = 128 + number


def answer(error: BaseException, *, command: str | None, as_json: bool, verbose: bool) -> int:
    """Report an error of a command, and return the exit code. Where stdout cannot be written, JSON becomes text."""
    try:
        return _report(error, command=command, as_json=as_json, verbose=verbose)
    except BrokenPipeError as broken:
        return _report(broken, command=command, as_json=as_json, verbose=verbose)
    except OSError:
        _, message, hint, exit_code = _describe(error, command=command, verbose=verbose)
        with suppress(OSError):  # stderr may be full, too
            print_error(message, hint)
        return exit_code


def _report(error: BaseException, *, command: str | None, as_json: bool, verbose: bool) -> int:
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
    if verbose and (code == "bug" or is_panic(error)):
        _print_traceback(error)
    message = masked(message)  # as click repeats arguments
    if as_json:
        _print_json(error=error_object(code, message, hint))
    else:
        print_error(message, hint)
    return exit_code


_NEXT_WAY = re.compile(r"(?<=;) (?=--|if |what |where )")
"""Where a hint goes on with another way, or with what holds for all of them."""


def print_error(message: str, hint: str | None) -> None:
    """Print `error: …` and `hint: …` on stderr, wrapped on a terminal, one line each in a pipe."""
    stderr().words(message, label=("error: ", "red bold"))
    if hint:
        stderr().line()
        ways = _NEXT_WAY.split(hint) if stderr().edge is not None else [hint]
        for number, way in enumerate(ways):
            stderr().words(way, label=("  " if number else "hint: ", "cyan bold"), hanging=4 * (len(ways) > 1))


def error_object(code: str, message: str, hint: str | None) -> dict[str, Any]:
    return {"code": code, "message": message, "hint": hint}


def _print_traceback(error: BaseException) -> None:
    """Print where an error happened, causes first. Messages may come from anywhere, so each gets a single line."""
    for part in traceback.format_exception(error):
        for line in part.splitlines() if part.startswith("  ") else [part.strip()]:
            stderr().line(line)


def _describe(error: BaseException, *, command: str | None, verbose: bool) -> tuple[str, str, str | None, int]:
    """Return code, message, hint and exit code."""
    error = out_of(error) or error
    if isinstance(error, PackerError):
        return error.code, error.message, error.hint, error.exit_code
    if isinstance(error, click.UsageError):
        return "usage", *_of_usage(error), 2
    if isinstance(error, click.ClickException):
        return "usage", error.format_message(), None, 2
    if isinstance(error, Signalled):
        name = "interrupted" if error.number == signal.SIGINT else "terminated"
        hint = (
            "what a build has finished is kept: the same command continues from there" if command == "build" else None
        )
        return name, name, hint, error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        return "storage", f"{error.filename}: {error.strerror}", None, 5
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
        return "storage", f"the output cannot be written: {error.strerror}", None, 5
    if is_panic(error):
        said = str(error).splitlines()[0] if str(error) else "without a word"
        hint = "is what it read whole? -v shows where it happened"
        return "input", f"a library gave up on what it read: {said}", hint, 3
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return "bug", f"internal error: {what}", REPORT if verbose else f"{REPORT}; -v shows where it happened", 70


def _of_usage(error: click.UsageError) -> tuple[str, str]:
    """Return message and hint: what was probably meant, or where to find what may be."""
    path = error.ctx.command_path if error.ctx is not None else "packer"
    told, meant = error.format_message(), list[str]()
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        told = error.message
        meant = near(error.option_name, [name for each in error.ctx.command.params for name in each.opts])
    elif isinstance(error, click.MissingParameter):
        told = " ".join(told.split())  # it lists choices one a line
    elif isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, click.Choice):
        meant = near(error.message.split("'")[1], error.param.type.choices)
    return _lower(told), did_you_mean(meant, f"{path} --help lists what it takes")


def _lower(message: str) -> str:
    """Remove click's leading capital and final full stop, as messages here have neither."""
    return message[:1].lower() + message[1:].removesuffix(".")


def _print_json(**fields: Any) -> None:
    """Print the single JSON object of a command on stdout."""
    stdout().json({"schema": 1, **fields})


def fields_of(result: Any) -> dict[str, Any]:
    """Return the fields of a result as JSON; a cache in a bucket is named by its URL."""
    from packer.names import shown  # noqa: PLC0415 - not for --help

    return {name: shown(value) if isinstance(value, Path) else value for name, value in asdict(result).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`-v`, `-q` and `--json`, which every command accepts, and the printing that depends on them."""

    command: str
    verbose: bool
    quiet: bool
    as_json: bool

    def data(self, fields: dict[str, Any], show: Callable[[], None]) -> None:
        """Print the requested data."""
        _print_json(command=self.command, **fields) if self.as_json else show()

    def summary(self, fields: dict[str, Any], show: Callable[[], None]) -> None:
        """Print what was done, unless `-q` is given."""
        self.data(fields, (lambda: None) if self.quiet else show)

    def verdict(
        self, fields: dict[str, Any], show: Callable[[], None], message: str | None, hint: str | None = None
    ) -> None:
        """Print the result of a check. A message means that it failed: it is printed as an error, and the exit code is
        1.
        """
        self.data(fields | {"error": None if message is None else error_object("check_failed", message, hint)}, show)
        if message is not None:
            if not self.as_json:
                print_error(message, hint)
            raise click.exceptions.Exit(1)


if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Bars(Lines):
    """Draws one progress bar per stage, removed when the work is done; notes are printed above it."""

    _every = 0.1

    def __init__(self, bars: "RichProgress") -> None:
        self._bars = bars
        super().__init__()

    def stage(self, name: str, total: int, unit: str) -> None:
        super().stage(name, total, unit)
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        # To load a tokenizer or to ask the Hub takes a while, before the first stage.
        self._bars.add_task(name or "starting", total=total or None)

    def note(self, message: str) -> None:
        lines = wrap_words(f"note: {message}", self._bars.console.width)
        self._bars.console.out("\n".join(lines), highlight=False)

    def _show(self, line: str) -> None:
        self._bars.update(self._bars.task_ids[-1], completed=self._done, description=line)


@contextmanager
def listener(*, quiet: bool) -> Iterator[Progress]:
    """Return the progress display for stderr."""
    if quiet:
        yield Silent()
    elif not stderr().has_cursor:
        yield Lines()
    else:
        from rich.progress import BarColumn, TextColumn  # noqa: PLC0415 - rich is only for bars
        from rich.progress import Progress as RichProgress  # noqa: PLC0415 - as above

        columns = BarColumn(bar_width=16), TextColumn("{task.description}", markup=False)
        with RichProgress(*columns, console=bars_console(), transient=True, redirect_stderr=False) as bars:
            yield Bars(bars)
