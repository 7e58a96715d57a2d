"""What the columns of an MDS sample say of tokens: arrays, bytes and JSON of ids and labels, or turns.

Turns are llm-foundry's: each a context and its target, ``{"input_ids": […], "labels": […]}``. Its older data sets have
one turn a sample, in columns of these names and of different lengths.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from packer.audit.foreign.dataset import TOKEN_COLUMNS
from packer.batches import Int64
from packer.errors import InputError
from packer.layout import MASKED

_IDS = ("input_ids", "tokens")
"""Names of a column of ids: Hugging Face's, and that of llm-foundry's pretraining."""

_DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 32: "uint32", 33: "int32", 64: "uint64", 65: "int64",
}  # fmt: skip
"""Byte in front of an array whose type its column does not name → type."""

_MOST_IDS = 2**24
"""No vocabulary is larger: of bytes without a type, the first type under which all ids are below it is theirs."""


class _Turn(msgspec.Struct, frozen=True):
    input_ids: list[int]
    labels: list[int]


class SampleReader:
    """Reads the samples of one folder."""

    def __init__(self, folder: Path, encodings: dict[str, str]) -> None:
        """Find the columns of tokens.

        Raises:
            InputError: there are none, or they are in a form that is not read.

        """
        self._folder, self._encodings = folder, encodings
        self._ids = next((name for name in _IDS if name in encodings), None)
        self._bytes_dtype = np.dtype(np.int64)
        self._is_turn = False
        if encodings and "turns" not in encodings and self._ids is None:
            raise InputError(
                f"{folder} has neither a column turns nor input_ids nor tokens (found: {', '.join(encodings)})",
                hint="an audit looks at rows that are tokenized already",
            )
        self._others = [name for name in TOKEN_COLUMNS if name in encodings and "turns" not in encodings]

    @property
    def columns(self) -> tuple[str, ...]:
        if "turns" in self._encodings or self._is_turn:
            return ("turns",)
        return ("input_ids", *self._others)

    def look(self, samples: Sequence[dict[str, memoryview]]) -> None:
        """Learn from the first samples what no header says."""
        if self._ids is None or "turns" in self._encodings:
            return
        if self._encodings[self._ids] == "bytes":
            self._bytes_dtype = _dtype_of([sample[self._ids] for sample in samples])
        rows = [self.row(sample, number) for number, sample in enumerate(samples)]
        self._is_turn = self._others == ["labels"] and any(len(row["input_ids"]) != len(row["labels"]) for row in rows)

    def row(self, sample: dict[str, memoryview], number: int) -> dict[str, Int64]:
        """input_ids, and the columns of :data:`TOKEN_COLUMNS` that are there; labels of turns.

        Raises:
            InputError: the bytes are not what the encoding says.

        """
        try:
            if "turns" in self._encodings:
                return joined(msgspec.json.decode(sample["turns"], type=list[_Turn]))
            assert self._ids is not None
            row = {"input_ids": self._values(sample, self._ids)}
            row |= {name: self._values(sample, name) for name in self._others}
        except (ValueError, OverflowError, KeyError, IndexError, TypeError, msgspec.MsgspecError) as error:
            raise InputError(f"{self._folder}: sample {number:,} cannot be read: {error}") from error
        if self._is_turn:
            return joined([_Turn(input_ids=row["input_ids"].tolist(), labels=row["labels"].tolist())])
        return row

    def _values(self, sample: dict[str, memoryview], name: str) -> Int64:
        encoding, data = self._encodings[name], sample[name]
        if encoding == "json":
            return np.array(msgspec.json.decode(data, type=list[int]), np.int64)
        if encoding == "bytes":
            return np.frombuffer(data, self._bytes_dtype).astype(np.int64)
        kind, _, form = encoding.partition(":")
        if kind == "ndarray":
            return _array(data, *(form.split(":") if form else ()))
        raise ValueError(f"column {name} is encoded as {encoding}; json, bytes and ndarray are read")


def joined(turns: Sequence[_Turn]) -> dict[str, Int64]:
    """Contexts and targets as one row of ids and labels."""
    ids = [token for turn in turns for token in (*turn.input_ids, *turn.labels)]
    labels = [label for turn in turns for label in (*[MASKED] * len(turn.input_ids), *turn.labels)]
    return {"input_ids": np.array(ids, np.int64), "labels": np.array(labels, np.int64)}


def _array(data: memoryview, dtype: str | None = None, shape: str | None = None) -> Int64:
    """An array as MDSWriter has it: type and shape stand in front where the column does not name them."""
    at = 0
    if dtype is None:
        dtype, at = _DTYPES[data[0]], 1
    if dtype not in _DTYPES.values():
        raise ValueError(f"an array of {dtype}; whole numbers are expected")
    if shape is None:
        axes, width = data[at] >> 2, 1 << (data[at] & 3)
        if axes != 1:
            raise ValueError(f"an array of {axes} axes; one is expected")
        at += 1 + axes * width
    elif "," in shape:
        raise ValueError(f"arrays of shape {shape}; one axis is expected")
    return np.frombuffer(data[at:], dtype).astype(np.int64)


def _dtype_of(values: Sequence[memoryview]) -> np.dtype[Any]:
    """The type of ids that are written as bare bytes."""
    for dtype in (np.int64, np.int32, np.uint16):
        whole = all(len(data) % np.dtype(dtype).itemsize == 0 for data in values)
        if whole and all((np.frombuffer(data, dtype).astype(np.int64) < _MOST_IDS).all() for data in values):
            return np.dtype(dtype)
    return np.dtype(np.int64)
