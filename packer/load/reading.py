"""From plans to tensors: assigns the rows of steps to ranks, reads this rank's, counts over everyone's."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.layout import offsets_of
from packer.load.batch_format import BatchFormat
from packer.load.batching import Batching, Group, TokenBudget, spread
from packer.load.layouts import Layout
from packer.load.placement import Placement
from packer.load.rows import Rows
from packer.load.step import MicroBatch, Step, shift_labels
from packer.load.steps import PADDING_ROW, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Which part of a step a rank gets."""

    rank: int
    world_size: int
    micro_batch_size: int
    """Rows, or for a token budget tokens."""


class EpochSummary(NamedTuple):
    """What some steps hold."""

    steps: int
    micro_batches: int
    """Of one rank; all have as many."""

    num_items: int | float
    """What the steps have as `num_items_in_batch`, summed."""


class _MicroBatchRows(NamedTuple):
    """The rows of a micro-batch."""

    rows: Int64
    """Padding rows stand at the end."""

    lengths: Int64
    """Tokens of the others."""


class _RankStep(NamedTuple):
    """A step as a rank has it."""

    micro_batches: list[_MicroBatchRows]
    num_tokens: int
    """Of the whole step."""

    num_slots: int
    """Of the whole step: its positions, padding included."""


class StepReader:
    """Reads the rows a plan gives to one rank. Not for two threads at a time."""

    def __init__(
        self,
        rows: Rows,
        layout: Layout,
        *,
        batching: Batching,
        assignment: Assignment,
        form: BatchFormat,
        placement: Placement,
    ) -> None:
        self._rows = rows
        self._layout = layout
        self._batching = batching
        self._assignment = assignment
        self._placement = placement
        self._shifted = form.shifted
        self._sums_weights = form.weighted and rows.weighted  # else every target weighs 1

    def read(self, plans: Sequence[StepPlan], *, index: int) -> list[tuple[Step, int]]:
        """The steps of some plans: verified, placed, counted; and the trained targets of each whole step.

        Args:
            plans: consecutive steps, of which only the last may have padding rows.
            index: of the first.

        Raises:
            CheckError: a row of this rank is not what its digest says.

        """
        real = _joined([plan.real_rows for plan in plans])
        firsts = offsets_of([plan.num_rows for plan in plans])
        trained = np.add.reduceat(self._rows.num_trained(real), firsts[:-1], dtype=np.int64).tolist()
        lengths = self._rows.lengths(real).astype(np.int64)
        sums = [self._num_items(plan, count) for plan, count in zip(plans, trained, strict=True)]
        assigned = [
            self._assigned(plan, lengths[start:end])
            for plan, (start, end) in zip(plans, pairwise(firsts.tolist()), strict=True)
        ]
        micro_batches = self._micro_batches([part for step in assigned for part in step.micro_batches])
        steps = [
            Step(
                micro_batches=tuple(islice(micro_batches, len(step.micro_batches))),
                index=index + number,
                epoch=plan.epoch,
                block_ids=_joined([part.rows for part in step.micro_batches]),
                num_items_in_batch=num_items,
                coverage=plan.coverage,
                num_tokens=step.num_tokens,
                num_slots=step.num_slots,
            )
            for number, (plan, step, num_items) in enumerate(zip(plans, assigned, sums, strict=True))
        ]
        return list(zip(steps, trained, strict=True))

    def summary(self, plans: Iterable[StepPlan]) -> EpochSummary:
        """What the steps of some plans hold; no row is read for it, unless weights are summed."""
        steps, micro_batches, num_items = 0, 0, 0.0 if self._sums_weights else 0
        for steps, plan in enumerate(plans, start=1):  # noqa: B007 - their number
            lengths = self._rows.lengths(plan.real_rows).astype(np.int64)
            micro_batches += len(self._assigned(plan, lengths).micro_batches)
            num_items += self._num_items(plan, int(self._rows.num_trained(plan.real_rows).sum(dtype=np.int64)))
        return EpochSummary(steps, micro_batches, num_items)

    def _num_items(self, plan: StepPlan, trained: int) -> int | float:
        """What the losses of a whole step are divided by."""
        return float(self._rows.weight_sums(plan.real_rows).sum()) if self._sums_weights else trained

    def _assigned(self, plan: StepPlan, lengths: Int64) -> _RankStep:
        """The micro-batches of this rank, given the tokens of the plan's real rows."""
        if isinstance(self._batching, TokenBudget):
            return self._by_tokens(plan, lengths, self._batching)
        return self._by_rows(plan, lengths)

    def _by_rows(self, plan: StepPlan, lengths: Int64) -> _RankStep:
        """Whole rows, as many in each micro-batch."""
        size = self._assignment.micro_batch_size
        share = len(plan.rows) // self._assignment.world_size
        first = self._assignment.rank * share
        micro_batches = [
            _MicroBatchRows(plan.rows[start : start + size], lengths[start : start + size])
            for start in range(first, first + share, size)
        ]
        # A micro-batch of padded rows is as wide as its longest one; of the others, any number are as one.
        cut = size if self._layout.pads_rows else len(plan.rows)
        num_slots = sum(
            self._layout.num_slots(lengths[start : start + cut], cut) for start in range(0, len(plan.rows), cut)
        )
        return _RankStep(micro_batches, int(lengths.sum()), num_slots)

    def _by_tokens(self, plan: StepPlan, lengths: Int64, batching: TokenBudget) -> _RankStep:
        """As many rows in a micro-batch as its budget of tokens holds."""
        ranks = self._assignment.world_size
        budget = self._assignment.micro_batch_size
        groups = spread(lengths, budget=budget, multiple=ranks, padded=batching.padded)
        sizes = [lengths[group[group != PADDING_ROW]] for group in groups]
        num_slots = sum(self._layout.num_slots(known, len(group)) for known, group in zip(sizes, groups, strict=True))
        own = slice(self._assignment.rank, None, ranks)
        micro_batches = [
            _MicroBatchRows(np.where(group == PADDING_ROW, PADDING_ROW, plan.rows[group]), known)
            for group, known in zip(groups[own], sizes[own], strict=True)
        ]
        return _RankStep(micro_batches, int(lengths.sum()), num_slots)

    def _micro_batches(self, parts: list[_MicroBatchRows]) -> Iterator[MicroBatch]:
        """All rows of this rank are found in one go: what that costs besides their bytes is then paid once."""
        rows = _joined([part.rows for part in parts])
        found = self._rows.locate(rows[rows != PADDING_ROW])
        micro_batches: list[MicroBatch] = []
        first, number = 0, len(parts[0].rows)
        together = self._layout.num_together(number)
        for some in (parts[start : start + together] for start in range(0, len(parts), together)):
            lengths = _joined([part.lengths for part in some])
            micro_batches += self._placed(found, Group(first, lengths, len(some[0].rows), len(some)))
            first += len(lengths)
        return iter(micro_batches)

    def _placed(self, found: Any, group: Group) -> list[MicroBatch]:
        self._placement.begin()
        host = self._layout.micro_batches(found, group, self._placement)
        with self._placement.scope():
            placed = self._placement.place(host)
            return [shift_labels(micro_batch) for micro_batch in placed] if self._shifted else placed


def check_weights(*, weighted: bool, wanted: bool) -> None:
    """Refuse a cache with loss weights for a consumer that does not say it uses them.

    Raises:
        UsageError: training would silently weigh all turns alike.

    """
    if weighted and not wanted:
        raise UsageError(
            "this cache holds fractional loss weights, and they would be ignored",
            hint="pass weights='use' and multiply each target's loss by micro_batch['loss_weights']",
        )


def _joined(parts: list[Int64]) -> Int64:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
