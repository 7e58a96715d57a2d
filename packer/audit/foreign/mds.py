"""Folders of MosaicML streaming (MDS): ``index.json`` and shards, as they are or compressed.

The layout of a shard stands in :mod:`packer.export.mds`. A sample is the uint32 size of each column that has no fixed
one, then the columns: arrays, bytes or JSON of ids and labels, or turns. Turns are llm-foundry's: each a context and a
target, ``{"input_ids": […], "labels": […]}``. Its older data sets have one turn a sample, in columns of these names and
of different lengths. (The library's own reader comes with torch and the clients of four clouds, for these lines.)
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from packer.audit.foreign.foreign_rows import TOKEN_COLUMNS, ForeignRows, flat_rows
from packer.batches import Int64
from packer.errors import InputError
from packer.layout import MASKED, offsets_of
from packer.limits import out_of
from packer.names import FilePath, in_words
from packer.source.file_bytes import codec_of, decompressed, read_chunks

_INDEX = "index.json"
_MOST_BYTES = 2**32
"""No shard is larger: its offsets are uint32."""

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


Bytes: TypeAlias = memoryview


class _File(msgspec.Struct, frozen=True):
    basename: FilePath
    bytes: int


class _Shard(msgspec.Struct, frozen=True):
    format: str
    column_names: list[str]
    column_encodings: list[str]
    column_sizes: list[int | None]
    samples: int
    raw_data: _File
    zip_data: _File | None = None
    compression: str | None = None


class _Index(msgspec.Struct, frozen=True):
    shards: list[_Shard]


def mds_folders(path: Path) -> list[Path]:
    """The folder itself, or those right in it that have an index of shards; sorted."""
    if not path.is_dir():
        return []
    there = [path] if (path / _INDEX).is_file() else sorted(index.parent for index in path.glob(f"*/{_INDEX}"))
    return [folder for folder in there if b'"shards"' in (folder / _INDEX).read_bytes()]


class MdsPart:
    """The samples of one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        """Read the index, and of the first samples what their tokens are.

        Raises:
            InputError: a file of it is missing or not what it should be, or there are no token ids.

        """
        self.name = name
        self._folder = folder
        self._shards = _shards(folder / _INDEX)
        for shard in self._shards:
            _check_count(folder, shard)
        self._firsts = offsets_of([shard.samples for shard in self._shards])
        self._opened = lru_cache(1)(self._open)
        first = self._shards[0] if self._shards else None
        names = first.column_names if first else []
        self._encodings = dict(zip(names, first.column_encodings, strict=True)) if first else {}
        self._has_turns = "turns" in self._encodings
        self._ids = next((name for name in _IDS if name in self._encodings), "")
        if self._encodings and not self._has_turns and not self._ids:
            raise InputError(
                f"{folder} has neither a column turns nor input_ids nor tokens (found: {', '.join(names)})",
                hint="an audit looks at rows that are tokenized already",
            )
        self._others = [name for name in TOKEN_COLUMNS if name in self._encodings and not self._has_turns]
        self._bytes_dtype, self._is_turn = np.dtype(np.int64), False
        if not self._has_turns:
            samples = [self._sample(number) for number in range(min(len(self), 16))]
            if self._encodings.get(self._ids) == "bytes":
                self._bytes_dtype = _dtype_of([sample[self._ids] for sample in samples])
            rows = [self._row(sample, number) for number, sample in enumerate(samples)]
            lengths_differ = any(len(row["input_ids"]) != len(row["labels"]) for row in rows if "labels" in row)
            self._is_turn = self._others == ["labels"] and lengths_differ

    @property
    def columns(self) -> tuple[str, ...]:
        return ("turns",) if self._has_turns or self._is_turn else ("input_ids", *self._others)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def tokens(self) -> None:
        """Only reading all samples would tell."""

    def read(self, numbers: Int64) -> ForeignRows:
        rows = [self._row(self._sample(number), number) for number in numbers.tolist()]
        flat = {
            name: (np.concatenate([np.zeros(0, np.int64), *(row[name] for row in rows)]),
                   offsets_of([len(row[name]) for row in rows]))
            for name in (rows[0] if rows else {"input_ids": None})
        }  # fmt: skip
        return flat_rows(numbers, flat.pop("input_ids"), flat)

    def _row(self, sample: dict[str, memoryview], number: int) -> dict[str, Int64]:
        """input_ids, and the columns of :data:`TOKEN_COLUMNS` that are there; labels of turns.

        Raises:
            InputError: the bytes are not what the encoding says.

        """
        try:
            if self._has_turns:
                return _joined(msgspec.json.decode(sample["turns"], type=list[_Turn]))
            row = {"input_ids": self._values(sample, self._ids)}
            row |= {name: self._values(sample, name) for name in self._others}
        except (ValueError, OverflowError, KeyError, IndexError, TypeError, msgspec.MsgspecError) as error:
            raise InputError(f"{self._folder}: sample {number:,} cannot be read: {error}") from error
        if self._is_turn:
            return _joined([_Turn(input_ids=row["input_ids"].tolist(), labels=row["labels"].tolist())])
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

    def _sample(self, number: int) -> dict[str, Bytes]:
        """Column → bytes."""
        place = int(np.searchsorted(self._firsts, number, side="right")) - 1
        shard = self._shards[place]
        content, offsets = self._opened(place)
        at, end = (int(value) for value in offsets[number - self._firsts[place] :][:2])
        sizes = list(shard.column_sizes)
        for column, size in enumerate(sizes):
            if not size:
                sizes[column] = int.from_bytes(content[at : at + 4], "little")
                at += 4
        found = {}
        for name, size in zip(shard.column_names, sizes, strict=True):
            assert size is not None
            found[name] = content[at : at + size]
            at += size
        if at != end:
            raise InputError(
                f"{self._folder / shard.raw_data.basename}: sample {number:,} does not end with its columns"
            )
        return found

    def _open(self, place: int) -> tuple[Bytes, Int64]:
        """The bytes of a shard, and where each of its samples begins, and the last one ends."""
        shard = self._shards[place]
        path, content = _content(self._folder, shard)
        count = int.from_bytes(content[:4], "little")
        if count != shard.samples or len(content) < 8 + 4 * count:
            raise InputError(f"{path}: expected {shard.samples:,} samples, found a shard of {len(content):,} bytes")
        offsets = np.frombuffer(content, "<u4", count + 1, 4).astype(np.int64)
        if (np.diff(offsets, prepend=8 + 4 * count) < 0).any() or offsets[-1] > len(content):
            raise InputError(f"{path}: its samples lie outside of it, it has {len(content):,} bytes")
        return content, offsets


