"""Folders of MosaicML streaming (MDS): ``index.json`` and shards, as they are or compressed.

The layout of a shard stands in :mod:`packer.export.mds`. A sample is the uint32 size of each column that has no fixed
one, then the columns: arrays, JSON or int64 bytes of ids and labels, or turns. Turns are llm-foundry's: each a context
and a target, ``{"input_ids": […], "labels": […]}``. The library's own reader is not used: it comes with torch and the
clients of four clouds, and unpickles columns.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from packer.audit.foreign.foreign_row import TOKEN_COLUMNS, TokenRow
from packer.batches import Int64
from packer.errors import InputError
from packer.layout import MASKED, offsets_of
from packer.limits import out_of
from packer.names import FilePath, in_words
from packer.source.compression import codec_of, decompressed
from packer.source.file_bytes import read_chunks

_INDEX = "index.json"
_MOST_BYTES = 2**32
"""No shard is larger: its offsets are uint32."""

_IDS = ("input_ids", "tokens")
"""Names of a column of ids: Hugging Face's, and that of llm-foundry's pretraining."""

_DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 32: "uint32", 33: "int32", 64: "uint64", 65: "int64",
}  # fmt: skip
"""Byte in front of an array whose type its column does not name → type."""


class _Turn(msgspec.Struct, frozen=True):
    input_ids: list[int]
    labels: list[int]


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
        """Read the index.

        Raises:
            InputError: a file of it is missing or not what it should be, or there are no token ids.

        """
        self.name = name
        self._folder = folder
        self._shards = _shards(folder)
        self._firsts = offsets_of([shard.samples for shard in self._shards])
        self._opened = lru_cache(1)(self._open)
        first = self._shards[0] if self._shards else None
        self._encodings = {} if first is None else dict(zip(first.column_names, first.column_encodings, strict=True))
        self._ids = next((name for name in ("turns", *_IDS) if name in self._encodings), "")
        if self._encodings and not self._ids:
            raise InputError(
                f"{folder} has neither a column turns nor input_ids nor tokens (found: {', '.join(self._encodings)})",
                hint="an audit looks at rows that are tokenized already",
            )
        self._others = () if self._ids == "turns" else tuple(name for name in TOKEN_COLUMNS if name in self._encodings)

    @property
    def columns(self) -> tuple[str, ...]:
        return ("turns",) if self._ids == "turns" else ("input_ids", *self._others)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def read(self, numbers: Sequence[int]) -> Iterator[TokenRow]:
        for number in numbers:
            try:
                sample = self._sample(number)
                if self._ids == "turns":
                    turns = msgspec.json.decode(sample["turns"], type=list[_Turn])
                    ids = [token for turn in turns for token in (*turn.input_ids, *turn.labels)]
                    labels = [label for turn in turns for label in (*[MASKED] * len(turn.input_ids), *turn.labels)]
                    columns = {"input_ids": np.array(ids, np.int64), "labels": np.array(labels, np.int64)}
                else:
                    columns = {name: _values(sample[name], self._encodings[name]) for name in self._others}
                    columns["input_ids"] = _values(sample[self._ids], self._encodings[self._ids])
            except (ValueError, OverflowError, LookupError, TypeError, msgspec.MsgspecError) as error:
                raise InputError(f"{self._folder}: sample {number:,} cannot be read: {error}") from error
            yield TokenRow(number=number, input_ids=columns.pop("input_ids"), columns=columns)

    def _sample(self, number: int) -> dict[str, memoryview]:
        """Column → bytes."""
        place = int(np.searchsorted(self._firsts, number, side="right")) - 1
        shard = self._shards[place]
        content, offsets = self._opened(place)
        at, end = (int(value) for value in offsets[number - self._firsts[place] :][:2])
        free = [column for column, size in enumerate(shard.column_sizes) if not size]
        sizes = [size or 0 for size in shard.column_sizes]
        for column in free:
            sizes[column] = int.from_bytes(content[at : at + 4], "little")
            at += 4
        found = {}
        for name, size in zip(shard.column_names, sizes, strict=True):
            found[name] = content[at : at + size]
            at += size
        if at != end:
            raise ValueError(f"it does not end with its columns in {shard.raw_data.basename}")
        return found

    def _open(self, place: int) -> tuple[memoryview, Int64]:
        """The bytes of a shard, and where each of its samples begins, and the last one ends."""
        shard = self._shards[place]
        path, is_packed = _file(self._folder, shard)
        content = _unpacked(path, shard) if is_packed else _mapped(path)
        count = int.from_bytes(content[:4], "little")
        if count != shard.samples or len(content) < 8 + 4 * count:
            raise InputError(f"{path}: expected {shard.samples:,} samples, found a shard of {len(content):,} bytes")
        offsets = np.frombuffer(content, "<u4", count + 1, 4).astype(np.int64)
        if (np.diff(offsets, prepend=8 + 4 * count) < 0).any() or offsets[-1] > len(content):
            raise InputError(f"{path}: its samples lie outside of it, it has {len(content):,} bytes")
        return content, offsets


def _shards(folder: Path) -> list[_Shard]:
    path = folder / _INDEX
    try:
        shards = msgspec.json.decode(path.read_bytes(), type=_Index).shards
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        refused = InputError(f"{path} cannot be read as an index of MDS shards: {in_words(str(error))}")
        raise out_of(error) or refused from error
    for shard in shards:
        columns = shard.column_names, shard.column_encodings
        if shard.format != "mds":
            raise InputError(f"{path}: expected shards of format mds, found {shard.format}")
        if not len(columns[0]) == len(columns[1]) == len(shard.column_sizes):
            raise InputError(f"{path}: columns of {shard.raw_data.basename} lack an encoding or a size")
        if columns != (shards[0].column_names, shards[0].column_encodings):
            raise InputError(f"{path}: {shard.raw_data.basename} has other columns than the shards before it")
        # Before a shard is opened its samples are only a number in an index.
        file, is_packed = _file(folder, shard)
        size = min(shard.raw_data.bytes, _MOST_BYTES) if is_packed else file.stat().st_size
        if shard.samples < 0 or (shard.samples and size < 8 + 4 * shard.samples):
            raise InputError(f"{file}: expected {shard.samples:,} samples, found a shard of {size:,} bytes")
    return shards


def _file(folder: Path, shard: _Shard) -> tuple[Path, bool]:
    """A shard's file, and whether it is compressed."""
    for file in (shard.raw_data, shard.zip_data):
        if file is not None and (folder / file.basename).is_file():
            return folder / file.basename, file is not shard.raw_data
    raise InputError(
        f"{folder / shard.raw_data.basename}: no such file, and {_INDEX} names it", hint="is the folder whole?"
    )


