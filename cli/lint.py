"""`packer lint`: what a chat template does, before anything is built with it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer_cli.failures import end_check
from packer_cli.findings_page import FindingsPage, failed
from packer_cli.html import check_html, html_option, write_html
from packer_cli.options import HELP_OPTIONS, RecipeOptions, output_options, pager_option, recipe_options
from packer_cli.output import fields_of

if TYPE_CHECKING:
    from packer.audit.lint.checks import LintReport


@click.command("lint", context_settings=HELP_OPTIONS)
@recipe_options
@click.option(
    "-n", "--rows", metavar="N", type=click.IntRange(min=0), default=200, help="Rows of each input to look at [200]."
)
@html_option
@pager_option
@output_options
def command(*, options: RecipeOptions, rows: int, html: Path | None, verbose: bool, quiet: bool, as_json: bool) -> None:
    """Report what a chat template does under a tokenizer, and with SOURCEs what becomes of their first rows.

    Everything is seen on conversations rendered and encoded as `packer build` does it; nothing is written. Exit code 1
    where nothing, or no plain chat, could be built.
    """
    from packer.audit import lint  # noqa: PLC0415 - not for --help

    check_html(html)
    report = lint(options.resolve(), num_rows=rows)
    message = failed(report, report.template or report.tokenizer)
    counts = {f"{level}s": report.count(level) for level in ("error", "warning", "note")}
    fields = {"command": "lint", "ok": report.ok, **fields_of(report), "counts": counts}
    if html is None:
        end_check(fields, message, as_json=as_json, show=lambda: _print(report, whole=verbose, summary=not quiet))
        return
    from packer.report import lint_page  # noqa: PLC0415 - as above

    end_check(fields, message, as_json=as_json, show=write_html(lint_page(report), html, quiet=quiet))


def _print(report: "LintReport", *, whole: bool, summary: bool) -> None:
    """Header, findings, and their number; where there are errors, the error that ends the command has that."""
    page = FindingsPage(whole=whole)
    if summary:
        page.facts(report.facts)
    page.findings(report.findings, follow=summary)
    if summary:
        page.out.line()
    if summary and report.ok:
        page.out.line(report.counted)
