"""From a step's plan to its tensors: deals the step, reads this rank's rows, counts over everyone's."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.batching import Batching, TokenBudget, spread
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
        shares, num_tokens, num_slots = self._dealer.deal(plan)
        rows = np.concatenate([share.rows for share in shares]) if len(shares) > 1 else shares[0].rows
        trained = int(self._items.num_trained(plan.real_rows).sum(dtype=np.int64))
        num_items = trained if self._weight_sums is None else float(self._weight_sums.of(plan.real_rows).sum())
        step = Step(
            micro_batches=self._micro_batches(shares, rows),
            index=index,
            epoch=plan.epoch,
            block_ids=rows,
            num_items_in_batch=num_items,
            coverage=plan.coverage,
            num_tokens=num_tokens,
            num_slots=num_slots,
        )
        return step, trained

    def _micro_batches(self, shares: list["_Share"], rows: Int64) -> tuple[MicroBatch, ...]:
        """All rows of this rank are found in one go: what that costs besides their bytes is then paid once a step."""
        num_real = sum(len(share.lengths) for share in shares)
        found = self._items.locate(rows if num_real == len(rows) else rows[rows != PADDING_ROW])
        micro_batches, first = [], 0
        for share in shares:
            micro_batches.append(self._micro_batch(found, first, share))
            first += len(share.lengths)
        return tuple(micro_batches)

    def _micro_batch(self, found: Any, first: int, share: "_Share") -> MicroBatch:
        staging = self._placement.stage()
        host = self._layout.micro_batch(found, first, share.lengths, len(share.rows), staging)
        with self._placement.scope():
            placed = staging.place(host)
            return shift_labels(placed) if self._shifted else placed


class _Share(NamedTuple):
    """The rows of a micro-batch."""

    rows: Int64
    """Padding rows stand at the end."""

    lengths: Int64
    """Tokens of the others."""


class _Dealer(Protocol):
    def deal(self, plan: StepPlan) -> tuple[list[_Share], int, int]:
        """The micro-batches of this rank; tokens and positions of the whole step."""


class _RowDealer:
    """Whole rows, as many in each micro-batch."""

    def __init__(self, items: Items[Any], layout: Layout[Any], deal: Deal) -> None:
        self._items, self._layout, self._deal = items, layout, deal

    def deal(self, plan: StepPlan) -> tuple[list[_Share], int, int]:
        size, lengths = self._deal.micro_batch_size, self._items.lengths(plan.real_rows).astype(np.int64)
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
        return shares, int(lengths.sum()), num_slots


class _TokenDealer:
    """As many rows in a micro-batch as its budget of tokens holds."""

    def __init__(self, items: Items[Any], layout: Layout[Any], deal: Deal, batching: TokenBudget) -> None:
        self._items, self._layout, self._deal, self._padded = items, layout, deal, batching.padded

    def deal(self, plan: StepPlan) -> tuple[list[_Share], int, int]:
        lengths = self._items.lengths(plan.rows).astype(np.int64)
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
        return shares, int(lengths.sum()), num_slots


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