def _mapped(path: Path) -> memoryview:
    try:
        return np.memmap(path, np.uint8, "r").data if path.stat().st_size else memoryview(b"")
    except OSError as error:
        raise out_of(error) or InputError(f"{path} cannot be read: {error.strerror}") from error


def _unpacked(path: Path, shard: _Shard) -> memoryview:
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


def _values(data: memoryview, encoding: str) -> Int64:
    """The numbers of a column; an array has type and shape in front where the column does not name them."""
    kind, *form = encoding.split(":")
    if kind == "json":
        return np.array(msgspec.json.decode(data, type=list[int]), np.int64)
    if kind == "bytes":
        return np.frombuffer(data, np.int64)
    if kind != "ndarray":
        raise ValueError(f"a column is encoded as {encoding}; json, bytes and ndarray are read")
    at = 0
    if not form:
        form, at = [_DTYPES[data[0]]], 1
    if form[0] not in _DTYPES.values():
        raise ValueError(f"an array of {form[0]}; whole numbers are expected")
    if len(form) == 1:
        axes, width = data[at] >> 2, 1 << (data[at] & 3)
        form, at = [form[0], "," * (axes - 1)], at + 1 + axes * width
    if "," in form[1]:
        raise ValueError("an array of several axes; one is expected")
    return np.frombuffer(data[at:], form[0]).astype(np.int64)
