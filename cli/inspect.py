"""`packer inspect`: show blocks, documents and rows as text, with trained runs marked, and the batch of a step."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.errors import UsageError
from packer_cli.options import Command, cache_argument, file_and_row, options, whole_number
from packer_cli.output import GAP, stdout
from packer_cli.page import ViewPage, view_fields
from packer_cli.reply import Reply

if TYPE_CHECKING:
    from packer.audit.view import DocumentView
    from packer.load.batch_view import BatchView
    from packer.store.cache import Cache


_SIZE = whole_number(1, 2**31 - 1)
_PLACE = whole_number(0, 2**31 - 1)
_OPTIONS: dict[str, tuple[Any, str]] = {
    "step": (_PLACE, "The batch of step N of an epoch, from 0."),
    "epoch": (_PLACE, "Epoch of --step [0]."),
    "rank": (_PLACE, "Rank, of --world-size [0]."),
    "world_size": (_SIZE, "Number of ranks [1]."),
    "micro_batch": (_PLACE, "Micro-batch of the rank [0]."),
    "micro_batch_size": (_SIZE, "Blocks, documents or tokens, as --batching counts [1]."),
    "global_batch_size": (_SIZE, "Size of a step [one micro-batch per rank]."),
    "batching": (
        click.Choice(("packed", "padded", "padding_free", "token_budget")),
        "Blocks, or how documents become batches [packed].",
    ),
    "balance": (int, "12 times the hidden size of the model, to balance ranks [24576]; 0: rows in order."),
    "order": (click.Choice(("random", "sequential", "length_bucketed")), "Order of blocks or documents [random]."),
    "seed": (int, "Seed of the order [0]."),
}
"""Arguments of the loader, with their type and help; those not given take their default."""

_BATCH_OPTIONS = [
    click.option(
        f"--{name.replace('_', '-')}",
        type=kind,
        metavar=None if isinstance(kind, click.Choice) else "N",
        help=told,
    )
    for name, (kind, told) in _OPTIONS.items()
]

_FEW = 6
"""Number of values shown per column."""


@click.command("inspect", cls=Command)
@cache_argument
@click.option("--block", metavar="N", type=whole_number(0), help="A block of the split, from 0 [0].")
@click.option("--doc", metavar="ID", type=int, help="A document by its doc_id.")
@click.option("--row", metavar="FILE:N", help="Row N of an input file, from 0: what became of it.")
@options(*_BATCH_OPTIONS)
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
    reply: Reply,
    **asked: Any,
) -> None:
    """Show a block, a document, a row or a batch as text.

    Trained text is marked by a bar on its left, with the number of its message, from 0, where a run begins. All other
    text is masked. With --step, show the micro-batch that training gets there, and whether it is what a model expects;
    if not, the exit code is 1.
    """
    batch = {name: value for name, value in asked.items() if value is not None}
    if batch and "step" not in batch:
        raise click.UsageError(f"--{next(iter(batch)).replace('_', '-')} goes with --step")
    if sum(option is not None for option in (block, doc, row, batch or None)) > 1:
        raise click.UsageError("--block, --doc, --row and --step cannot go together")
    from packer.audit.view import view_block, view_document, view_row  # noqa: PLC0415 - not for --help
    from packer.store.cache import Cache  # noqa: PLC0415 - as above

    with Cache.open(cache) as opened:
        page = ViewPage(with_ids=ids)
        if batch:
            _show_batch(opened, batch, split, with_ids=ids, reply=reply)
        elif doc is not None:
            document = view_document(opened, doc, split=split)
            reply.data({"document": view_fields(document, with_ids=ids)}, lambda: page.document(document))
        elif row is not None:
            found = view_row(opened, *file_and_row(row))
            reply.data(view_fields(found, with_ids=ids), lambda: page.row(found))
        else:
            splits = opened.splits("blocks")
            if not splits:
                hint = "--row FILE:N and --doc ID show documents"
                raise UsageError(f"{opened.folder} has no blocks: pack.mode is 'none'", hint=hint)
            view = view_block(opened, split or splits[0], block or 0)
            reply.data({"block": view_fields(view, with_ids=ids)}, lambda: page.block(view))


def _show_batch(cache: "Cache", asked: dict[str, Any], split: str | None, *, with_ids: bool, reply: Reply) -> None:
    """Print a batch and whether it meets the contract; exit code 1 if it does not."""
    from packer.audit.view import view_pieces  # noqa: PLC0415 - not for --help

    try:
        from packer.load.batch_view import view_batch  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError(
            "--step shows what the training loader returns, which needs torch",
            hint='pip install "token-packer[torch]"; --block, --doc and --row need no torch',
        ) from None
    arguments = asked | ({} if split is None else {"split": split})
    view = view_batch(cache, **arguments)
    pieces = [
        (part.doc_id, part.piece_start, part.input_ids, part.labels) for part in view.parts if part.doc_id is not None
    ]
    documents = list(view_pieces(cache, view.state.split, pieces))
    failed = ", ".join(view.check.failed)
    reply.verdict(
        {"ok": view.check.ok, "batch": _fields(view, documents, with_ids=with_ids)},
        lambda: _print(view, documents, asked, with_ids=with_ids),
        f"{cache.folder}: this step breaks the batch contract: {failed}" if failed else None,
    )


def _print(view: "BatchView", documents: "list[DocumentView]", asked: dict[str, Any], *, with_ids: bool) -> None:
    page, out = ViewPage(with_ids=with_ids), stdout()
    step, state = view.step, view.state
    page.heading(
        [
            f"step {asked['step']:,}, epoch {step.epoch} ({state.split})",
            f"rank {asked.get('rank', 0)} of {asked.get('world_size', 1)}",
            f"micro-batch {asked.get('micro_batch', 0)} of {len(step)}",
        ]
    )
    page.note(
        [state.batching, f"order {state.order}", f"seed {state.seed}", f"global batch size {view.global_batch_size:,}"]
    )
    items = f"{step.num_items_in_batch:,} trained"
    page.note([f"the step, all ranks: {step.num_tokens:,} tokens", items, f"{step.num_slots:,} slots"])
    out.line()
    out.line("contract of the step, all ranks and micro-batches")
    out.checks([(line.level, line.code.replace("_", " "), line.message) for line in view.check.lines])
    out.table([_column_row(name, view) for name in view.micro_batch], heading="columns of the micro-batch")
    for place, document in enumerate(documents, 1):
        page.blank()
        page.document(document, prefix=f"{place}/{len(documents)} ")


def _column_row(name: str, view: "BatchView") -> tuple[str, str, str, str]:
    """Return a column's name, dtype, shape and first values; boundaries are listed once, in full."""
    value = view.micro_batch[name]
    if not hasattr(value, "dtype"):
        return name, _dtype(value), "", str(value)
    if name == "cu_seq_lens_k" and value.equal(view.micro_batch["cu_seq_lens_q"]):
        return name, _dtype(value), str(list(value.shape)), "as cu_seq_lens_q"
    values = value.flatten()[: None if value.ndim == 1 else _FEW].tolist()
    more = f", {GAP}" if len(values) < value.numel() else ""
    return name, _dtype(value), str(list(value.shape)), ", ".join(map(str, values)) + more


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.") if hasattr(value, "dtype") else type(value).__name__


def _fields(view: "BatchView", documents: "list[DocumentView]", *, with_ids: bool) -> dict[str, Any]:
    """Return the view as JSON; per-token columns only if ids are requested."""
    columns: dict[str, Any] = {}
    for name, value in view.micro_batch.items():
        is_tensor = hasattr(value, "dtype")
        columns[name] = {"dtype": _dtype(value), "shape": list(value.shape) if is_tensor else None}
        if not is_tensor or value.ndim == 1 or with_ids:
            columns[name]["values"] = value.tolist() if is_tensor else value
    left = iter(documents)
    parts = [
        {name: getattr(part, name) for name in ("row", "start", "sequence", "positions", "doc_id")}
        | {
            "length": len(part.labels),
            "document": None if part.doc_id is None else view_fields(next(left), with_ids=with_ids),
        }
        for part in view.parts
    ]
    return {
        "split": view.state.split,
        "epoch": view.step.epoch,
        "micro_batches": len(view.step),
        **{name: getattr(view.step, name) for name in ("num_items_in_batch", "num_tokens", "num_slots")},
        "contract": [asdict(line) for line in view.check.lines],
        "columns": columns,
        "parts": parts,
    }
