"""Blocks as micro-batches: flattened into one row each, or side by side."""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import Int32, Int64
from packer.layout import MASKED
from packer.load.batching import Group
from packer.load.device import HostBatches, Staging
from packer.load.form import Form
from packer.load.runs import NO_BOUNDS, OF_RUNS, bounds_of_runs, run_numbers
from packer.store.cache import FoundBlocks

_TOGETHER = 1 << 18
"""Tokens that are laid out in one go, 2 MB of a column of int64: what a call costs is then paid once."""


class PackedLayout:
    """Blocks. Flattened they are one row, the form of variable-length attention with batch size 1.

    Every padding run is a sequence of its own, so padding sees only padding. A padding row is one run of pad ids.
    """

    pads_rows = False

    def __init__(self, *, block_len: int, pad_id: int, form: Form) -> None:
        self._block_len = block_len
        self._form = form
        self._fill = {"input_ids": pad_id, "labels": MASKED, "position_ids": np.arange(block_len)}

    def num_together(self, num_rows: int) -> int:
        return max(_TOGETHER // (num_rows * self._block_len), 1)

    def micro_batches(self, found: FoundBlocks, group: Group, staging: Staging) -> HostBatches:
        form, first, num_real = self._form, group.first, len(group.lengths)
        shape = (group.number * group.num_rows, self._block_len)
        columns: dict[str, npt.NDArray[Any]] = {}
        for name, fill in self._fill.items():
            if form.wants(name):
                columns[name] = column = staging.room(name, shape)
                found.copy(name, column[:num_real], first)
                column[num_real:] = fill
        if form.wants("loss_weights"):
            columns["loss_weights"] = weights = np.zeros(shape, np.float32)
            found.copy_weights(weights[:num_real], first)
        bounds = NO_BOUNDS
        if not form.columns.isdisjoint(OF_RUNS):
            runs, num_runs = self._runs(found, group)
            bounds = bounds_of_runs(runs, num_runs, form)
            if form.wants("document_ids"):
                columns["document_ids"] = run_numbers(runs, num_runs)
        shape = (1, group.num_rows * self._block_len) if form.flatten else (group.num_rows, self._block_len)
        columns = {name: column.reshape(group.number, *shape) for name, column in columns.items()}
        return HostBatches(columns=columns, bounds=bounds)

    def num_slots(self, lengths: Int64, num_rows: int) -> int:
        del lengths  # a block is a block
        return num_rows * self._block_len

    def _runs(self, found: FoundBlocks, group: Group) -> tuple[Int32, list[int]]:
        """Slots of every run, and how many runs each micro-batch has."""
        num_real = len(group.lengths)
        runs = found.run_lengths(group.first, group.first + num_real)
        runs += [np.full(1, self._block_len, np.int32)] * (group.number * group.num_rows - num_real)
        ends = np.cumsum([len(of_row) for of_row in runs])[group.num_rows - 1 :: group.num_rows]
        return np.concatenate(runs), np.diff(ends, prepend=0).tolist()
