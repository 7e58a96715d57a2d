"""Packing a split's documents and gathering its block shards.

The plan is made once, from lengths alone. Each block shard is then a task of its own: it maps the document shards that
its groups of documents lie in (`pack.group_documents`), and copies the pieces it needs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from packer.batches import BlockBatch, Bool, DocumentColumns, Int64, PackPlan
from packer.errors import RecipeError
from packer.layout import offsets_of
from packer.pack import (
    CountTrained,
    DropCount,
    DroppedTokens,
    EndsOpen,
    arrange,
    arrange_pairs,
    gather,
    select,
    trained_counter,
)
from packer.recipe import Pack
from packer.store.document_shards import DocumentShards
from packer.store.files import CacheFiles
from packer.store.manifest import Shard
from packer.store.writing import write_blocks

_BATCH_TOKENS = 2**20
"""Tokens of one record batch of a block shard; a constant of the format, since it decides bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockForm:
    """How the blocks of a cache are laid out."""

    block_len: int
    pad_id: int
    separator_id: int | None
    """Id between documents, in mode ``eos``."""

    one_run: bool
    """The documents of a block see each other."""

    align: int
    """A piece takes a multiple of so many slots."""

    @classmethod
    def of(cls, pack: Pack, *, pad_id: int, eos_id: int | None, stop_ids: Sequence[int]) -> "BlockForm":
        """The form that rules and a tokenizer make.

        Raises:
            RecipeError: mode ``eos`` without an EOS.

        """
        separator_id = None
        if pack.mode == "eos":
            separator_id = eos_id if eos_id is not None else next(iter(stop_ids), None)
            if separator_id is None:
                raise RecipeError(
                    "pack.mode is eos, and the tokenizer has no EOS",
                    hint="--set pack.mode=isolated needs none; "
                    "a build with --set 'supervision.stop=[\"TOKEN\"]' has one",
                )
        return cls(
            block_len=pack.block_len,
            pad_id=pad_id,
            separator_id=separator_id,
            one_run=pack.mode in {"eos", "stream"},
            align=pack.align,
        )

    def gather(self, plan: PackPlan, columns: DocumentColumns) -> BlockBatch:
        """The blocks of a plan, laid out in this form."""
        return gather(
            plan,
            columns,
            block_len=self.block_len,
            pad_id=self.pad_id,
            separator_id=self.separator_id,
            one_run=self.one_run,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTask:
    """One block shard to be gathered."""

    split: str
    index: int
    first_row: int
    """Number of its first block in the split."""

    documents: DocumentShards
    """Those of the split, in the shards from that of the first to that of the last one that is in these blocks."""

    weighted: bool
    """Whether some document of the split has fractional loss weights."""

    plan: PackPlan
    """Only this shard's blocks; numbers of documents count from the first of `documents`."""

    def __str__(self) -> str:
        return f"block shard {self.index} of split '{self.split}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSplit:
    """A split's packing: its tasks, and what is in no block."""

    tasks: tuple[BlockTask, ...]
    left_out: DroppedTokens
    losses: dict[str, DropCount]
    """What each code costs."""

    num_blocks: int
    num_packed: int
    """Documents of which something is in a block."""

    num_separators: int
    num_padding: int
    """Slots that hold neither a token nor a separator."""


def pack_split(
    split: str, documents: DocumentShards, pack: Pack, *, stop_ids: Sequence[int], shard_bytes: int
) -> PackedSplit:
    """Plan the blocks of a split and divide them into shards.

    Raises:
        CheckError: a document that something is left out of is damaged.

    """
    if documents.is_paired:
        planned, left_out = arrange_pairs(documents.lengths(), pack, _trained_in(documents))
    else:
        selected = select(documents.lengths(), pack)
        planned, left_out = arrange(selected, pack, _trained_in(documents), _ends_open(documents, stop_ids))
    # Documents in blocks are checked where they are gathered.
    documents.verify(np.unique(left_out.document))
    is_packed = np.zeros(len(documents), np.bool_)
    is_packed[planned.document] = True
    row_bytes = pack.block_len * (16 if documents.weighted else 12)
    per_shard = max(1, shard_bytes // row_bytes)
    tasks = tuple(_tasks(split, documents, planned, per_shard))
    separators = int((planned.slots - planned.length).sum(dtype=np.int64)) if pack.mode == "eos" else 0
    return PackedSplit(
        tasks=tasks,
        left_out=left_out,
        losses=left_out.counts(is_packed),
        num_blocks=planned.num_blocks,
        num_packed=int(np.count_nonzero(is_packed)),
        num_separators=separators,
        num_padding=planned.num_blocks * pack.block_len - int(planned.length.sum(dtype=np.int64)) - separators,
    )


def _tasks(split: str, documents: DocumentShards, planned: PackPlan, per_shard: int) -> Iterator[BlockTask]:
    of_shards, weighted = cache(documents.of_shards), documents.weighted
    for index, first_row in enumerate(range(0, planned.num_blocks, per_shard)):
        plan = planned.between(first_row, min(first_row + per_shard, planned.num_blocks))
        first, last = int(plan.document.min()), int(plan.document.max())
        own, before = of_shards(documents.shard_of(first), documents.shard_of(last))
        plan = replace(plan, document=plan.document - before)
        yield BlockTask(split=split, index=index, first_row=first_row, documents=own, weighted=weighted, plan=plan)


def _trained_in(documents: DocumentShards) -> CountTrained:
    """Counts trained tokens; the runs are read when something is asked for the first time."""

    @cache
    def counter() -> CountTrained:
        return trained_counter(offsets_of(documents.lengths()), *documents.runs())

    def count(document: Int64, start: Int64, end: Int64) -> Int64:  # each int64[Q]
        return counter()(document, start, end) if len(document) else np.zeros(0, np.int64)

    return count


def _ends_open(documents: DocumentShards, stop_ids: Sequence[int]) -> EndsOpen:
    def ends_open(document: Int64, end: Int64) -> Bool:  # both int64[Q], in source order; bool[Q]
        return ~np.isin(documents.ids_at(document, end - 1), np.array(stop_ids, np.int32))

    return ends_open


def block_worker(folder: Path, form: BlockForm) -> Callable[[BlockTask], Shard]:
    """The function that makes block shards; it keeps what it has opened for a task that needs the same."""
    opened: dict[tuple[str, str, int], tuple[DocumentShards, DocumentColumns]] = {}

    def make(task: BlockTask) -> Shard:
        key = (task.split, task.documents.shards[0].path, len(task.documents.shards))
        if key not in opened:
            opened.clear()
            opened[key] = task.documents, task.documents.columns(weighted=task.weighted)
        documents, columns = opened[key]
        # In the order they lie in the files: what is gathered in any order is in memory by then.
        documents.verify(np.unique(task.plan.document))
        batch_blocks = max(1, _BATCH_TOKENS // form.block_len)
        shard = write_blocks(
            folder,
            (
                form.gather(task.plan.between(first, min(first + batch_blocks, task.plan.num_blocks)), columns)
                for first in range(0, task.plan.num_blocks, batch_blocks)
            ),
            block_len=form.block_len,
            weighted=task.weighted,
            paired=documents.is_paired,
            split=task.split,
            index=task.index,
        )
        CacheFiles(folder).publish(shard.path)
        return msgspec.structs.replace(shard, first_row=task.first_row)

    return make
