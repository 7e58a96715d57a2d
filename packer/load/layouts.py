"""Rows as the arrays of a micro-batch: blocks flattened or side by side, documents padded or one after another.

Columns are written straight into the room a placement gives, in its integer type, so that each token is copied once.
"""

from typing import Protocol, TypeVar

import numpy as np

from packer.batches import Int32, Int64
from packer.layout import MASKED, cu_seq_lens, positions, sequence_numbers
from packer.load.batching import Batching, Packed, Padded, TokenBudget
from packer.load.device import HostBatch, Staging
from packer.load.form import Form
from packer.store.cache import FoundBlocks, FoundDocuments

Found_contra = TypeVar("Found_contra", FoundBlocks, FoundDocuments, contravariant=True)


class Layout(Protocol[Found_contra]):
    """Micro-batches of one form."""

    @property
    def pads_rows(self) -> bool:
        """Whether the longest row of a micro-batch decides how wide the others are."""

    def micro_batch(
        self, found: Found_contra, first: int, lengths: Int64, num_rows: int, staging: Staging
    ) -> HostBatch:
        """The arrays of a micro-batch.

        Args:
            found: the rows of this rank's step.
            first: the first of them that belongs to this micro-batch.
            lengths: tokens of each of its rows.
            num_rows: its rows, padding rows behind the others included.
            staging: where arrays are written.

        """

    def num_slots(self, lengths: Int64, num_rows: int) -> int:
        """Positions of such a micro-batch."""


class PackedLayout:
    """Blocks. Flattened they are one row, the form of variable-length attention with batch size 1.

    Every padding run is a sequence of its own, so padding sees only padding. A padding row is one run of pad ids.
    """

    pads_rows = False

    def __init__(self, *, block_len: int, pad_id: int, form: Form) -> None:
        self._block_len = block_len
        self._form = form
        self._fill = {"input_ids": pad_id, "labels": MASKED, "position_ids": np.arange(block_len)}

    def micro_batch(self, found: FoundBlocks, first: int, lengths: Int64, num_rows: int, staging: Staging) -> HostBatch:
        form, num_real = self._form, len(lengths)
        shape = (num_rows, self._block_len)
        host: HostBatch = {}
        for name, fill in self._fill.items():
            if form.wants(name):
                host[name] = column = staging.room(name, shape)
                found.copy(name, column[:num_real], first)
                column[num_real:] = fill
        if form.wants("loss_weights"):
            host["loss_weights"] = weights = np.zeros(shape, np.float32)
            found.copy_weights(weights[:num_real], first)
        if form.flatten:
            host = {name: column.reshape(1, -1) for name, column in host.items()}
        return host | self._runs(found, first, num_real, num_rows)

    def num_slots(self, lengths: Int64, num_rows: int) -> int:
        del lengths  # a block is a block
        return num_rows * self._block_len

    def _runs(self, found: FoundBlocks, first: int, num_real: int, num_rows: int) -> HostBatch:
        if self._form.wants("document_ids"):
            runs = self._run_lengths(found, first, num_real, num_rows)
            return {"document_ids": sequence_numbers(runs).reshape(num_rows, self._block_len)}
        if self._form.columns.isdisjoint(("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")):
            return {}
        return _bounds(self._run_lengths(found, first, num_real, num_rows), self._form)

    def _run_lengths(self, found: FoundBlocks, first: int, num_real: int, num_rows: int) -> Int32:
        runs = found.run_lengths(first, first + num_real)
        if num_real < num_rows:
            runs.append(np.full(num_rows - num_real, self._block_len, np.int32))
        lengths: Int32 = np.concatenate(runs)
        return lengths


class PaddedLayout:
    """Documents side by side, padded with the pad id to one length. A padding row is one pad token, the rest padding.

    Positions count from each document's first token, so that padding on the left does not move them.
    """

    pads_rows = True

    def __init__(self, padded: Padded, *, pad_id: int, form: Form) -> None:
        self._padded = padded
        self._pad_id = pad_id
        self._form = form

    def micro_batch(
        self, found: FoundDocuments, first: int, lengths: Int64, num_rows: int, staging: Staging
    ) -> HostBatch:
        width = self._width(lengths)
        sizes = np.ones(num_rows, np.int64)  # of a padding row
        sizes[: len(lengths)] = lengths
        offsets = width - sizes if self._padded.side == "left" else np.zeros(num_rows, np.int64)
        starts = np.arange(num_rows, dtype=np.int64) * width + offsets
        where = _Where(found, first, starts[: len(lengths)].tolist(), lengths.tolist())
        host: HostBatch = {}
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
        return host

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

    def micro_batch(
        self, found: FoundDocuments, first: int, lengths: Int64, num_rows: int, staging: Staging
    ) -> HostBatch:
        sizes = np.ones(num_rows, np.int64)
        sizes[: len(lengths)] = lengths
        bounds = np.cumsum(sizes)
        shape = (1, int(bounds[-1]))
        where = _Where(found, first, (bounds - sizes)[: len(lengths)].tolist(), lengths.tolist())
        host: HostBatch = {}
        for name, fill in (("input_ids", self._pad_id), ("labels", MASKED)):
            if self._form.wants(name):
                host[name] = _filled(name, fill, shape, where, staging)
        if self._form.wants("position_ids"):
            host["position_ids"] = staging.room("position_ids", shape)
            host["position_ids"][0] = positions(sizes)
        if self._form.wants("loss_weights"):
            host["loss_weights"] = _weights(shape, where)
        return host | _bounds(sizes.astype(np.int32), self._form)

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


def _bounds(runs: Int32, form: Form) -> HostBatch:
    """What variable-length attention wants to know of runs, as far as it is asked for."""
    bounds, longest = cu_seq_lens(runs), int(runs.max())
    known: HostBatch = {
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds.copy(),
        "max_length_q": longest,
        "max_length_k": longest,
    }
    return {name: value for name, value in known.items() if form.wants(name)}
