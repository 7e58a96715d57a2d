"""Pack a split's documents, and gather its block shards.

Documents are packed group by group (`pack.group_documents`), from their lengths alone, and no block shard spans two
groups. So no process needs more of a split than one group in memory. Each block shard is a task, which maps the
document shards it needs and copies their pieces.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch, DocumentColumns, Int64, PackPlan
from packer.layout import distinct, offsets_of
from packer.pack.pack_plan import arrange
from packer.pack.pieces import REASONS, CountTrained, DropCount, DroppedTokens, gather, trained_counter
from packer.recipe.groups import Pack
from packer.store.entries import Cut
from packer.store.manifest import Shard
from packer.store.shards import DocumentShards
from packer.store.writing import write_blocks

_BATCH_TOKENS = 2**20
"""Tokens in one record batch of a block shard. Part of the format: changing it changes the bytes of shards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTask:
    """The blocks of one shard."""

    split: str
    documents: DocumentShards
    """The split's document shards from the first to the last one that these blocks use."""

    weighted: bool
    """Whether some document of the split has fractional loss weights."""

    index: int
    """Of the block shard within the split."""

    first_row: int
    """Index of the first block within the split."""

    plan: PackPlan
    """With document indices relative to `documents`."""

    def __str__(self) -> str:
        return f"block shard {self.index} of split '{self.split}'"


