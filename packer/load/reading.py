"""From plans to tensors: divides the rows of steps among ranks, reads this rank's, counts over everyone's."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_map_only

from packer.batches import Int64
from packer.layout import offsets_of
from packer.load.batching import TokenBudget, spread
from packer.load.layouts import MicroBatchRows, layout_of
from packer.load.options import Options
from packer.load.row_source import RowSource
from packer.load.sides import NO_SIDE, of_blocks, of_documents, of_reference
from packer.load.state import Counters, ReaderState
from packer.load.step import MicroBatch, Step, shift_labels
from packer.load.steps import PADDING_ROW, StepPlan

_MOST_STEPS = 16
"""Steps that are read together: what a step costs besides its bytes is then paid once for several of them."""

_MOST_TOKENS = 1 << 18
"""Of a rank, in steps that are read together; a column of int64 is then 2 MB."""


class EpochSummary(NamedTuple):
    """Totals over some steps."""

    steps: int
    micro_batches: int
    """Micro-batches of one rank; every rank has the same number."""

    num_items: int | float
    """What the steps have as `num_items_in_batch`, summed."""


class StepReader:
    """Reads the rows that plans give to one rank, for a GPU into page-locked memory. Not for two threads at a time."""

    def __init__(self, source: RowSource, options: Options) -> None:
        form, block_len = options.form, source.rows.block_len
        self._rows = source.rows
        self._batching = options.batching
        self._layout = layout_of(options.batching, block_len=block_len, ids=source.ids, form=form)
        self._rank, self._world_size, self._size = options.rank, options.world_size, options.micro_batch_size
        self._shifted, self._reference = form.shifted, options.reference
        self._sums_weights = form.weighted and source.rows.weighted  # else every target weighs 1
        self._pin = options.device.type == "cuda"
        self._most_rows = max(int(_MOST_TOKENS * self._world_size / max(source.rows.mean_length, 1)), 1)

    def steps(
        self, plans: Iterator[StepPlan], state: ReaderState, *, worker: tuple[int, int, int] = (0, 0, 1)
    ) -> Iterator[tuple[Step | None, ReaderState]]:
        """The steps of consecutive plans, and after each where a loader stands once it was returned.

        Args:
            plans: from the state on.
            state: of the loader.
            worker: (first, w, W): of the steps from index `first` on, every W-th from the w-th on is read. In place of
                the others, which are other workers', None is given.

        Raises:
            CheckError: a row of this rank is not what its digest says.

        """
        first, own, num_workers = worker
        for group in read_together(plans, most_rows=self._most_rows):
            index = state.counters.steps
            is_own = [(index + number - first) % num_workers == own for number in range(len(group))]
            for plan, planned, step in zip(group, *self._read(group, index, is_own), strict=True):
                state = _after(state, plan, planned)
                yield step, state

    def summary(self, plans: Iterable[StepPlan]) -> EpochSummary:
        """What the steps of some plans hold; no row is read for it, unless weights are summed."""
        steps, micro_batches, num_items = 0, 0, 0.0 if self._sums_weights else 0
        for steps, plan in enumerate(plans, start=1):  # noqa: B007 - their number
            micro_batches += len(self._of_rank(plan)[0])
            num_items += self._num_items(plan, int(self._rows.num_trained[plan.real_rows].sum(dtype=np.int64)))
        return EpochSummary(steps, micro_batches, num_items)

    def _read(
        self, plans: Sequence[StepPlan], index: int, is_own: Sequence[bool]
    ) -> tuple[list["_Counts"], list[Step | None]]:
        """What some plans hold over all ranks, and the steps of those that are own; only the last may be padded."""
        real = np.concatenate([plan.real_rows for plan in plans])
        firsts = offsets_of([plan.num_rows for plan in plans])[:-1]
        trained, tokens = (
            np.add.reduceat(counts[real], firsts, dtype=np.int64).tolist()
            for counts in (self._rows.num_trained, self._rows.lengths)
        )
        parts, slots = zip(*map(self._of_rank, plans), strict=True)  # rows of each micro-batch
        counts = [_Counts(*each) for each in zip(trained, tokens, slots, strict=True)]
        sums = [
            self._num_items(plan, count) if own else 0 for plan, count, own in zip(plans, trained, is_own, strict=True)
        ]
        read = [rows for of_step, own in zip(parts, is_own, strict=True) if own for rows in of_step]
        micro_batches = iter(self._micro_batches(read) if read else ())
        by_tokens = isinstance(self._batching, TokenBudget)
        steps = [
            Step(
                micro_batches=tuple(islice(micro_batches, len(of_rank))),
                index=index + number,
                epoch=plan.epoch,
                block_ids=np.concatenate(of_rank),
                num_items_in_batch=sums[number],
                coverage=plan.coverage,
                size=count.tokens if by_tokens else plan.num_rows,
                num_tokens=count.tokens,
                num_slots=count.slots,
                num_pairs=self._rows.num_pairs(plan.real_rows),
            )
            if own
            else None
            for number, (plan, of_rank, count, own) in enumerate(zip(plans, parts, counts, is_own, strict=True))
        ]
        return counts, steps

    def _num_items(self, plan: StepPlan, num_trained: int) -> int | float:
        """What the losses of a whole step are divided by."""
        return float(self._rows.weight_sums(plan.real_rows).sum()) if self._sums_weights else num_trained

    def _of_rank(self, plan: StepPlan) -> tuple[list[Int64], int]:
        """The rows of this rank's micro-batches, and the positions of the whole step, padding included."""
        return self._by_tokens(plan, self._batching) if isinstance(self._batching, TokenBudget) else self._by_rows(plan)

    def _by_rows(self, plan: StepPlan) -> tuple[list[Int64], int]:
        """Whole rows, as many in each micro-batch; a short step is filled up so that every rank has as many."""
        size = self._size
        rows = np.append(plan.rows, np.full(-len(plan.rows) % (size * self._world_size), PADDING_ROW, np.int64))
        share = len(rows) // self._world_size
        first = self._rank * share
        micro_batches = [rows[start : start + size] for start in range(first, first + share, size)]
        # A micro-batch of padded rows is as wide as its longest one; of the others, any number are as one.
        cut = size if self._layout.pads_rows else len(rows)
        return micro_batches, sum(self._num_slots(rows[start : start + cut]) for start in range(0, len(rows), cut))

    def _by_tokens(self, plan: StepPlan, batching: TokenBudget) -> tuple[list[Int64], int]:
        """As many rows in a micro-batch as its budget holds; padded, a pair takes two rows of its longer side."""
        sides = self._rows.lengths_of_sides[plan.real_rows].astype(np.int64)
        lengths, budget = sides.sum(1), self._size
        if batching.padded is not None:
            lengths, budget = sides.max(1), self._size // self._rows.num_sides
        groups = spread(lengths, budget=budget, multiple=self._world_size, padded=batching.padded)
        groups = [np.where(group == PADDING_ROW, PADDING_ROW, plan.rows[group]) for group in groups]
        return groups[self._rank :: self._world_size], sum(map(self._num_slots, groups))

    def _num_slots(self, rows: Int64) -> int:
        """Positions of a micro-batch of some rows."""
        return self._layout.num_slots(self._lengths(rows), len(rows) * self._rows.num_sides)

    def _micro_batches(self, rows: list[Int64]) -> list[MicroBatch]:
        """All rows of this rank are found in one go: what that costs besides their bytes is then paid once."""
        parts = [MicroBatchRows(self._rows.documents_of(each), self._lengths(each)) for each in rows]
        every = np.concatenate([part.rows for part in parts])
        found = self._rows.locate(every[every != PADDING_ROW])
        micro_batches = self._layout.micro_batches(found, parts)
        if self._rows.content != "examples":
            more = self._of_sides(micro_batches, parts, found)
            micro_batches = [mb | columns for mb, columns in zip(micro_batches, more, strict=True)]
        if self._shifted:
            micro_batches = [shift_labels(micro_batch) for micro_batch in micro_batches]
        # From page-locked memory they are copied to a device while the host goes on.
        return tree_map_only(Tensor, Tensor.pin_memory, micro_batches) if self._pin else micro_batches

    def _lengths(self, rows: Int64) -> Int64:
        """Tokens of what is read of some rows, in its order, without padding rows; blocks are of one length."""
        if self._rows.block_len:
            return np.zeros(0, np.int64)
        lengths: Int64 = self._rows.lengths_of_sides[rows[rows != PADDING_ROW]].astype(np.int64).T.reshape(-1)
        return lengths

    def _of_sides(self, micro_batches: list[MicroBatch], parts: list[MicroBatchRows], found: Any) -> list[MicroBatch]:
        """The columns of preference data."""
        columns = self._of_answers(micro_batches, parts, found)
        if self._reference is not None:
            return [each | of_reference(self._reference, each["pair_ids"]) for each in columns]
        return columns

    def _of_answers(self, micro_batches: list[MicroBatch], parts: list[MicroBatchRows], found: Any) -> list[MicroBatch]:
        if self._rows.block_len:
            return of_blocks(micro_batches, parts, found)
        sides, margins, columns = self._rows.sides, self._rows.margins, []
        paired = self._rows.content == "pairs"
        for micro_batch, part in zip(micro_batches, parts, strict=True):
            own = np.where(part.is_real, sides[part.rows], NO_SIDE)
            of_rows = None if margins is None else np.where(part.is_real, margins[part.rows], np.float32(np.nan))
            columns.append(of_documents(micro_batch, part.rows, own, of_rows, paired=paired))
        return columns


