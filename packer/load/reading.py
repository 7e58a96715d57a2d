"""From a step's plan to its tensors: reads this rank's blocks, counts over everyone's."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch, Int64
from packer.errors import UsageError
from packer.load.counts import TrainedCounts
from packer.load.device import Placement
from packer.load.labels import MicroBatch, shift_labels
from packer.load.order import PADDING_ROW, StepPlan, rank_share
from packer.load.rows import flattened, rows_between, stacked, weights_of, with_padding_rows
from packer.load.step import Step
from packer.store.cache import BlockShards, Cache
from packer.store.manifest import Manifest

Float64: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a consumer wants a micro-batch to be."""

    flatten: bool
    shifted: bool
    weighted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """How a step is dealt."""

    rank: int
    world_size: int
    micro_batch_size: int


class StepReader:
    """Reads the blocks a plan gives to one rank. Not for two threads at a time."""

    def __init__(self, cache: Cache, split: str, *, deal: Deal, form: Form, placement: Placement) -> None:
        self._blocks = cache.blocks(split)
        self._pad_id = _pad_id(cache.manifest)
        self._deal = deal
        self._form = form
        self._placement = placement
        self._counts = TrainedCounts(self._blocks)
        self._sums_weights = form.weighted and self._blocks.weighted  # else every target weighs 1
        self._weight_sums: Float64 = np.full(len(self._blocks), np.nan)  # of each block; NaN where not summed yet

    def read(self, plan: StepPlan, *, index: int) -> Step:
        """The step of a plan: verified, placed, counted.

        Raises:
            CheckError: a block of this rank is not what its digest says.

        """
        block_ids = rank_share(plan.block_ids, rank=self._deal.rank, world_size=self._deal.world_size)
        share = self._share(block_ids)
        size = self._deal.micro_batch_size
        micro_batches = tuple(
            self._micro_batch(rows_between(share, start, start + size)) for start in range(0, len(block_ids), size)
        )
        return Step(
            micro_batches=micro_batches,
            index=index,
            epoch=plan.epoch,
            block_ids=block_ids,
            num_items_in_batch=self._num_items(_real(plan.block_ids)),
            coverage=plan.coverage,
        )

    def trained(self, plan: StepPlan) -> int:
        """Trained targets of the whole step, over all ranks."""
        return int(self._counts.of(_real(plan.block_ids)).sum(dtype=np.int64))

    def _share(self, block_ids: Int64) -> BlockBatch:
        """All blocks of this rank in one read: what a read costs besides its bytes is then paid once a step."""
        real = _real(block_ids)
        blocks = self._blocks.read(real) if len(real) else None
        if blocks is not None and self._sums_weights:
            self._weight_sums[real] = _sums_of_weights(blocks)
        return with_padding_rows(blocks, num_rows=len(block_ids), block_len=self._blocks.block_len, pad_id=self._pad_id)

    def _micro_batch(self, blocks: BlockBatch) -> MicroBatch:
        lay_out = flattened if self._form.flatten else stacked
        host = lay_out(blocks, weighted=self._form.weighted)
        with self._placement.scope():
            placed = self._placement.place(host)
            return shift_labels(placed) if self._form.shifted else placed

    def _num_items(self, block_ids: Int64) -> int | float:
        if not self._sums_weights:
            return int(self._counts.of(block_ids).sum(dtype=np.int64))
        return float(self._weights(block_ids).sum())

    def _weights(self, block_ids: Int64) -> Float64:
        """Summed weights of each block; other ranks' blocks are read for it, each once.  # float64[n]"""
        unknown = np.unique(block_ids[np.isnan(self._weight_sums[block_ids])])
        if len(unknown):
            self._weight_sums[unknown] = _sums_of_weights(self._blocks.read(unknown))
        sums: Float64 = self._weight_sums[block_ids]
        return sums


def check_weights(blocks: BlockShards, *, weighted: bool) -> None:
    """Refuse a cache with loss weights for a consumer that does not say it uses them.

    Raises:
        UsageError: training would silently weigh all turns alike.

    """
    if blocks.weighted and not weighted:
        raise UsageError(
            "this cache holds fractional loss weights, and they would be ignored",
            hint="pass weights='use' and multiply each target's loss by micro_batch['loss_weights']",
        )


def _sums_of_weights(blocks: BlockBatch) -> Float64:
    sums: Float64 = weights_of(blocks).sum(axis=1, dtype=np.float64)
    return sums


def _pad_id(manifest: Manifest) -> int:
    """The id blocks are padded with: the recipe's, else the tokenizer's."""
    named = manifest.recipe.get("pack", {}).get("pad_id")
    return manifest.model.pad_id if named is None else int(named)


def _real(block_ids: Int64) -> Int64:
    real: Int64 = block_ids[block_ids != PADDING_ROW]
    return real
