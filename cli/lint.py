"""`packer lint`: what a chat template does, before anything is built with it."""

from typing import TYPE_CHECKING

import click

from packer.display import number, plural
from packer_cli.failures import end_check
from packer_cli.findings_page import FindingsPage, counted, failed
from packer_cli.options import HELP_OPTIONS, RecipeOptions, output_options, pager_option, recipe_options
from packer_cli.output import fields_of

if TYPE_CHECKING:
    from packer.audit.lint.checks import LintReport
    from packer.audit.lint.first_rows import FirstRows


@click.command("lint", context_settings=HELP_OPTIONS)
@recipe_options
@click.option(
    "-n", "--rows", metavar="N", type=click.IntRange(min=0), default=200, help="Rows of each input to look at [200]."
)
@pager_option
@output_options
def command(*, options: RecipeOptions, rows: int, verbose: bool, quiet: bool, as_json: bool) -> None:
    """Report what a chat template does under a tokenizer, and with SOURCEs what becomes of their first rows.

    Everything is seen on conversations rendered and encoded as `packer build` does it; nothing is written. Exit code 1
    where nothing, or no plain chat, could be built.
    """
    from packer.audit import lint  # noqa: PLC0415 - not for --help

    report = lint(options.resolve(), num_rows=rows)
    message = failed(report, report.template or report.tokenizer)
    counts = {f"{level}s": report.count(level) for level in ("error", "warning", "note")}
    fields = {"command": "lint", "ok": report.ok, **fields_of(report), "counts": counts}
    end_check(fields, message, as_json=as_json, show=lambda: _print(report, whole=verbose, summary=not quiet))


def _print(report: "LintReport", *, whole: bool, summary: bool) -> None:
    """Header, findings, and their number; where there are errors, the error that ends the command has that."""
    page = FindingsPage(whole=whole)
    if summary:
        page.facts(_facts(report))
    page.findings(report.findings, follow=summary)
    if summary:
        page.out.line()
    if summary and report.ok:
        page.out.line(counted(report))


def _facts(report: "LintReport") -> list[tuple[str, str]]:
    facts = [
        ("tokenizer", str(report.tokenizer)),
        ("template", "the tokenizer's own" if report.template is None else str(report.template)),
    ]
    facts += [("rows", _rows(entry)) for entry in report.rows]
    return [*facts, ("verdict", report.verdict)]


def _rows(entry: "FirstRows") -> str:
    which = f"all {number(entry.num_rows)}" if entry.is_whole else f"the first {number(entry.num_rows)}"
    answers = plural(entry.num_turns, "answer")
    return f"{which} of {entry.path} ({entry.schema}): {number(entry.num_kept)} kept, {answers}"