def read_together(plans: Iterator[StepPlan], *, most_rows: int) -> Iterator[list[StepPlan]]:
    """Group steps to be read together: first one, so that training need not wait, then twice as many each time.

    Steps of 16,000 tokens are read two to three times as fast as one by one. A step with padding rows is the last of
    its group; so is the last of an epoch, which may get some, and one that brings it to `most_rows`.
    """
    group: list[StepPlan] = []
    num_rows, most_steps = 0, 1
    for plan in plans:
        group.append(plan)
        num_rows += len(plan.rows)
        full = len(group) == most_steps or num_rows + len(plan.rows) > most_rows
        if full or plan.num_rows < len(plan.rows) or plan.coverage == 1:
            yield group
            group, num_rows, most_steps = [], 0, min(2 * most_steps, _MOST_STEPS)
    if group:
        yield group


class _Counts(NamedTuple):
    """Of a step, over all ranks."""

    trained: int
    tokens: int
    slots: int


def _after(state: ReaderState, plan: StepPlan, step: _Counts) -> ReaderState:
    before = state.counters
    return msgspec.structs.replace(
        state,
        epoch=plan.next_epoch,
        cursor=plan.next_cursor,
        batch_size=plan.size,
        taken=plan.taken,
        counters=Counters(
            steps=before.steps + 1,
            rows=before.rows + plan.num_rows,
            trained=before.trained + step.trained,
            tokens=before.tokens + step.tokens,
            slots=before.slots + step.slots,
        ),
    )