class DroppedRanges(NamedTuple):
    """Ranges of tokens that are in no block, in the order of their documents. Q ranges."""

    source: Int64  # [Q] index of the manifest's input that the document comes from
    row: Int64  # [Q] row of the document within that input
    doc_id: Int64  # [Q]
    doc_length: Int64  # [Q] tokens of the document
    start: Int64  # [Q] first token of the range within its document
    length: Int64  # [Q]
    reason: npt.NDArray[np.uint8]  # [Q] index into REASONS


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedGroup:
    """The result of packing a group."""

    split: str
    left_out: DroppedRanges
    losses: dict[str, DropCount]
    num_blocks: int
    num_packed: int
    """Documents with at least a part in a block."""

    num_padding: int
    """Slots that hold no token."""

    num_piece_start: int
    """Trained tokens that are kept in a block but not trained there because they are the first of a piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBlocks:
    """The block shards of a cache, and the groups that they were packed from, split by split."""

    shards: Sequence[Shard]
    groups: Sequence[PackedGroup]


def cuts_of(groups: Sequence[PackedGroup]) -> dict[str, Cut]:
    """Sum the losses of all groups by code; codes that lost nothing are omitted."""
    cuts = {}
    for code in sorted(REASONS) if groups else ():
        documents, parts, tokens, trained = map(sum, zip(*(group.losses[code] for group in groups), strict=True))
        if parts:
            cuts[code] = Cut(documents=documents, parts=parts, tokens=tokens, trained=trained)
    return cuts


def tokens_per_shard(shard_bytes: int, *, weighted: bool = False) -> int:
    """Return how many slots a block shard has: id, label and position of four bytes each, and the weight."""
    return max(1, shard_bytes // (16 if weighted else 12))


def pack_split(
    split: str, documents: DocumentShards, pack: Pack, *, shard_bytes: int
) -> Iterator[tuple[PackedGroup, Iterator[BlockTask]]]:
    """Plan the blocks of a split group by group; nothing of a group is kept in memory once the next one is planned.

    Yields the result of each group, and a task for each of its shards.
    """
    if not len(documents):
        return
    weighted = documents.weighted
    blocks_per_shard = max(1, tokens_per_shard(shard_bytes, weighted=weighted) // pack.block_len)
    index = first_row = 0
    bounds = [*range(0, len(documents), pack.group_documents), len(documents)]
    for number, (first, last) in enumerate(pairwise(bounds)):
        own, before = documents.of_shards(documents.shard_of(first), documents.shard_of(last - 1))
        packed, plan = _packed(split, own, (first - before, last - before), pack, group=number)
        whole = BlockTask(split=split, documents=own, weighted=weighted, index=index, first_row=first_row, plan=plan)
        yield packed, _by_shard(whole, blocks_per_shard)
        index += -(-plan.num_blocks // blocks_per_shard)
        first_row += plan.num_blocks


def _by_shard(group: BlockTask, blocks_per_shard: int) -> Iterator[BlockTask]:
    """Split the blocks of a group into one task per shard."""
    plan = group.plan
    # Most tasks need the same shards. What the last one opened is kept, and no more: the number of maps is limited.
    of_shards, shard_of = lru_cache(1)(group.documents.of_shards), group.documents.shard_of
    for number, first in enumerate(range(0, plan.num_blocks, blocks_per_shard)):
        part = plan.between(first, min(first + blocks_per_shard, plan.num_blocks))
        own, before = of_shards(shard_of(int(part.document.min())), shard_of(int(part.document.max())))
        yield replace(
            group,
            documents=own,
            index=group.index + number,
            first_row=group.first_row + first,
            plan=replace(part, document=part.document - before),
        )


def _packed(
    split: str, documents: DocumentShards, bounds: tuple[int, int], pack: Pack, *, group: int
) -> tuple[PackedGroup, PackPlan]:
    """Plan the blocks of a group, whose documents are those of `documents` within some bounds."""
    first, end = bounds
    lengths = np.concatenate([values for _, (values,) in documents.by_shard({"length": np.int32})])[first:end]
    pixels = None if pack.max_pixels is None else documents.pixels()[first:end]
    planned, left_out = arrange(lengths, pack, _trained_in(documents, first), pixels=pixels, group=group)
    planned = replace(planned, document=planned.document + first)
    left_out = replace(left_out, document=left_out.document + first)
    is_packed = np.zeros(len(documents), np.bool_)
    is_packed[planned.document] = True
    packed = PackedGroup(
        split=split,
        left_out=_parts(left_out, documents),
        losses=left_out.counts(is_packed),
        num_blocks=planned.num_blocks,
        num_packed=int(np.count_nonzero(is_packed)),
        num_padding=planned.num_blocks * pack.block_len - int(planned.length.sum(dtype=np.int64)),
        num_piece_start=left_out.num_piece_start,
    )
    return packed, planned


def _parts(left_out: DroppedTokens, documents: DocumentShards) -> DroppedRanges:
    """Describe the ranges left out and the documents they belong to.

    Those documents are verified here; the ones in blocks are verified when they are gathered.
    """
    index = left_out.document
    documents.verify(distinct(index))
    columns: tuple[Int64, ...] = (index, index, index, index)  # if there are none, which then need no columns
    if len(index):
        columns = (*documents.origins(), documents.doc_ids(), documents.lengths().astype(np.int64))
    source, row, doc_id, doc_length = (column[index] for column in columns)
    return DroppedRanges(source, row, doc_id, doc_length, left_out.start, left_out.length, left_out.reason)


def _trained_in(documents: DocumentShards, first: int) -> CountTrained:
    """Return a function that counts trained tokens of the documents from `first` on; runs are read on first use."""
    counter = cache(lambda: trained_counter(offsets_of(documents.lengths()), *documents.runs()))

    def count(document: Int64, start: Int64, end: Int64) -> Int64:  # each int64[Q]
        return counter()(document + first, start, end) if len(document) else np.zeros(0, np.int64)

    return count


def block_worker(folder: Path, pack: Pack, pad_id: int) -> Callable[[BlockTask], Shard]:
    """Return the function that makes block shards; it keeps documents open for tasks that need the same ones."""
    opened: dict[object, DocumentColumns] = {}

    def make_shard(task: BlockTask) -> Shard:
        documents = task.documents
        first = documents.shards[0]
        # The range of partitions, and not their files: partitions of equal content share one.
        partitions = (task.split, first.source, first.first_row, len(documents.shards))
        if partitions not in opened:
            opened.clear()
            columns = documents.columns(weighted=task.weighted)
            documents.verify_files()  # in file order: the pages are in memory when they are gathered in random order
            opened[partitions] = columns
        shard = write_blocks(
            folder,
            batches_of(task.plan, opened[partitions], pack, pad_id),
            block_len=pack.block_len,
            weighted=task.weighted,
            split=task.split,
            index=task.index,
        )
        return msgspec.structs.replace(shard, first_row=task.first_row)

    return make_shard


def batches_of(plan: PackPlan, columns: DocumentColumns, pack: Pack, pad_id: int) -> Iterator[BlockBatch]:
    """Yield the blocks of a plan by record batches: in a stream, documents of a block attend to each other."""
    size = max(1, _BATCH_TOKENS // pack.block_len)
    for start in range(0, plan.num_blocks, size):
        part = plan.between(start, min(start + size, plan.num_blocks))
        yield gather(part, columns, block_len=pack.block_len, pad_id=pad_id, one_run=pack.mode == "stream")
