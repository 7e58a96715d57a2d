"""Rows as the arrays of a micro-batch: blocks flattened or side by side, documents padded or one after another.

Columns are written straight into the room a placement gives, in its integer type, so that each token is copied once.
"""

from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from packer.batches import Int64
from packer.layout import MASKED, positions
from packer.load.batching import Batching, Group, Packed, Padded, TokenBudget
from packer.load.device import HostBatches, Staging
from packer.load.form import Form
from packer.load.packed_layout import PackedLayout
from packer.load.runs import NO_BOUNDS, OF_RUNS, bounds_of_runs
from packer.store.cache import FoundBlocks, FoundDocuments

Found_contra = TypeVar("Found_contra", FoundBlocks, FoundDocuments, contravariant=True)


class Layout(Protocol[Found_contra]):
    """Micro-batches of one form."""

    @property
    def pads_rows(self) -> bool:
        """Whether the longest row of a micro-batch decides how wide the others are."""

    def num_together(self, num_rows: int) -> int:
        """How many micro-batches of so many rows are laid out in one go."""

    def micro_batches(self, found: Found_contra, group: Group, staging: Staging) -> HostBatches:
        """The arrays of some micro-batches, no more than can be laid out in one go.

        Args:
            found: the rows of this rank's steps.
            group: which of them.
            staging: where arrays are written.

        """

    def num_slots(self, lengths: Int64, num_rows: int) -> int:
        """Positions of such a micro-batch."""


class PaddedLayout:
    """Documents side by side, padded with the pad id to one length. A padding row is one pad token, the rest padding.

    Positions count from each document's first token, so that padding on the left does not move them.
    """

    pads_rows = True

    def __init__(self, padded: Padded, *, pad_id: int, form: Form) -> None:
        self._padded = padded
        self._pad_id = pad_id
        self._form = form

    def num_together(self, num_rows: int) -> int:
        del num_rows  # one is as wide as its longest row, the next one is not
        return 1

    def micro_batches(self, found: FoundDocuments, group: Group, staging: Staging) -> HostBatches:
        lengths, num_rows = group.lengths, group.num_rows
        width = self._width(lengths)
        sizes = np.ones(num_rows, np.int64)  # of a padding row
        sizes[: len(lengths)] = lengths
        offsets = width - sizes if self._padded.side == "left" else np.zeros(num_rows, np.int64)
        starts = np.arange(num_rows, dtype=np.int64) * width + offsets
        where = _Where(found, group.first, starts[: len(lengths)].tolist(), lengths.tolist())
        host: dict[str, npt.NDArray[Any]] = {}
        for name, fill in (("input_ids", self._pad_id), ("labels", MASKED)):
            if self._form.wants(name):
                host[name] = _filled(name, fill, (num_rows, width), where, staging)
        place = np.arange(width) - offsets[:, None]  # from each row's first token
        real = (place >= 0) & (place < sizes[:, None])
        if self._form.wants("attention_mask"):
            host["attention_mask"] = staging.room("attention_mask", (num_rows, width))
            host["attention_mask"][:] = real
        if self._form.wants("position_ids"):
            host["position_ids"] = staging.room("position_ids", (num_rows, width))
            host["position_ids"][:] = np.where(real, place, 0)
        if self._form.wants("loss_weights"):
            host["loss_weights"] = _weights((num_rows, width), where)
        return HostBatches(columns=_alone(host))

    def num_slots(self, lengths: Int64, num_rows: int) -> int:
        return num_rows * self._width(lengths)

    def _width(self, lengths: Int64) -> int:
        return self._padded.rounded(int(lengths.max()) if len(lengths) else 1)


class PaddingFreeLayout:
    """Documents one after another in one row, each a sequence. A padding row is a sequence of one pad token."""

    pads_rows = False

    def __init__(self, *, pad_id: int, form: Form) -> None:
        self._pad_id = pad_id
        self._form = form

    def num_together(self, num_rows: int) -> int:
        del num_rows  # one has more tokens than the next one
        return 1

    def micro_batches(self, found: FoundDocuments, group: Group, staging: Staging) -> HostBatches:
        lengths, num_rows = group.lengths, group.num_rows
        sizes = np.ones(num_rows, np.int64)
        sizes[: len(lengths)] = lengths
        ends = np.cumsum(sizes)
        shape = (1, int(ends[-1]))
        where = _Where(found, group.first, (ends - sizes)[: len(lengths)].tolist(), lengths.tolist())
        host: dict[str, npt.NDArray[Any]] = {}
        for name, fill in (("input_ids", self._pad_id), ("labels", MASKED)):
            if self._form.wants(name):
                host[name] = _filled(name, fill, shape, where, staging)
        if self._form.wants("position_ids"):
            host["position_ids"] = staging.room("position_ids", shape)
            host["position_ids"][0] = positions(sizes)
        if self._form.wants("loss_weights"):
            host["loss_weights"] = _weights(shape, where)
        bounds = NO_BOUNDS
        if not self._form.columns.isdisjoint(OF_RUNS):
            bounds = bounds_of_runs(sizes.astype(np.int32), [num_rows], self._form)
        return HostBatches(columns=_alone(host), bounds=bounds)

    def num_slots(self, lengths: Int64, num_rows: int) -> int:
        return int(lengths.sum()) + num_rows - len(lengths)


def layout_of(
    batching: Batching, *, block_len: int, pad_id: int, form: Form
) -> PackedLayout | PaddedLayout | PaddingFreeLayout:
    """The layout of a batching."""
    if isinstance(batching, Packed):
        return PackedLayout(block_len=block_len, pad_id=pad_id, form=form)
    padded = batching.padded if isinstance(batching, TokenBudget) else batching
    if isinstance(padded, Padded):
        return PaddedLayout(padded, pad_id=pad_id, form=form)
    return PaddingFreeLayout(pad_id=pad_id, form=form)


def _alone(columns: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The columns of the only micro-batch, as those of several."""
    return {name: column[None] for name, column in columns.items()}


class _Where:
    """Where in a flat array documents are written."""

    def __init__(self, found: FoundDocuments, first: int, places: list[int], lengths: list[int]) -> None:
        self._found, self._first, self._places, self._lengths = found, first, places, lengths

    def copy(self, name: str, into: np.ndarray[tuple[int], np.dtype[np.generic]]) -> None:
        self._found.copy(name, into, self._places, self._lengths, self._first)


def _filled(
    name: str, fill: int, shape: tuple[int, int], where: _Where, staging: Staging
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    column = staging.room(name, shape)
    column[:] = fill
    where.copy(name, column.reshape(-1))
    return column


def _weights(shape: tuple[int, int], where: _Where) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    weights = np.zeros(shape, np.float32)
    where.copy("loss_weights", weights.reshape(-1))
    return weights
