"""Rows as the arrays of micro-batches: blocks flattened or side by side, documents padded or one after another.

Columns are written straight into the room a placement gives, in its integer type, so that each token is copied once.
"""

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64
from packer.layout import MASKED, positions
from packer.load.batch_format import NO_BOUNDS, BatchFormat, sequence_bounds, sequence_ids
from packer.load.batching import Batching, Group, Packed, Padded, padded_of
from packer.load.placement import HostBatches, Placement
from packer.store.cache import FoundBlocks, FoundDocuments

Columns: TypeAlias = dict[str, npt.NDArray[Any]]

_TOGETHER = 1 << 18
"""Tokens that are laid out in one go, 2 MB of a column of int64: what a call costs is then paid once."""


class Layout(Protocol):
    """Micro-batches of one format."""

    pads_rows: bool
    """Whether the longest row of a micro-batch decides how wide the others are."""

    def num_together(self, num_rows: int) -> int:
        """How many micro-batches of so many rows are laid out in one go."""

    def micro_batches(self, found: Any, group: Group, placement: Placement) -> HostBatches:
        """The arrays of some micro-batches, no more than can be laid out in one go.

        Args:
            found: the rows of this rank's steps.
            group: which of them.
            placement: where arrays are written.

        """

    def num_slots(self, lengths: Int64, num_rows: int) -> int:
        """Positions of such a micro-batch."""


def layout_of(batching: Batching, *, block_len: int, pad_id: int, form: BatchFormat) -> Layout:
    """The layout of a batching."""
    if isinstance(batching, Packed):
        return BlockLayout(block_len=block_len, pad_id=pad_id, form=form)
    return DocumentLayout(padded_of(batching), pad_id=pad_id, form=form)


class BlockLayout:
    """Blocks. Flattened they are one row, the form of variable-length attention with batch size 1.

    Every padding run is a sequence of its own, so padding sees only padding. A padding row is one run of pad ids.
    """

    def __init__(self, *, block_len: int, pad_id: int, form: BatchFormat) -> None:
        self.pads_rows = False
        self._block_len = block_len
        self._form = form
        self._fill = {"input_ids": pad_id, "labels": MASKED, "position_ids": np.arange(block_len)}

    def num_together(self, num_rows: int) -> int:
        return max(_TOGETHER // (num_rows * self._block_len), 1)

    def micro_batches(self, found: FoundBlocks, group: Group, placement: Placement) -> HostBatches:
        form, first, num_real = self._form, group.first, len(group.lengths)
        shape = (group.number * group.num_rows, self._block_len)
        columns: Columns = {}
        for name, fill in self._fill.items():
            if form.wants(name):
                columns[name] = column = placement.room(name, shape)
                found.copy(name, column[:num_real], first)
                column[num_real:] = fill
        if form.wants("loss_weights"):
            columns["loss_weights"] = weights = np.zeros(shape, np.float32)
            found.copy_weights(weights[:num_real], first)
        bounds = NO_BOUNDS
        if form.wants_sequences:
            lengths, num_sequences = self._sequences(found, group)
            bounds = sequence_bounds(lengths, num_sequences, form)
            if form.wants("document_ids"):
                columns["document_ids"] = sequence_ids(lengths, num_sequences)
        shape = (1, group.num_rows * self._block_len) if form.flatten else (group.num_rows, self._block_len)
        columns = {name: column.reshape(group.number, *shape) for name, column in columns.items()}
        return HostBatches(columns=columns, bounds=bounds)

    def num_slots(self, lengths: Int64, num_rows: int) -> int:
        del lengths  # a block is a block
        return num_rows * self._block_len

    def _sequences(self, found: FoundBlocks, group: Group) -> tuple[Int32, list[int]]:
        """Slots of every sequence, and how many each micro-batch has."""
        num_real = len(group.lengths)
        lengths = found.run_lengths(group.first, group.first + num_real)
        lengths += [np.full(1, self._block_len, np.int32)] * (group.number * group.num_rows - num_real)
        ends = np.cumsum([len(of_row) for of_row in lengths])[group.num_rows - 1 :: group.num_rows]
        return np.concatenate(lengths), np.diff(ends, prepend=0).tolist()


class DocumentLayout:
    """Documents, side by side and padded to one length, or one after another in one row, each a sequence.

    A padding row is one pad token, where rows are padded followed by padding. Positions count from each document's
    first token, so that padding on the left does not move them.

    Args:
        padded: None lays them one after another.
        pad_id: id of padding.
        form: what is asked for.

    """

    def __init__(self, padded: Padded | None, *, pad_id: int, form: BatchFormat) -> None:
        self.pads_rows = padded is not None
        self._padded = padded
        self._pad_id = pad_id
        self._form = form

    def num_together(self, num_rows: int) -> int:
        del num_rows  # one micro-batch is as wide as its documents, the next one is not
        return 1

    def micro_batches(self, found: FoundDocuments, group: Group, placement: Placement) -> HostBatches:
        lengths, num_rows, form = group.lengths, group.num_rows, self._form
        sizes = np.ones(num_rows, np.int64)  # of a padding row
        sizes[: len(lengths)] = lengths
        if self._padded is None:
            shape = (1, int(sizes.sum()))
            starts = np.cumsum(sizes) - sizes
        else:
            width = self._width(lengths)
            shape = (num_rows, width)
            shift = width - sizes if self._padded.side == "left" else np.zeros(num_rows, np.int64)
            starts = np.arange(num_rows, dtype=np.int64) * width + shift
        places, counts = starts[: len(lengths)].tolist(), lengths.tolist()
        columns: Columns = {}
        for name, fill in (("input_ids", self._pad_id), ("labels", MASKED)):
            if form.wants(name):
                columns[name] = column = placement.room(name, shape)
                column[:] = fill
                found.copy(name, column.reshape(-1), places, counts, group.first)
        if form.wants("loss_weights"):
            columns["loss_weights"] = weights = np.zeros(shape, np.float32)
            found.copy("loss_weights", weights.reshape(-1), places, counts, group.first)
        bounds = NO_BOUNDS
        if self._padded is None:
            if form.wants("position_ids"):
                columns["position_ids"] = placement.room("position_ids", shape)
                columns["position_ids"][0] = positions(sizes)
            if form.wants_sequences:
                bounds = sequence_bounds(sizes.astype(np.int32), [num_rows], form)
        else:
            place = np.arange(shape[1]) - shift[:, None]  # from each row's first token
            real = (place >= 0) & (place < sizes[:, None])
            for name, values in (("attention_mask", real), ("position_ids", np.where(real, place, 0))):
                if form.wants(name):
                    columns[name] = placement.room(name, shape)
                    columns[name][:] = values
        return HostBatches(columns={name: column[None] for name, column in columns.items()}, bounds=bounds)

    def num_slots(self, lengths: Int64, num_rows: int) -> int:
        if self._padded is None:
            return int(lengths.sum()) + num_rows - len(lengths)
        return num_rows * self._width(lengths)

    def _width(self, lengths: Int64) -> int:
        assert self._padded is not None
        return self._padded.rounded(int(lengths.max()) if len(lengths) else 1)
