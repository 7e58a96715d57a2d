"""Arrays of tokens: OLMo-core's and nanoGPT's, which are bare values, and others with numpy's header.

OLMo-core: ``token_ids*.npy`` or, by dolma, ``part-*.npy``; a bool for each token in ``labels_mask*.npy``; where
documents lie in ``.csv.gz``. The type of the ids stands nowhere: it follows from the size of the mask, which has one
byte a token, or from the vocabulary. Rows are the documents, by the ``.csv.gz`` or else each up to an EOS; those of an
array of two axes are its rows.
"""

import gzip
import tokenize
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.audit.foreign.foreign_row import TokenRow
from packer.batches import Int64
from packer.errors import InputError
from packer.limits import out_of
from packer.model import Model

_DTYPES: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_NUMPY = b"\x93NUMPY"
_BAD_HEADER = (
    *(ValueError, EOFError, TypeError, OverflowError, RuntimeWarning),
    *(SyntaxError, RecursionError, MemoryError, tokenize.TokenError),
)
"""What numpy raises where a header is not what it should be: it parses it as Python."""

_TOKENS, _MASK = "token_ids", "labels_mask"


def token_arrays(path: Path) -> list[Path]:
    """The token arrays at a path: itself, or those of a folder, or of the folders right in it."""
    if path.suffix in {".npy", ".bin"} and path.is_file():
        return [path]
    for pattern in (f"{_TOKENS}*.npy", f"*/{_TOKENS}*.npy", "*.npy"):
        found = sorted(file for file in path.glob(pattern) if not file.name.startswith(_MASK)) if path.is_dir() else []
        if found:
            return found
    return []


class ArrayPart:
    """The rows of one token array."""

    def __init__(self, path: Path, name: str, model: Model | None) -> None:
        """Find type and boundaries.

        Raises:
            InputError: a file cannot be read, or type or boundaries cannot be known.

        """
        self.name = name
        mask = path.with_name(path.name.replace(_TOKENS, _MASK))
        self._mask = _array(mask, 1).reshape(-1) if mask != path and mask.is_file() else None
        ids = _array(path, None if _has_header(path) else self._width(path, model))
        self._ids = ids.reshape(-1)
        if self._mask is not None and len(self._mask) != len(self._ids):
            raise InputError(f"{path} has {len(self._ids):,} ids, its mask {len(self._mask):,} values")
        documents = path.with_suffix(".csv.gz")
        self.rows_end_at_eos = False
        if ids.ndim > 1:
            self._bounds = np.arange(len(ids) + 1, dtype=np.int64)[:, None] * ids.shape[1]
            self._bounds = np.concatenate([self._bounds[:-1], self._bounds[1:]], axis=1)
        elif documents.is_file():
            self._bounds = _bounds(documents, len(ids))
        elif model is None or model.eos_id is None:
            raise InputError(
                f"{path} has no .csv.gz beside it: documents end at EOS, which is not known", hint="--tokenizer"
            )
        else:
            self.rows_end_at_eos = True
            ends = np.unique([0, *(np.flatnonzero(ids == model.eos_id) + 1), len(ids)]).astype(np.int64)
            self._bounds = np.stack([ends[:-1], ends[1:]], axis=1)

    @property
    def columns(self) -> tuple[str, ...]:
        return ("input_ids",) if self._mask is None else ("input_ids", "loss_mask")

    def __len__(self) -> int:
        return len(self._bounds)

    def read(self, numbers: Sequence[int]) -> Iterator[TokenRow]:
        for number in numbers:
            place = slice(*self._bounds[number].tolist())
            columns = {} if self._mask is None else {"loss_mask": self._mask[place].astype(np.int64)}
            yield TokenRow(number=number, input_ids=self._ids[place].astype(np.int64), columns=columns)

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


def _bounds(path: Path, num_tokens: int) -> Int64:
    """Where the documents of an array begin and end.  # int64[N, 2]"""
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        bounds = np.array([line.split(",")[:2] for line in lines], np.int64).reshape(-1, 2)
    except (OSError, ValueError, OverflowError, EOFError, zlib.error) as error:
        raise out_of(error) or InputError(f"{path} cannot be read: {error}") from error
    if len(bounds) and (bounds.min() < 0 or bounds.max() > num_tokens or (np.diff(bounds) < 0).any()):
        raise InputError(f"{path} names places outside of its array")
    return bounds


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
