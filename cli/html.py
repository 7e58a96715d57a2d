"""`--html FILE`: the report of a command as a page."""

from collections.abc import Callable
from pathlib import Path

import click

from packer.display import size
from packer_cli.output import stdout

html_option = click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the report as a page to FILE, and print no text.",
)


def check_html(html: Path | None, *caches: Path) -> None:
    """Refuse the place of a page before there is one, as :func:`packer.report.check_place` does."""
    if html is not None:
        from packer.report import check_place  # noqa: PLC0415 - not for --help

        check_place(html, *caches)


def write_html(page: bytes, html: Path, *, quiet: bool) -> Callable[[], None]:
    """Write a page; returns what is to be printed instead of the text of a report."""
    from packer.report import write_page  # noqa: PLC0415 - not for --help

    write_page(page, html)
    return lambda: None if quiet else stdout().line(f"wrote {html}, {size(len(page))}")
