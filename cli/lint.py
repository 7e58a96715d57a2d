"""`packer lint`: report what a chat template does, before anything is built with it."""

import click

from packer_cli.options import MOST_ROWS, Command, RecipeOptions, recipe_options
from packer_cli.page import FindingsPage, failed, findings_fields
from packer_cli.reply import Reply


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
    page = FindingsPage(whole=reply.verbose)
    show = lambda: page.report(report, summary=not reply.quiet, folded="as the recipe asks")  # noqa: E731
    reply.verdict(findings_fields(report), show, message)
