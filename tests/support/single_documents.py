"""One document of a cache as plain values, read row by row."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from packer.batches import SIDES


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    doc_id: int
    input_ids: Any
    labels: Any
    span_message: Any
    span_start: Any
    span_end: Any
    length: int
    num_trained: int
    row: int
    sample_id: str | None
    side: str | None
    media: tuple[Any, ...]
    path: str
    shard_row: int


def read_document(documents, index):
    """The document of this index; its arrays are views of the file, and its digest is checked."""
    found = documents.locate(np.array([index]))
    (rows,), (row,) = found.opened, found.rows
    spans = slice(int(rows.span_offsets[row]), int(rows.span_offsets[row + 1]))
    path, shard_row = documents.place(index)
    numbers = {name: int(getattr(rows, name)[row]) for name in ("doc_id", "length", "num_trained", "row")}
    return Document(
        **numbers,
        **{name: getattr(rows, name)[row] for name in ("input_ids", "labels")},
        **{name: getattr(rows, name)[spans] for name in ("span_message", "span_start", "span_end")},
        sample_id=rows.sample_id_of(row),
        side=None if rows.side is None else SIDES[int(rows.side[row])],
        media=() if rows.media is None else rows.media[row],
        path=path,
        shard_row=shard_row,
    )
