"""`packer lint`: what a chat template does, before anything is built with it."""

from typing import TYPE_CHECKING, Any

import click

from packer.display import number, plural
from packer_cli.failures import end_check
from packer_cli.findings_page import FindingsPage
from packer_cli.options import HELP_OPTIONS, RecipeOptions, output_options, recipe_options
from packer_cli.output import fields_of

if TYPE_CHECKING:
    from packer.audit import LintReport, LookedAt


@click.command("lint", context_settings=HELP_OPTIONS)
@recipe_options
@click.option(
    "-n", "--rows", metavar="N", type=click.IntRange(min=0), default=200, help="Rows of each input to look at [200]."
)
@output_options
def command(*, options: RecipeOptions, rows: int, verbose: bool, quiet: bool, as_json: bool) -> None:
    """Report what a chat template does under a tokenizer, and with SOURCEs what becomes of their first rows.

    Everything is seen on conversations rendered and encoded as `packer build` does it; nothing is written. Exit code 1
    where nothing, or no plain chat, could be built.
    """
    from packer.audit import lint  # noqa: PLC0415 - not for --help

    report = lint(options.resolve(), num_rows=rows)
    message = None if report.ok else f"{report.template or report.tokenizer}: {_counts(report, named=True)}"
    end_check(_fields(report), message, as_json=as_json, show=lambda: _print(report, whole=verbose, summary=not quiet))


def _counts(report: "LintReport", *, named: bool) -> str:
    """`1 error (no_terminator), 2 warnings, 3 notes`."""
    errors = [finding.code for finding in report.findings if finding.level == "error"]
    counts = [plural(report.count(level), level) for level in ("error", "warning", "note")]
    if named:
        counts[0] += f" ({', '.join(errors)})"
    return ", ".join(counts)


def _print(report: "LintReport", *, whole: bool, summary: bool) -> None:
    """Header, findings, and their number; where there are errors, the error that ends the command has that."""
    page = FindingsPage(whole=whole)
    if summary:
        page.facts(_facts(report))
    for place, finding in enumerate(report.findings):
        if place or summary:
            page.out.line()
        page.finding(finding.level, finding.code, finding.message, finding.examples, finding.hint)
    if summary:
        page.out.line()
    if summary and report.ok:
        page.out.line(_counts(report, named=False))


def _facts(report: "LintReport") -> list[tuple[str, str]]:
    facts = [
        ("tokenizer", str(report.tokenizer)),
        ("template", "the tokenizer's own" if report.template is None else str(report.template)),
    ]
    facts += [("rows", _rows(entry)) for entry in report.rows]
    return [*facts, ("verdict", report.verdict)]


def _rows(entry: "LookedAt") -> str:
    which = f"all {number(entry.num_rows)}" if entry.is_whole else f"the first {number(entry.num_rows)}"
    answers = plural(entry.num_turns, "answer")
    return f"{which} of {entry.path} ({entry.schema}): {number(entry.num_kept)} kept, {answers}"


def _fields(report: "LintReport") -> dict[str, Any]:
    counts = {f"{level}s": report.count(level) for level in ("error", "warning", "note")}
    return {"command": "lint", "ok": report.ok, **fields_of(report), "counts": counts}
