"""From plans to tensors: deals steps, reads this rank's rows of them, counts over everyone's."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.layout import offsets_of
from packer.load.batching import Batching, Group, TokenBudget, spread
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


class Outlook(NamedTuple):
    """What some steps come to."""

    steps: int
    micro_batches: int
    """Of one rank; all have as many."""

    num_items: int | float
    """What the steps have as `num_items_in_batch`, summed."""


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
            _TokenDealer(layout, deal, batching) if isinstance(batching, TokenBudget) else _RowDealer(layout, deal)
        )

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
        trained = np.add.reduceat(self._items.num_trained(real), firsts[:-1], dtype=np.int64).tolist()
        lengths = self._items.lengths(real).astype(np.int64)
        sums = [self._sum(plan, count) for plan, count in zip(plans, trained, strict=True)]
        dealt = [
            self._dealer.deal(plan, lengths[start:end])
            for plan, (start, end) in zip(plans, pairwise(firsts.tolist()), strict=True)
        ]
        micro_batches = self._micro_batches([share for deal in dealt for share in deal.shares])
        steps = [
            Step(
                micro_batches=tuple(islice(micro_batches, len(deal.shares))),
                index=index + number,
                epoch=plan.epoch,
                block_ids=_joined([share.rows for share in deal.shares]),
                num_items_in_batch=num_items,
                coverage=plan.coverage,
                num_tokens=deal.num_tokens,
                num_slots=deal.num_slots,
            )
            for number, (plan, deal, num_items) in enumerate(zip(plans, dealt, sums, strict=True))
        ]
        return list(zip(steps, trained, strict=True))

    def outlook(self, plans: Iterable[StepPlan]) -> Outlook:
        """What the steps of some plans come to; no row is read for it, unless weights are summed."""
        steps, micro_batches, num_items = 0, 0, 0.0 if self._weight_sums else 0
        for steps, plan in enumerate(plans, start=1):  # noqa: B007 - their number
            micro_batches += len(self._dealer.deal(plan, self._items.lengths(plan.real_rows).astype(np.int64)).shares)
            num_items += self._sum(plan, int(self._items.num_trained(plan.real_rows).sum(dtype=np.int64)))
        return Outlook(steps, micro_batches, num_items)

    def _sum(self, plan: StepPlan, trained: int) -> int | float:
        """What the losses of a whole step are divided by."""
        return trained if self._weight_sums is None else float(self._weight_sums.of(plan.real_rows).sum())

    def _micro_batches(self, shares: list["_Share"]) -> Iterator[MicroBatch]:
        """All rows of this rank are found in one go: what that costs besides their bytes is then paid once."""
        rows = _joined([share.rows for share in shares])
        found = self._items.locate(rows[rows != PADDING_ROW])
        micro_batches: list[MicroBatch] = []
        first, number = 0, len(shares[0].rows)
        together = self._layout.num_together(number)
        for some in (shares[start : start + together] for start in range(0, len(shares), together)):
            lengths = _joined([share.lengths for share in some])
            micro_batches += self._placed(found, first, lengths, some)
            first += len(lengths)
        return iter(micro_batches)

    def _placed(self, found: Any, first: int, lengths: Int64, shares: list["_Share"]) -> list[MicroBatch]:
        staging = self._placement.stage()
        group = Group(first, lengths, len(shares[0].rows), len(shares))
        host = self._layout.micro_batches(found, group, staging)
        with self._placement.scope():
            placed = staging.place(host)
            return [shift_labels(micro_batch) for micro_batch in placed] if self._shifted else placed


def _joined(parts: list[Int64]) -> Int64:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class _Share(NamedTuple):
    """The rows of a micro-batch."""

    rows: Int64
    """Padding rows stand at the end."""

    lengths: Int64
    """Tokens of the others."""


class _Dealt(NamedTuple):
    """A step as a rank has it."""

    shares: list[_Share]
    num_tokens: int
    """Of the whole step."""

    num_slots: int
    """Of the whole step: its positions, padding included."""


class _Dealer(Protocol):
    def deal(self, plan: StepPlan, lengths: Int64) -> _Dealt:
        """The micro-batches of this rank, given the tokens of the plan's real rows."""


class _RowDealer:
    """Whole rows, as many in each micro-batch."""

    def __init__(self, layout: Layout[Any], deal: Deal) -> None:
        self._layout, self._deal = layout, deal

    def deal(self, plan: StepPlan, lengths: Int64) -> _Dealt:
        size = self._deal.micro_batch_size
        share = len(plan.rows) // self._deal.world_size
        first = self._deal.rank * share
        shares = [
            _Share(plan.rows[start : start + size], lengths[start : start + size])
            for start in range(first, first + share, size)
        ]
        # A micro-batch of padded rows is as wide as its longest one; of the others, any number are as one.
        cut = size if self._layout.pads_rows else len(plan.rows)
        num_slots = sum(
            self._layout.num_slots(lengths[start : start + cut], cut) for start in range(0, len(plan.rows), cut)
        )
        return _Dealt(shares, int(lengths.sum()), num_slots)


class _TokenDealer:
    """As many rows in a micro-batch as its budget of tokens holds."""

    def __init__(self, layout: Layout[Any], deal: Deal, batching: TokenBudget) -> None:
        self._layout, self._deal, self._padded = layout, deal, batching.padded

    def deal(self, plan: StepPlan, lengths: Int64) -> _Dealt:
        groups = spread(
            lengths, budget=self._deal.micro_batch_size, multiple=self._deal.world_size, padded=self._padded
        )
        sizes = [lengths[group[group != PADDING_ROW]] for group in groups]
        num_slots = sum(self._layout.num_slots(known, len(group)) for known, group in zip(sizes, groups, strict=True))
        own = slice(self._deal.rank, None, self._deal.world_size)
        shares = [
            _Share(np.where(group == PADDING_ROW, PADDING_ROW, plan.rows[group]), known)
            for group, known in zip(groups[own], sizes[own], strict=True)
        ]
        return _Dealt(shares, int(lengths.sum()), num_slots)


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
