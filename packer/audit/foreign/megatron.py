"""Pairs of ``.bin`` and ``.idx`` as Megatron-LM reads them; the layout stands in :mod:`packer.export.megatron`."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from packer.audit.foreign.foreign_rows import ForeignRows, flat_rows
from packer.batches import Int64
from packer.errors import InputError
from packer.layout import concatenated_ranges, offsets_of
from packer.limits import out_of

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_DTYPES: dict[int, type[np.generic]] = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}

_MASKS = ("_text_document", "_loss_mask_document")
"""How `packer export --separate-mask` names tokens and their mask."""

_MOST_EMPTY = 2**20
"""Sequences without ids that are taken for true, where a .bin file has fewer bytes than its index has sequences."""


def megatron_prefix(path: Path) -> Path | None:
    """The path without its ending, where it names a pair of files."""
    if path.name in {"", ".."}:
        return None  # a folder, whatever it is called
    prefix = path.with_suffix("") if path.suffix in {".bin", ".idx"} else path
    return prefix if prefix.with_name(f"{prefix.name}.idx").is_file() else None


def megatron_pairs(folder: Path) -> list[Path]:
    """The pairs of files right in a folder, without those that are the mask of another; sorted."""
    found = [path.with_suffix("") for path in folder.glob("*.idx")] if folder.is_dir() else []
    masks = {prefix.with_name(prefix.name.replace(*_MASKS)) for prefix in found if _MASKS[0] in prefix.name}
    return sorted(prefix for prefix in found if prefix not in masks)


class MegatronPart:
    """The sequences of a pair, with the mask that `packer export` wrote beside it where there is one."""

    def __init__(self, prefix: Path, name: str) -> None:
        """Read the index.

        Raises:
            InputError: a file cannot be read, or is not what it says.

        """
        self.name = name
        self._pair = _Pair(prefix)
        self._mask: _Pair | None = None
        mask = prefix.with_name(prefix.name.replace(*_MASKS))
        if mask != prefix and megatron_prefix(mask) is not None:
            self._mask = _Pair(mask)
            if not np.array_equal(self._mask.lengths, self._pair.lengths):
                raise InputError(f"{mask}.idx has other lengths than {prefix}.idx")

    @property
    def columns(self) -> tuple[str, ...]:
        return ("input_ids",) if self._mask is None else ("input_ids", "loss_mask")

    def __len__(self) -> int:
        return len(self._pair.lengths)

    def tokens(self) -> int:
        return int(self._pair.lengths.sum())

    def read(self, numbers: Int64) -> ForeignRows:
        columns = {} if self._mask is None else {"loss_mask": self._mask.read(numbers)}
        return flat_rows(numbers, self._pair.read(numbers), columns)


class _Pair:
    def __init__(self, prefix: Path) -> None:
        index, values = (prefix.with_name(f"{prefix.name}{ending}") for ending in (".idx", ".bin"))
        try:
            size = values.stat().st_size
            self.lengths, self._starts, dtype = _sequences(index, size)
            self._values = np.memmap(values, dtype, "r") if size >= dtype.itemsize else np.zeros(0, dtype)
        except (OSError, ValueError, struct.error) as error:
            raise out_of(error) or InputError(f"{index}: {error}") from error

    def read(self, numbers: Int64) -> tuple[Int64, Int64]:
        lengths = self.lengths[numbers]
        return self._values[concatenated_ranges(self._starts[numbers], lengths)].astype(np.int64), offsets_of(lengths)


def _sequences(index: Path, size: int) -> tuple[Int64, Int64, np.dtype[Any]]:
    """Lengths and starts of the sequences, in ids, and the type of an id; of the file no more is read.

    Raises:
        OSError, struct.error: it cannot be read, or is shorter than its header.
        ValueError: no index, or one that leads out of `size` bytes.

    """
    with index.open("rb") as file:
        head = file.read(_HEADER.size)
        magic, version, code, count, entries = _HEADER.unpack(head)
        if magic != _MAGIC or version != 1 or code not in _DTYPES:
            raise ValueError(f"expected an index of version 1 with ids of a known type, found {head[:18]!r}")
        found = index.stat().st_size
        if found < _HEADER.size + 12 * count + 8 * entries:
            raise ValueError(f"expected {count} sequences and {entries} documents, found {found} bytes")
        # A file may have holes, and then be large without taking any room: its size alone bears out no count.
        if count > max(size, _MOST_EMPTY):
            raise ValueError(f"expected a sequence for some ids, found {count} for a .bin file of {size} bytes")
        lengths = np.fromfile(file, "<i4", count).astype(np.int64)
        pointers = np.fromfile(file, "<i8", count).astype(np.int64)
    dtype: np.dtype[Any] = np.dtype(_DTYPES[code])
    starts, rest = np.divmod(pointers, dtype.itemsize)
    lie_outside = (lengths < 0) | (starts < 0) | (starts > size // dtype.itemsize - lengths)
    if rest.any() or lie_outside.any():
        raise ValueError(f"its sequences lie outside the .bin file, which has {size} bytes")
    return lengths, starts, dtype
