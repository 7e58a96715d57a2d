"""Bare arrays of OLMo-core: ``token_ids*.npy``, a bool for each token in ``labels_mask*.npy``, borders in ``.csv.gz``.

The type of the ids stands nowhere: it follows from the size of the mask, which has one byte a token, or from the
vocabulary.
"""

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from packer.audit.foreign.dataset import ForeignRows, flat_rows
from packer.batches import Int64
from packer.errors import InputError
from packer.layout import concatenated_ranges, offsets_of

_DTYPES: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def olmo_files(path: Path) -> list[Path]:
    """The token arrays at a path: itself, or those of a folder."""
    if path.suffix == ".npy" and path.is_file():
        return [path]
    return sorted(path.glob("token_ids*.npy")) if path.is_dir() else []


class OlmoPart:
    """The documents of one token array."""

    def __init__(self, path: Path, name: str, *, vocab_size: int | None, eos_id: int | None) -> None:
        """Find type and borders.

        Raises:
            InputError: a file cannot be read, or type or borders cannot be known.

        """
        self.name = name
        mask = path.with_name(path.name.replace("token_ids", "labels_mask"))
        self._mask = np.memmap(mask, np.uint8, "r") if mask != path and mask.is_file() else None
        size = path.stat().st_size
        width = self._width(path, size, vocab_size)
        if not size or size % width:
            raise InputError(f"{path} has {size} bytes: expected a multiple of {width}")
        self._ids = np.memmap(path, _DTYPES[width], "r")
        self._starts, self._lengths = self._borders(path, eos_id)

    @property
    def columns(self) -> tuple[str, ...]:
        return ("input_ids",) if self._mask is None else ("input_ids", "loss_mask")

    def __len__(self) -> int:
        return len(self._lengths)

    def tokens(self) -> int:
        return int(self._lengths.sum())

    def read(self, numbers: Int64) -> ForeignRows:
        lengths = self._lengths[numbers]
        places, offsets = concatenated_ranges(self._starts[numbers], lengths), offsets_of(lengths)
        columns = {} if self._mask is None else {"loss_mask": (self._mask[places], offsets)}
        return flat_rows(numbers, (self._ids[places], offsets), columns)

    def _width(self, path: Path, size: int, vocab_size: int | None) -> int:
        if self._mask is not None and len(self._mask):
            width, rest = divmod(size, len(self._mask))
            if rest or width not in _DTYPES:
                raise InputError(f"{path} has {size} bytes, its mask {len(self._mask)}: expected 1, 2, 4 or 8 a token")
            return width
        if vocab_size is None:
            raise InputError(f"{path} has no mask beside it, so the type of its ids is not known", hint="--tokenizer")
        return next(width for width in _DTYPES if vocab_size - 1 <= np.iinfo(_DTYPES[width]).max)

    def _borders(self, path: Path, eos_id: int | None) -> tuple[Int64, Int64]:
        borders = path.with_suffix(".csv.gz")
        if borders.is_file():
            try:
                lines = gzip.decompress(borders.read_bytes()).decode().splitlines()
                bounds = np.array([line.split(",")[:2] for line in lines], np.int64).reshape(-1, 2)
            except (OSError, ValueError, EOFError, zlib.error) as error:
                raise InputError(f"{borders} cannot be read: {error}") from error
            if len(bounds) and (bounds.min() < 0 or bounds.max() > len(self._ids) or (np.diff(bounds) < 0).any()):
                raise InputError(f"{borders} names places outside {path.name}")
            return bounds[:, 0], bounds[:, 1] - bounds[:, 0]
        if eos_id is None:
            raise InputError(
                f"{path} has no .csv.gz beside it: documents end at EOS, which is not known", hint="--tokenizer"
            )
        ends = np.flatnonzero(self._ids == eos_id).astype(np.int64) + 1
        bounds = np.unique(np.concatenate([np.zeros(1, np.int64), ends, [len(self._ids)]]))
        return bounds[:-1], np.diff(bounds)
