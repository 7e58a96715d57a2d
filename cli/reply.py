"""How a command answers: with text, with one JSON object, or with a page."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from packer.display import size
from packer_cli.failures import error_object, print_error
from packer_cli.output import print_json, stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`-v`, `-q` and `--json`, which every command takes, and what it prints by them."""

    command: str
    verbose: bool
    quiet: bool
    as_json: bool

    def data(self, fields: dict[str, Any], show: Callable[[], None]) -> None:
        """Print what was asked for."""
        print_json(command=self.command, **fields) if self.as_json else show()

    def summary(self, fields: dict[str, Any], show: Callable[[], None]) -> None:
        """Print what was done, which `-q` leaves out."""
        self.data(fields, (lambda: None) if self.quiet else show)

    def verdict(
        self, fields: dict[str, Any], show: Callable[[], None], message: str | None, hint: str | None = None
    ) -> None:
        """Print what a check found; where there is a message, it failed: an error, and exit code 1."""
        self.data(fields | {"error": None if message is None else error_object("check_failed", message, hint)}, show)
        if message is not None:
            if not self.as_json:
                print_error(message, hint)
            raise click.exceptions.Exit(1)

    def page(self, page: bytes, html: Path) -> Callable[[], None]:
        """Write a page; returns what is printed in place of the text of a report."""
        from packer.report import write_page  # noqa: PLC0415 - not for --help

        write_page(page, html)
        return lambda: None if self.quiet else stdout().line(f"wrote {html}, {size(len(page))}")
