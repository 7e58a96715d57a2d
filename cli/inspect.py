"""`packer inspect`: show blocks, documents, rows and batches as text, with trained runs marked."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer_cli.batch import batch_options, show_batch
from packer_cli.options import Command, cache_argument, file_and_row
from packer_cli.page import ViewPage, view_fields
from packer_cli.reply import Reply

if TYPE_CHECKING:
    from packer.store.cache import Cache


@click.command("inspect", cls=Command)
@cache_argument
@click.option("--block", metavar="N", type=click.IntRange(min=0), help="A block of the split, from 0 [0].")
@click.option("--doc", metavar="ID", type=int, help="A document by its doc_id.")
@click.option("--row", metavar="FILE:N", help="Row N of an input file, from 0: what became of it.")
@batch_options
@click.option("--split", metavar="NAME", help="Split of the blocks and documents [the first].")
@click.option("--ids", is_flag=True, help="Also show the ids of every run.")
def command(
    *,
    cache: Path,
    block: int | None,
    doc: int | None,
    row: str | None,
    split: str | None,
    ids: bool,
    batch: dict[str, Any],
    reply: Reply,
) -> None:
    """Show a block, a document, a row or a batch as text.

    Trained text is marked by a bar on its left, with the number of its message, from 0, where a run begins. All other
    text is context and is masked. Every run of tokens begins on a line of its own. With --step, show the
    micro-batch that training gets there, and whether it is what a model expects; if not, the exit code is 1.
    """
    if sum(option is not None for option in (block, doc, row, batch or None)) > 1:
        raise click.UsageError("--block, --doc, --row and --step cannot go together")
    from packer.audit.view import view_block, view_document, view_row  # noqa: PLC0415 - not for --help
    from packer.store.cache import Cache  # noqa: PLC0415 - as above

    with Cache.open(cache) as opened:
        page = ViewPage(with_ids=ids)
        if batch:
            show_batch(opened, batch, split, with_ids=ids, reply=reply)
        elif doc is not None:
            document = view_document(opened, doc, split=split)
            reply.data({"document": view_fields(document, with_ids=ids)}, lambda: page.document(document))
        elif row is not None:
            found = view_row(opened, *file_and_row(row))
            reply.data(view_fields(found, with_ids=ids), lambda: page.row(found))
        else:
            view = view_block(opened, split or first_split(opened), block or 0)
            reply.data({"block": view_fields(view, with_ids=ids)}, lambda: page.block(view))


def first_split(cache: "Cache") -> str:
    """Return the first split that has blocks."""
    from packer.errors import UsageError  # noqa: PLC0415 - not for --help

    splits = cache.splits("blocks")
    if not splits:
        hint = "--row FILE:N and --doc ID show documents"
        raise UsageError(f"{cache.folder} has no blocks: pack.mode is 'none'", hint=hint)
    return splits[0]
