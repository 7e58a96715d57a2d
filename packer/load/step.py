"""One optimiser step as a rank sees it: its micro-batches, and what it must know of the whole."""

from collections.abc import Iterator
from dataclasses import dataclass

from packer.batches import Int64
from packer.load.labels import MicroBatch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """Micro-batches: ``for micro_batch in step``, ``step[i]``, ``len(step)``."""

    micro_batches: tuple[MicroBatch, ...]
    index: int
    """Number of the step since the beginning of training, from 0."""

    epoch: int
    """Epoch the step begins in."""

    block_ids: Int64
    """int64[n]: the blocks of this rank, in the order of its micro-batches; -1 is a padding row. Where batches are made
    of documents, the documents. Of a mixture, numbered through its caches."""

    num_items_in_batch: int | float
    """Trained targets of the whole step, over all ranks and micro-batches; with ``weights="use"`` their summed weights.

    Divide summed losses by it. The mean of micro-batch means is another number: it weighs tokens by how few share
    their micro-batch."""

    coverage: float
    """Share of `epoch` taken after this step, 0 to 1."""

    num_tokens: int
    """Tokens of the whole step, over all ranks; padding is not counted."""

    num_slots: int
    """Positions of all micro-batches of all ranks, padding included: ``1 - num_tokens / num_slots`` is wasted."""

    def __len__(self) -> int:
        return len(self.micro_batches)

    def __getitem__(self, index: int) -> MicroBatch:
        return self.micro_batches[index]

    def __iter__(self) -> Iterator[MicroBatch]:
        return iter(self.micro_batches)