def _shards(path: Path) -> list[_Shard]:
    try:
        shards = msgspec.json.decode(path.read_bytes(), type=_Index).shards
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        refused = InputError(f"{path} cannot be read as an index of MDS shards: {in_words(str(error))}")
        raise out_of(error) or refused from error
    for shard in shards:
        if shard.format != "mds":
            raise InputError(f"{path}: expected shards of format mds, found {shard.format}")
        if not len(shard.column_names) == len(shard.column_encodings) == len(shard.column_sizes):
            raise InputError(f"{path}: columns of {shard.raw_data.basename} lack an encoding or a size")
        if shard.samples < 0 or (shard.column_names, shard.column_encodings) != (
            shards[0].column_names,
            shards[0].column_encodings,
        ):
            raise InputError(f"{path}: {shard.raw_data.basename} has other columns than the shards before it")
    return shards


def _check_count(folder: Path, shard: _Shard) -> None:
    """Whether a shard has room for its samples: before it is opened, they are only a number in an index.

    Raises:
        InputError: it has not, or there is no such file.

    """
    path, is_packed = _file(folder, shard)
    size = min(shard.raw_data.bytes, _MOST_BYTES) if is_packed else path.stat().st_size
    if shard.samples and size < 8 + 4 * shard.samples:
        raise InputError(f"{path}: expected {shard.samples:,} samples, found a shard of {size:,} bytes")


def _content(folder: Path, shard: _Shard) -> tuple[Path, Bytes]:
    """A shard's file and its bytes, unpacked."""
    path, is_packed = _file(folder, shard)
    return path, _unpacked(path, shard) if is_packed else _read(path)


def _file(folder: Path, shard: _Shard) -> tuple[Path, bool]:
    """A shard's file, and whether it is compressed."""
    for file in (shard.raw_data, shard.zip_data):
        if file is None:
            continue
        path = folder / file.basename
        if path.is_file():
            return path, file is not shard.raw_data
    raise InputError(
        f"{folder / shard.raw_data.basename}: no such file, and {_INDEX} names it", hint="is the folder whole?"
    )


def _read(path: Path) -> Bytes:
    try:
        return np.memmap(path, np.uint8, "r").data if path.stat().st_size else memoryview(b"")
    except OSError as error:
        raise out_of(error) or InputError(f"{path} cannot be read: {error.strerror}") from error


def _unpacked(path: Path, shard: _Shard) -> Bytes:
    codec = codec_of(path)
    if codec is None:
        raise InputError(
            f"{path}: is compressed as {shard.compression}, which an audit does not unpack",
            hint="it reads zstd, gz and bz2, and shards that are not compressed",
        )
    content = bytearray()
    for chunk in decompressed(path, read_chunks(path), codec):
        content += chunk
        if len(content) > shard.raw_data.bytes:
            raise InputError(f"{path}: holds more than the {shard.raw_data.bytes:,} bytes that {_INDEX} says")
    return memoryview(content)


def _joined(turns: Sequence[_Turn]) -> dict[str, Int64]:
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
