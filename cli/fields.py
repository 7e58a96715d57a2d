"""Views of blocks, documents and rows in JSON."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.audit import BlockView, DocumentView, RowView, Run


def block_fields(view: "BlockView") -> dict[str, Any]:
    """A block in JSON."""
    return {
        "split": view.split,
        "index": view.index,
        "num_blocks": view.num_blocks,
        "path": view.path,
        "shard_row": view.shard_row,
        "block_len": view.block_len,
        "length": view.length,
        "num_trained": view.num_trained,
        "documents": [document_fields(document) for document in view.documents],
        "padding": view.padding and _run_fields(view.padding),
    }


def row_fields(view: "RowView") -> dict[str, Any]:
    """A row in JSON."""
    from packer.recipe import to_json  # noqa: PLC0415 - not for --help

    return {
        "source": view.source,
        "row": view.row,
        "documents": [document_fields(document) for document in view.documents],
        "rejected": [to_json(line) for line in view.rejected],
    }


def document_fields(view: "DocumentView") -> dict[str, Any]:
    """A document in JSON."""
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    return asdict(view) | {
        "runs": [_run_fields(run) for run in view.runs],
        "behind": view.behind and _run_fields(view.behind),
    }


def _run_fields(run: "Run") -> dict[str, Any]:
    """Ids and labels only where they were asked for."""
    fields: dict[str, Any] = {
        "kind": run.kind,
        "start": run.start,
        "num_tokens": run.num_tokens,
        "message": run.message,
        "weight": run.weight,
        "text": run.text,
    }
    if run.input_ids:
        fields["input_ids"] = list(run.input_ids)
        fields["labels"] = list(run.input_ids) if run.kind == "trained" else [-100] * run.num_tokens
    return fields
