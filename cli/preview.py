"""`packer preview`: show what a build would make of the first rows."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from packer.display import number, percent
from packer_cli.options import MOST_ROWS, Command, RecipeOptions, file_and_row, recipe_options, whole_number
from packer_cli.output import stdout
from packer_cli.page import ViewPage, marked, print_findings, view_fields
from packer_cli.reply import Reply, listener

if TYPE_CHECKING:
    from packer.audit.preview import Preview, PreviewedRow, PreviewTotals
    from packer.recipe.recipe import Recipe


@click.command("preview", cls=Command)
@recipe_options
@click.option("-n", "--rows", metavar="N", type=whole_number(1), default=3, help="Rows of each input [3].")
@click.option("--row", metavar="FILE:N", help="Only row N of an input, from 0.")
@click.option("--rejected", is_flag=True, help="Only rows that would be left out, of the first 1,000 of each input.")
@click.option("--ids", is_flag=True, help="Also show the ids of every run.")
def command(
    *,
    options: RecipeOptions,
    rows: int,
    row: str | None,
    rejected: bool,
    ids: bool,
    reply: Reply,
) -> None:
    """Show what a build would make of the first rows.

    Nothing is written. Trained text is marked by a bar on its left, with the number of its message, from 0. For a row
    that would be left out, the reason is shown. What the template does that rows do not show is reported at the end.

    Without SOURCE, show what the template does to a plain chat; exit code 1 if it would be left out.
    """
    if row is not None and rejected:
        raise click.UsageError("--row and --rejected cannot go together")
    from packer.pipeline.workers.fork_server import begin_loading  # noqa: PLC0415 - not for --help

    recipe = options.resolve()
    if row is not None and not recipe.sources:
        raise click.UsageError("--row is of a SOURCE: name the file, too")
    place = None if row is None else file_and_row(row)
    with begin_loading(recipe), listener(quiet=reply.quiet) as progress:
        from packer.audit.preview import preview  # noqa: PLC0415 - meanwhile

        found = preview(recipe, rows=min(rows, MOST_ROWS), row=place, rejected_only=rejected, progress=progress)

    def show() -> None:
        page = ViewPage(with_ids=ids)
        if reply.verbose:
            for entry in found.inputs:
                page.note([entry.name, f"format {entry.format}", f"schema {entry.schema}", f"split {entry.split}"])
            page.blank()
        for count, shown in enumerate(found.rows):
            if count:
                page.blank()
            _show(page, shown)
        if not reply.quiet and found.inputs:
            if found.rows:
                page.blank()
            _print_totals(found.totals, recipe)
        print_findings(found.findings, whole=reply.verbose, follow=True)

    refused = None if found.inputs else next(iter(found.totals.rejected), None)
    reply.verdict(_fields(found, with_ids=ids), show, refused and f"a plain chat would be left out: {refused}")


def _show(page: ViewPage, row: "PreviewedRow") -> None:
    if row.excerpts:
        page.reasons(row.view, was="would be")
        for excerpt in row.excerpts:
            page.note([f"{excerpt.label}{f' ({excerpt.note})' if excerpt.note else ''}:"])
            page.text(marked(excerpt), mark="!" if excerpt.mark else "", style="red" if excerpt.mark else "")
    else:
        page.row(row.view, was="would be")
    if row.hint is not None:
        page.note([f"hint: {row.hint}"])


def _print_totals(totals: "PreviewTotals", recipe: "Recipe") -> None:
    from packer.rejections import CODES  # noqa: PLC0415 - not for --help

    out = stdout()
    facts = [("rows", number(totals.rows), f"{number(totals.kept)} kept, {number(totals.rows - totals.kept)} rejected")]
    if totals.tokens:
        tokens = f"{number(totals.tokens)} tokens, {percent(totals.trained / totals.tokens)} trained"
        facts.append(("documents", number(totals.documents), tokens))
    out.table(facts, "<", ">", "<")
    ordered = sorted(totals.rejected.items(), key=lambda entry: -entry[1])
    listed = [(number(count), code, CODES.get(code, "")) for code, count in ordered]
    out.table(listed, ">", "<", "<", heading="rows rejected")
    if recipe.chooses_rows:
        out.line()
        out.line("the recipe's rules about rows are not applied here")


def _fields(found: "Preview", *, with_ids: bool) -> dict[str, Any]:
    return {
        "inputs": [
            {"path": each.name, "split": each.split, "format": each.format, "schema": each.schema}
            for each in found.inputs
        ],
        "rows": [
            view_fields(row.view, with_ids=with_ids)
            | {"split": row.split, "excerpts": [asdict(excerpt) for excerpt in row.excerpts], "hint": row.hint}
            for row in found.rows
        ],
        "totals": asdict(found.totals),
        "findings": [asdict(each) for each in found.findings],
    }
