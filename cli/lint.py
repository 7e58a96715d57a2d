"""`packer lint`: report what a chat template does, before anything is built with it."""

from typing import TYPE_CHECKING

import click

from packer_cli.options import MOST_ROWS, Command, RecipeOptions, recipe_options
from packer_cli.page import FindingsPage, failed
from packer_cli.reply import Reply, fields_of

if TYPE_CHECKING:
    from packer.audit.lint.lint_report import LintReport


@click.command("lint", cls=Command)
@recipe_options
@click.option(
    "-n", "--rows", metavar="N", type=click.IntRange(min=0), default=200, help="Rows of each input to examine [200]."
)
def command(*, options: RecipeOptions, rows: int, reply: Reply) -> None:
    """Report what a chat template does under a tokenizer.

    With SOURCEs, also what becomes of their first rows. Conversations are rendered and encoded as in `packer build`;
    nothing is written. Exit code 1 if no row, or no plain chat, could be built.
    """
    from packer.pipeline.workers.fork_server import begin_loading  # noqa: PLC0415 - not for --help

    recipe = options.resolve()
    with begin_loading(recipe):
        from packer.audit.lint.lint_report import lint  # noqa: PLC0415 - meanwhile

        report = lint(recipe, num_rows=min(rows, MOST_ROWS))
    message = failed(report, report.template or report.tokenizer)
    counts = {f"{level}s": report.count(level) for level in ("error", "warning", "note")}
    fields = {"ok": report.ok, **fields_of(report), "counts": counts}
    reply.verdict(fields, lambda: _print(report, whole=reply.verbose, summary=not reply.quiet), message)


def _print(report: "LintReport", *, whole: bool, summary: bool) -> None:
    """Print header, findings and their number, and what is fine in one line; an error message has the number itself."""
    page = FindingsPage(whole=whole)
    if summary:
        page.out.table(report.facts)
    notes = [each for each in report.findings if each.level == "note" and not whole]
    page.findings([each for each in report.findings if each not in notes], follow=summary)
    if summary:
        page.out.line()
    if notes:
        page.words(f"as the recipe asks: {', '.join(each.code for each in notes)} (-v shows them)")
    if summary and report.ok:
        page.out.line(report.counted)
