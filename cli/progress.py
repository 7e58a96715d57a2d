"""Progress on stderr: a bar on a terminal, elsewhere a line every few seconds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from packer.display import one_line
from packer.progress import Lines, Progress, Silent
from packer_cli.output import bars_console, stderr

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Bars(Lines):
    """A bar beside each line, gone when the work is done; notes are printed above it."""

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
        self._bars.console.out(one_line(f"note: {message}"), highlight=False)

    def _show(self, line: str) -> None:
        self._bars.update(self._bars.task_ids[-1], completed=self._done, description=line)


@contextmanager
def listener(*, quiet: bool) -> Iterator[Progress]:
    """The progress display for stderr."""
    if quiet:
        yield Silent()
    elif not stderr().has_cursor:
        yield Lines()
    else:
        from rich.progress import BarColumn, TextColumn  # noqa: PLC0415 - rich is for bars alone
        from rich.progress import Progress as RichProgress  # noqa: PLC0415 - as above

        columns = BarColumn(bar_width=16), TextColumn("{task.description}", markup=False)
        with RichProgress(*columns, console=bars_console(), transient=True, redirect_stderr=False) as bars:
            yield Bars(bars)
