"""Packing a split's documents and gathering its block shards.

The plan is made once, from lengths alone. Each block shard is then a task of its own: it maps the document shards and
copies the pieces it needs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer.batches import Int64, PackPlan
from packer.pack import DocumentColumns, gather, plan
from packer.recipe import Pack
from packer.store.blocks import BlockShardWriter
from packer.store.document_shards import DocumentShards
from packer.store.manifest import Shard

_BATCH_TOKENS = 2**20
"""Tokens of one record batch of a block shard; a constant of the format, since it decides bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTask:
    """One block shard to be gathered."""

    split: str
    index: int
    first_row: int
    """Number of its first block in the split."""

    plan: PackPlan
    """Only this shard's blocks; `block_of` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSplit:
    """A split's packing: its tasks, and the documents that are in no block."""

    tasks: tuple[BlockTask, ...]
    left_out: dict[str, Int64]
    """Code → numbers of the documents."""

    num_blocks: int
    num_cut: int
    """Tokens of the documents that are in no block, and below those of them that are trained."""

    num_cut_trained: int
    num_packed: int
    """Documents that are in a block."""


def pack_split(split: str, documents: DocumentShards, pack: Pack, shard_bytes: int) -> PackedSplit:
    """Plan the blocks of a split and divide them into shards."""
    lengths = documents.lengths()
    too_short = np.flatnonzero(lengths < pack.min_length)
    overlong = np.flatnonzero(lengths > pack.block_len)
    # The planner leaves out what is empty: a document that is too short is empty to it.
    packed = plan(
        np.where(lengths < pack.min_length, 0, lengths),
        pack.block_len,
        strategy=pack.strategy,
        seed=pack.seed,
        group_documents=pack.group_documents,
        max_documents=pack.max_documents,
    )
    out = np.concatenate([too_short, overlong])
    row_bytes = pack.block_len * (16 if documents.weighted else 12)
    per_shard = max(1, shard_bytes // row_bytes)
    tasks = tuple(
        BlockTask(split=split, index=index, first_row=first, plan=_slice(packed, first, first + per_shard))
        for index, first in enumerate(range(0, packed.num_blocks, per_shard))
    )
    return PackedSplit(
        tasks=tasks,
        left_out={"overlong": overlong, "too_short": too_short},
        num_blocks=packed.num_blocks,
        num_cut=int(lengths[out].sum(dtype=np.int64)),
        num_cut_trained=sum(documents.read(number).num_trained for number in out.tolist()),
        num_packed=int(np.count_nonzero(packed.block_of >= 0)),
    )


def block_worker(folder: Path, shards: Sequence[Shard], block_len: int, pad_id: int) -> Callable[[BlockTask], Shard]:
    """The function that makes block shards from these document shards, of all splits."""
    opened: dict[str, tuple[DocumentShards, DocumentColumns]] = {}

    def columns_of(split: str) -> tuple[DocumentShards, DocumentColumns]:
        if split not in opened:
            documents = DocumentShards(folder, [shard for shard in shards if shard.split == split])
            arrays = documents.columns()
            opened[split] = (
                documents,
                DocumentColumns(
                    input_ids=arrays.input_ids,
                    labels=arrays.labels,
                    loss_weights=arrays.loss_weights,
                    chunk=arrays.chunk,
                    start=arrays.start,
                    length=arrays.length,
                    doc_id=arrays.doc_id,
                ),
            )
        return opened[split]

    def make(task: BlockTask) -> Shard:
        documents, columns = columns_of(task.split)
        documents.verify(np.unique(task.plan.document))
        batch_blocks = max(1, _BATCH_TOKENS // block_len)
        with BlockShardWriter(folder, block_len=block_len, weighted=documents.weighted) as writer:
            for first in range(0, task.plan.num_blocks, batch_blocks):
                last = min(first + batch_blocks, task.plan.num_blocks)
                writer.append(gather(task.plan, first, last, columns, block_len=block_len, pad_id=pad_id))
            return writer.finish(split=task.split, index=task.index).as_shard(first_row=task.first_row)

    return make


def _slice(packed: PackPlan, first: int, last: int) -> PackPlan:
    """Blocks [first, last) of a plan, as a plan of their own."""
    offsets = packed.block_offsets[first : last + 1]
    pieces = slice(int(offsets[0]), int(offsets[-1]))
    return PackPlan(
        document=packed.document[pieces],
        start=packed.start[pieces],
        length=packed.length[pieces],
        block_offsets=offsets - offsets[0],
        block_of=np.zeros(0, np.int64),
    )
