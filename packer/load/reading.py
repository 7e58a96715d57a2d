"""From a step's plan to its tensors: deals the step, reads this rank's rows, counts over everyone's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.batching import Batching, TokenBudget, rows_of_rank, spread
from packer.load.device import Placement
from packer.load.form import Form
from packer.load.items import Items, WeightSums
from packer.load.labels import MicroBatch, shift_labels
from packer.load.layouts import Layout
from packer.load.step import Step
from packer.load.steps import PADDING_ROW, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """How a step is dealt."""

    rank: int
    world_size: int
    micro_batch_size: int
    """Rows, or for a token budget tokens."""


class StepReader:
    """Reads the rows a plan gives to one rank. Not for two threads at a time."""

    def __init__(
        self,
        items: Items[Any],
        layout: Layout[Any],
        *,
        batching: Batching,
        deal: Deal,
        form: Form,
        placement: Placement,
        weight_sums: WeightSums | None,
    ) -> None:
        self._items = items
        self._layout = layout
        self._deal = deal
        self._placement = placement
        self._shifted = form.shifted
        self._weight_sums = weight_sums
        self._dealer: _Dealer = (
            _TokenDealer(items, layout, deal, batching)
            if isinstance(batching, TokenBudget)
            else _RowDealer(items, layout, deal)
        )

    def read(self, plan: StepPlan, *, index: int) -> tuple[Step, int]:
        """The step of a plan: verified, placed, counted; and the trained targets of the whole step.

        Raises:
            CheckError: a row of this rank is not what its digest says.

        """
        groups, num_tokens, num_slots = self._dealer.deal(plan)
        rows = np.concatenate(groups) if len(groups) > 1 else groups[0]
        trained = int(self._items.num_trained(plan.real_rows).sum(dtype=np.int64))
        step = Step(
            micro_batches=self._micro_batches(groups, rows),
            index=index,
            epoch=plan.epoch,
            block_ids=rows,
            num_items_in_batch=trained
            if self._weight_sums is None
            else float(self._weight_sums.of(plan.real_rows).sum()),
            coverage=plan.coverage,
            num_tokens=num_tokens,
            num_slots=num_slots,
        )
        return step, trained

    def _micro_batches(self, groups: list[Int64], rows: Int64) -> tuple[MicroBatch, ...]:
        """All rows of this rank are found in one go: what that costs besides their bytes is then paid once a step."""
        real = rows[rows != PADDING_ROW]
        found = self._items.locate(real)
        lengths = self._items.lengths(real).astype(np.int64)
        micro_batches, first = [], 0
        for group in groups:
            num_real = int(np.count_nonzero(group != PADDING_ROW))
            micro_batches.append(self._micro_batch(found, first, lengths[first : first + num_real], len(group)))
            first += num_real
        return tuple(micro_batches)

    def _micro_batch(self, found: Any, first: int, lengths: Int64, num_rows: int) -> MicroBatch:
        staging = self._placement.stage()
        host = self._layout.micro_batch(found, first, lengths, num_rows, staging)
        with self._placement.scope():
            placed = staging.place(host)
            return shift_labels(placed) if self._shifted else placed


class _Dealer(Protocol):
    def deal(self, plan: StepPlan) -> tuple[list[Int64], int, int]:
        """The micro-batches of this rank, as row numbers; tokens and positions of the whole step."""


class _RowDealer:
    """Whole rows, as many in each micro-batch."""

    def __init__(self, items: Items[Any], layout: Layout[Any], deal: Deal) -> None:
        self._items, self._layout, self._deal = items, layout, deal

    def deal(self, plan: StepPlan) -> tuple[list[Int64], int, int]:
        size, lengths = self._deal.micro_batch_size, self._items.lengths(plan.real_rows).astype(np.int64)
        groups = rows_of_rank(plan.rows, rank=self._deal.rank, world_size=self._deal.world_size, micro_batch_size=size)
        num_slots = sum(
            self._layout.num_slots(lengths[first : first + size], size) for first in range(0, len(plan.rows), size)
        )
        return groups, int(lengths.sum()), num_slots


class _TokenDealer:
    """As many rows in a micro-batch as its budget of tokens holds."""

    def __init__(self, items: Items[Any], layout: Layout[Any], deal: Deal, batching: TokenBudget) -> None:
        self._items, self._layout, self._deal, self._padded = items, layout, deal, batching.padded

    def deal(self, plan: StepPlan) -> tuple[list[Int64], int, int]:
        lengths = self._items.lengths(plan.rows).astype(np.int64)
        groups = spread(
            lengths, budget=self._deal.micro_batch_size, multiple=self._deal.world_size, padded=self._padded
        )
        real = [group[group != PADDING_ROW] for group in groups]
        num_slots = sum(
            self._layout.num_slots(lengths[places], len(group)) for places, group in zip(real, groups, strict=True)
        )
        own = groups[self._deal.rank :: self._deal.world_size]
        rows = [np.where(group == PADDING_ROW, PADDING_ROW, plan.rows[group]) for group in own]
        return rows, int(lengths.sum()), num_slots


def check_weights(items: Items[Any], *, weighted: bool) -> None:
    """Refuse a cache with loss weights for a consumer that does not say it uses them.

    Raises:
        UsageError: training would silently weigh all turns alike.

    """
    if items.weighted and not weighted:
        raise UsageError(
            "this cache holds fractional loss weights, and they would be ignored",
            hint="pass weights='use' and multiply each target's loss by micro_batch['loss_weights']",
        )


def check_longest(items: Items[Any], *, longest: int, what: Callable[[int], str]) -> None:
    """Refuse rows that no micro-batch can hold.

    Args:
        items: documents.
        longest: tokens a micro-batch can hold.
        what: says so, given the longest document's tokens.

    Raises:
        UsageError: names how many there are and how long the longest is.

    """
    lengths = items.lengths(np.arange(len(items), dtype=np.int64))
    too_long = int(np.count_nonzero(lengths > longest))
    if too_long:
        raise UsageError(
            f"{too_long} of {len(lengths)} documents have more than {longest} tokens, the longest {lengths.max()}: "
            f"{what(int(lengths.max()))}",
            hint="make the micro-batch larger, or set cutoff_len, which trains their beginning alone",
        )
