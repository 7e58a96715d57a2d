"""Pack a split's documents, and gather its block shards.

Documents are packed group by group (`pack.group_documents`), from their lengths alone, and no block shard spans two
groups. So no process needs more of a split than one group in memory. Each block shard is a task, which maps the
document shards it needs and copies their pieces.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from packer.batches import BlockBatch, DocumentColumns, Int32, Int64, PackPlan
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


def cuts_of(groups: Iterable[PackedGroup], before: Mapping[str, Cut] | None = None) -> dict[str, Cut]:
    """Add the losses of groups, by code, to those before; codes that lost nothing are omitted."""
    cuts = dict(before or {})
    for group, code in product(groups, sorted(REASONS)):
        loss, cut = group.losses[code], cuts.get(code) or Cut(documents=0, parts=0, tokens=0, trained=0)
        if loss.num_parts:
            cuts[code] = Cut(
                documents=cut.documents + loss.num_documents,
                parts=cut.parts + loss.num_parts,
                tokens=cut.tokens + loss.num_tokens,
                trained=cut.trained + loss.num_trained,
            )
    return dict(sorted(cuts.items()))


def tokens_per_shard(shard_bytes: int) -> int:
    """Return how many slots a block shard has: id, label and position of four bytes each."""
    return max(1, shard_bytes // 12)


def pack_split(
    split: str, documents: DocumentShards, pack: Pack, *, shard_bytes: int
) -> Iterator[tuple[PackedGroup, Iterator[BlockTask]]]:
    """Plan the blocks of a split group by group; nothing of a group is kept in memory once the next one is planned.

    Yields the result of each group, and a task for each of its shards.
    """
    if not len(documents):
        return
    opened = lru_cache(1)(lambda first, last: _OpenShards(*documents.of_shards(first, last)))
    blocks_per_shard = max(1, tokens_per_shard(shard_bytes) // pack.block_len)
    index = first_row = 0
    bounds = [*range(0, len(documents), pack.group_documents), len(documents)]
    for number, (first, last) in enumerate(pairwise(bounds)):
        own = opened(documents.shard_of(first), documents.shard_of(last - 1))
        packed, plan = own.packed(split, first - own.before, last - own.before, pack, group=number)
        whole = BlockTask(split=split, documents=own.documents, index=index, first_row=first_row, plan=plan)
        yield packed, own.by_shard(whole, blocks_per_shard)
        index += -(-plan.num_blocks // blocks_per_shard)
        first_row += plan.num_blocks


class _OpenShards:
    """The documents of some shards. Groups of documents within the same shards share it, with all that it has read."""

    def __init__(self, documents: DocumentShards, before: int) -> None:
        self.documents = documents
        self.before = before
        """Documents of the split before the first one."""

        # Most tasks need the same shards. What the last one opened is kept, and no more: the number of maps is limited.
        self._of_shards = lru_cache(1)(documents.of_shards)

    @cached_property
    def _lengths(self) -> Int32:
        return self.documents.stored("length", np.int32)

    @cached_property
    def _pixels(self) -> Int64:
        return self.documents.pixels()

    @cached_property
    def _count_trained(self) -> CountTrained:
        return trained_counter(offsets_of(self.documents.lengths()), *self.documents.runs())

    @cached_property
    def _columns(self) -> tuple[Int64, ...]:
        """Source, row, id and length of each document."""
        documents = self.documents
        return (*documents.origins(), documents.doc_ids(), documents.lengths().astype(np.int64))

    def packed(self, split: str, first: int, end: int, pack: Pack, *, group: int) -> tuple[PackedGroup, PackPlan]:
        """Plan the blocks of a group, whose documents are those from `first` to `end`."""

        def count(document: Int64, start: Int64, stop: Int64) -> Int64:  # each int64[Q]
            return self._count_trained(document + first, start, stop) if len(document) else np.zeros(0, np.int64)

        pixels = None if pack.max_pixels is None else self._pixels[first:end]
        planned, left_out = arrange(self._lengths[first:end], pack, count, pixels=pixels, group=group)
        is_packed = np.zeros(end - first, np.bool_)
        is_packed[planned.document] = True
        packed = PackedGroup(
            split=split,
            left_out=self._ranges(left_out, left_out.document + first),
            losses=left_out.counts(is_packed),
            num_blocks=planned.num_blocks,
            num_packed=int(np.count_nonzero(is_packed)),
            num_padding=planned.num_blocks * pack.block_len - int(planned.length.sum(dtype=np.int64)),
            num_piece_start=left_out.num_piece_start,
        )
        return packed, replace(planned, document=planned.document + first)

    def _ranges(self, left_out: DroppedTokens, document: Int64) -> DroppedRanges:
        """Describe the ranges left out and the documents they belong to.

        Those documents are verified here; the ones in blocks are verified when they are gathered.
        """
        self.documents.verify(distinct(document))
        columns = self._columns if len(document) else (document,) * 4  # which none needs, then
        source, row, doc_id, doc_length = (column[document] for column in columns)
        return DroppedRanges(source, row, doc_id, doc_length, left_out.start, left_out.length, left_out.reason)

    def by_shard(self, group: BlockTask, blocks_per_shard: int) -> Iterator[BlockTask]:
        """Split the blocks of a group into one task per shard."""
        plan, shard_of = group.plan, self.documents.shard_of
        for number, first in enumerate(range(0, plan.num_blocks, blocks_per_shard)):
            part = plan.between(first, min(first + blocks_per_shard, plan.num_blocks))
            own, before = self._of_shards(shard_of(int(part.document.min())), shard_of(int(part.document.max())))
            yield replace(
                group,
                documents=own,
                index=group.index + number,
                first_row=group.first_row + first,
                plan=replace(part, document=part.document - before),
            )


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
            columns = documents.columns()
            documents.verify_files()  # in file order: the pages are in memory when they are gathered in random order
            opened[partitions] = columns
        shard = write_blocks(
            folder,
            batches_of(task.plan, opened[partitions], pack, pad_id),
            block_len=pack.block_len,
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
