"""Arrays: ranges and runs, labels and positions with one definition for all that read them, numbers of Arrow.

Labels are unshifted: ``labels[t]`` is ``input_ids[t]`` or -100, and the consumer shifts, as Hugging Face models do.
The first token of every document, piece and block is -100, so that no shifting or flattening can turn another
document's token into a target.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from packer.batches import CHOSEN, REJECTED, SIDES, Bool, DocumentBatch, Int8, Int32, Int64
from packer.media.carried import Media

MASKED = -100
_ROWS_HELD = 2**14

Number = TypeVar("Number", bound=np.generic)


def offsets_of(lengths: npt.NDArray[np.integer] | Bool | Sequence[int]) -> Int64:
    """Return the offsets of consecutive pieces of the given lengths.  # int64[N + 1]

    Example: lengths [3, 0, 2] give [0, 3, 3, 5]; piece i is ``values[offsets[i]:offsets[i + 1]]``.
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def concatenated_ranges(starts: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]) -> Int64:
    """Return the ranges ``[starts[i], starts[i] + lengths[i])``, concatenated.

    Example: starts [10, 0] and lengths [3, 2] give [10, 11, 12, 0, 1]. Each output is the start of its range plus its
    distance from the beginning of the range in the output: [10, 10, 10, 0, 0] + [0, 1, 2, 3, 4] - [0, 0, 0, 3, 3].
    """
    lengths = np.asarray(lengths, np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    shift = np.asarray(starts, np.int64) - (ends - lengths)
    ranges: Int64 = np.arange(total, dtype=np.int64) + np.repeat(shift, lengths)
    return ranges


def taken_ranges(values: npt.NDArray[Number], starts: Int64, lengths: Int64) -> npt.NDArray[Number]:
    """Return ``values[concatenated_ranges(starts, lengths)]``, quickly: a view if each range begins where one ends."""
    if not len(starts):
        return values[:0]
    ends = starts + lengths
    gaps = np.flatnonzero(starts[1:] != ends[:-1])
    firsts, lasts = [int(starts[0]), *starts[gaps + 1].tolist()], [*ends[gaps].tolist(), int(ends[-1])]
    if len(firsts) == 1:
        return values[firsts[0] : lasts[0]]
    return np.concatenate([values[a:b] for a, b in zip(firsts, lasts, strict=True)])


def begins_run(*columns: npt.NDArray[Any]) -> Bool:
    """Whether each entry differs from the previous one in any of the columns: [3, 3, 5] → [1, 0, 1]."""
    begins = np.zeros(len(columns[0]), np.bool_)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return begins


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return the values in order, each once. `np.unique` would import numpy.ma, which takes 0.03 s."""
    ordered = np.sort(values)
    return ordered[begins_run(ordered)]


def trained_tokens(documents: DocumentBatch) -> Bool:
    """Return which tokens of the flat batch are trained.  # bool[K]"""
    document_start = np.repeat(documents.offsets[:-1], np.diff(documents.run_offsets))
    steps = np.zeros(len(documents.input_ids) + 1, np.int8)
    np.add.at(steps, document_start + documents.run_start, 1)
    np.subtract.at(steps, document_start + documents.run_end, 1)
    trained: Bool = np.cumsum(steps[:-1], dtype=np.int8) > 0
    return trained


def document_labels(documents: DocumentBatch) -> Int32:
    """Return the labels of the flat batch: the id if a run covers it, -100 otherwise.  # int32[K]"""
    return np.where(trained_tokens(documents), documents.input_ids, np.int32(MASKED))


def positions(seq_lengths: npt.NDArray[np.integer]) -> Int32:
    """Return the position of each token in its sequence: [3, 2] gives [0, 1, 2, 0, 1].  # int32[Σ seq_lengths]"""
    offsets = offsets_of(seq_lengths)
    total = int(offsets[-1])
    # Half the width is several times the speed; a position fits it, the place among all tokens may not.
    width = np.int32 if total < 2**31 else np.int64
    place = np.arange(total, dtype=width)
    np.subtract(place, np.repeat(offsets[:-1].astype(width), seq_lengths), out=place)
    return place.astype(np.int32, copy=False)


def select_documents(documents: DocumentBatch, numbers: Int64) -> DocumentBatch:
    """Return some documents of a batch, in the given order; `numbers`: int64[N]."""
    lengths, num_runs = np.diff(documents.offsets)[numbers], np.diff(documents.run_offsets)[numbers]
    runs = concatenated_ranges(documents.run_offsets[numbers], num_runs)
    starts = documents.offsets[numbers]
    return DocumentBatch(
        input_ids=taken_ranges(documents.input_ids, starts, lengths),
        offsets=offsets_of(lengths),
        sample=documents.sample[numbers],
        sample_id=tuple(map(documents.sample_id.__getitem__, numbers.tolist())),
        run_offsets=offsets_of(num_runs),
        run_start=documents.run_start[runs],
        run_end=documents.run_end[runs],
        run_message=documents.run_message[runs],
        side=None if documents.side is None else documents.side[numbers],
        media=None if documents.media is None else documents.media.take(numbers),
        token_values={name: taken_ranges(each, starts, lengths) for name, each in documents.token_values.items()},
        values={name: values[numbers] for name, values in documents.values.items()},
    )


def concatenate_documents(batches: Sequence[DocumentBatch]) -> DocumentBatch:
    """Concatenate batches."""
    if len(batches) == 1:
        return batches[0]
    names = [field.name for field in fields(DocumentBatch) if field.name != "media"]
    return DocumentBatch(
        **{name: _concatenated(name, [getattr(batch, name) for batch in batches]) for name in names},
        media=Media.join([(batch.media, batch.num_documents) for batch in batches]),
    )


def _concatenated(name: str, columns: Sequence[Any]) -> Any:
    """Concatenate a column that either all batches have or none; of offsets, [0, 2, 3] and [0, 4] are [0, 2, 3, 7]."""
    present = [column for column in columns if column is not None]
    if not present or isinstance(present[0], tuple):
        return tuple(chain.from_iterable(present)) if present else None
    if isinstance(present[0], Mapping):
        return {key: np.concatenate([column[key] for column in present]) for key in present[0]}
    if name.endswith("offsets"):
        return offsets_of(np.concatenate([np.diff(column) for column in present]))
    return np.concatenate(present)


def values_of(*columns: npt.NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of columns as tuples of Python values, converting some thousand rows at a time."""
    for first in range(0, len(columns[0]), _ROWS_HELD):
        yield from zip(*(column[first : first + _ROWS_HELD].tolist() for column in columns), strict=True)


def last_of_rows(row: Int32, side: Int8 | None) -> Bool:
    """Whether each document is the last one of its row, or, for pairs, of its side of the row.  # bool[D]"""
    return begins_run(row[::-1], *([] if side is None else [side[::-1]]))[::-1]


def misplaced_sides(row: npt.NDArray[np.integer], side: Int8) -> Bool:
    """Whether each document breaks the order of sides.  # bool[D]

    In pairs, every chosen answer must be followed by the rejected one of its row. Otherwise all documents must be rated
    answers.
    """
    if len(side) and int(side[0]) not in (CHOSEN, REJECTED):
        return (side <= REJECTED) | (side >= len(SIDES))
    is_second = np.arange(len(side)) % 2 == 1
    misplaced: Bool = side != np.where(is_second, REJECTED, CHOSEN)
    misplaced[1::2] |= row[1::2] != row[0 : len(row) - len(row) % 2 : 2]
    if len(side) % 2:
        misplaced[-1] = True
    return misplaced


def first_trained(labels: Int32) -> int:
    """Return the index of the first trained token, which is the length of the prompt."""
    return int((labels != MASKED).argmax())


def numbers_of(column: Any) -> npt.NDArray[Any]:
    """Return the values of a numeric Arrow array or chunked array without nulls.

    Arrow's own `to_numpy` and `to_pandas_dtype` import pandas, which takes a third of a second or is not installed.
    """
    dtype = dtype_of(column.type)
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in getattr(column, "chunks", [column])
        if len(chunk)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])


def dtype_of(kind: Any) -> np.dtype[Any]:
    """Return numpy's type for a type of numbers."""
    name = str(kind)
    return np.dtype({"halffloat": "f2", "float": "f4", "double": "f8"}.get(name, name))


def array_of(values: npt.NDArray[Any]) -> Any:
    """Wrap numbers in an Arrow array that shares their memory. `pa.array` would import pandas, too."""
    import pyarrow as pa  # noqa: PLC0415 - whoever asks for one has it

    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


def taken(values: Any, indices: npt.NDArray[Any]) -> Any:
    """Return entries of an Arrow array. Its own `take` would import wrappers of all functions, which takes 0.05 s."""
    from pyarrow._compute import TakeOptions, call_function  # noqa: PLC0415 - whoever has an array has it

    return call_function("take", [values, array_of(indices)], TakeOptions())
