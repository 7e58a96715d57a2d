"""Arrays of tokens: OLMo-core's and nanoGPT's, which are bare values, and others with numpy's header.

OLMo-core: ``token_ids*.npy`` or, by dolma, ``part-*.npy``; a bool for each token in ``labels_mask*.npy``; borders of
documents in ``.csv.gz``. The type of the ids stands nowhere: it follows from the size of the mask, which has one byte a
token, or from the vocabulary. How long the rows are that a trainer cuts stands nowhere either, but in the record of an
export by packer. An array of two axes has its rows as they are.
"""

import gzip
import tokenize
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.audit.foreign.foreign_rows import ForeignRows, flat_rows
from packer.batches import Int64
from packer.errors import InputError
from packer.layout import concatenated_ranges, offsets_of
from packer.limits import out_of
from packer.model import Model
from packer.store.exported import RECORD, read_record

_DTYPES: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_NUMPY = b"\x93NUMPY"
_BAD_HEADER = (
    *(ValueError, EOFError, TypeError, OverflowError, RuntimeWarning),
    *(SyntaxError, RecursionError, MemoryError, tokenize.TokenError),
)
"""What numpy raises where a header is not what it should be: it parses it as Python."""

_MOST = 2**31
"""No row is as long, and no vocabulary as large."""

_TOKENS, _MASK = "token_ids", "labels_mask"


def olmo_files(path: Path) -> list[Path]:
    """The token arrays at a path: itself, or those of a folder, or of the folders right in it."""
    if path.suffix in {".npy", ".bin"} and path.is_file():
        return [path]
    for pattern in (f"{_TOKENS}*.npy", f"*/{_TOKENS}*.npy", "*.npy"):
        found = sorted(file for file in path.glob(pattern) if not file.name.startswith(_MASK)) if path.is_dir() else []
        if found:
            return found
    return []


class OlmoPart:
    """The rows of one token array."""

    def __init__(self, path: Path, name: str, model: Model | None) -> None:
        """Find type and borders.

        Raises:
            InputError: a file cannot be read, or type or borders cannot be known.

        """
        self.name = name
        recorded = _recorded(path)
        mask = path.with_name(path.name.replace(_TOKENS, _MASK))
        self._mask = _array(mask, 1).reshape(-1) if mask != path and mask.is_file() else None
        ids = _array(path, None if _has_header(path) else self._width(path, model))
        self._ids = ids.reshape(-1)
        if self._mask is not None and len(self._mask) != len(self._ids):
            raise InputError(f"{path} has {len(self._ids):,} ids, its mask {len(self._mask):,} values")
        self._eos_id = recorded.get("eos_id") if model is None else model.eos_id
        row_length = ids.shape[1] if ids.ndim > 1 else recorded.get("sequence_length")
        self._eos_begins_sequences = ids.ndim == 1 and row_length is not None and self._eos_id is not None
        self.rows_end_at_eos = not row_length and not path.with_suffix(".csv.gz").is_file()
        self._starts, self._lengths = self._rows(row_length) if row_length else self._documents(path)

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
        ids = self._ids[places]
        sequences = _runs(ids == self._eos_id, offsets) if self._eos_begins_sequences else None
        return flat_rows(numbers, (ids, offsets), columns, sequences)

    def _width(self, path: Path, model: Model | None) -> int:
        """Bytes of an id."""
        size = path.stat().st_size
        if self._mask is not None and len(self._mask):
            width, rest = divmod(size, len(self._mask))
            if rest or width not in _DTYPES:
                raise InputError(f"{path} has {size} bytes, its mask {len(self._mask)}: expected 1, 2, 4 or 8 a token")
            return width
        if model is None:
            raise InputError(f"{path} has no mask beside it, so the type of its ids is not known", hint="--tokenizer")
        return next(width for width in _DTYPES if model.vocab_size - 1 <= np.iinfo(_DTYPES[width]).max)

    def _rows(self, length: int) -> tuple[Int64, Int64]:
        """Rows of one length, one behind the other; what is left at the end is in none."""
        starts = np.arange(0, len(self._ids) - length + 1, length, dtype=np.int64)
        return starts, np.full(len(starts), length, np.int64)

    def _documents(self, path: Path) -> tuple[Int64, Int64]:
        """By the file of borders, else behind each EOS."""
        borders = path.with_suffix(".csv.gz")
        if borders.is_file():
            try:
                lines = gzip.decompress(borders.read_bytes()).decode().splitlines()
                bounds = np.array([line.split(",")[:2] for line in lines], np.int64).reshape(-1, 2)
            except (OSError, ValueError, OverflowError, EOFError, zlib.error) as error:
                raise out_of(error) or InputError(f"{borders} cannot be read: {error}") from error
            if len(bounds) and (bounds.min() < 0 or bounds.max() > len(self._ids) or (np.diff(bounds) < 0).any()):
                raise InputError(f"{borders} names places outside {path.name}")
            return bounds[:, 0], bounds[:, 1] - bounds[:, 0]
        if self._eos_id is None:
            raise InputError(
                f"{path} has no .csv.gz beside it: documents end at EOS, which is not known", hint="--tokenizer"
            )
        ends = np.flatnonzero(self._ids == self._eos_id).astype(np.int64) + 1
        bounds = np.unique(np.concatenate([np.zeros(1, np.int64), ends, [len(self._ids)]]))
        return bounds[:-1], np.diff(bounds)


def _recorded(path: Path) -> dict[str, Any]:
    """What the record of an export by packer says of the rows of its blocks; nothing where there is none.

    Raises:
        InputError: it says so in values that are none.

    """
    folder = path.parent.parent
    record = read_record(folder) or {}
    try:
        recorded = record["splits"][path.parent.name]
        found = {"sequence_length": recorded.get("sequence_length"), "eos_id": record["model"]["eos_id"]}
    except (KeyError, TypeError, AttributeError):
        return {}
    for (name, value), least in zip(found.items(), (1, 0), strict=True):
        if value is not None and (type(value) is not int or not least <= value < _MOST):
            shown = f"{value!r:.40}"
            raise InputError(f"{folder / RECORD}: expected {name} to be a number from {least} on, found {shown}")
    return found


def _has_header(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_NUMPY)) == _NUMPY


def _array(path: Path, width: int | None) -> npt.NDArray[Any]:
    """An array of one axis or two, mapped; bare values of `width` bytes, or with numpy's header where none is said.

    Raises:
        InputError: it is none.

    """
    try:
        if width is None or _has_header(path):
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)  # of a shape that has more values than can be counted
                found: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
        else:
            size = path.stat().st_size
            if not size or size % width:
                raise InputError(f"{path} has {size} bytes: expected a multiple of {width}")
            found = np.memmap(path, _DTYPES[width], "r")
    except (OSError, *_BAD_HEADER) as error:
        # Python's parser raises MemoryError of a header that is nested too deep.
        ran_out = out_of(error) if isinstance(error, OSError) else None
        raise ran_out or InputError(f"{path} cannot be read: {error}") from error
    if found.ndim not in (1, 2) or found.dtype.kind not in "iub":
        raise InputError(f"{path}: expected whole numbers in one axis or two, found {found.dtype} of {found.shape}")
    return found


def _runs(is_end: npt.NDArray[np.bool_], offsets: Int64) -> tuple[Int64, Int64]:
    """Lengths of the runs that end where it is said, or with their row; offsets of rows into them."""
    ends = is_end.copy()
    ends[offsets[1:][np.diff(offsets) > 0] - 1] = True
    places = np.flatnonzero(ends)
    return np.diff(places, prepend=-1), np.searchsorted(places, offsets).astype(np.int64)
