"""A micro-batch of a step as a loader returns it, with the documents its tokens come from."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from packer.batches import Int32, Int64
from packer.errors import UsageError
from packer.layout import concatenated_ranges
from packer.load.arguments import open_cache, resolve_batching
from packer.load.attention import documents_of
from packer.load.contract import BatchCheck, check_batch
from packer.load.loader import PackedLoader
from packer.load.ordered_rows import PADDING_ROW, documents_of_pairs
from packer.load.ordering import ReaderState, decode_state
from packer.load.reading import pad_id_of
from packer.load.step import MicroBatch, Step
from packer.store.cache import BlockShards, Cache, DocumentShards


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPart:
    """Consecutive slots of a row that contain a document, a piece of one, or no document at all."""

    row: int
    start: int
    sequence: int
    """Index of the sequence in the micro-batch; attention keeps sequences apart."""

    positions: tuple[int, int]
    """First and last position id."""

    doc_id: int | None = None
    """None if this is padding."""

    piece_start: int = 0
    """Offset of the piece in its document."""

    input_ids: Int32  # [n]
    labels: Int32  # [n]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """A micro-batch and its parts, and whether its step keeps the batch contract."""

    state: ReaderState
    """The state of a loader that is about to return this step."""

    global_batch_size: int
    step: Step
    """The step as the rank sees it."""

    micro_batch: MicroBatch
    parts: tuple[BatchPart, ...]
    check: BatchCheck
    """Result for the whole step: every micro-batch of every rank."""


def view_batch(
    cache: str | Path | Cache,
    *,
    step: int = 0,
    epoch: int = 0,
    micro_batch: int = 0,
    rank: int = 0,
    world_size: int = 1,
    **arguments: Any,
) -> BatchView:
    """Return a view of what a :class:`packer.load.PackedLoader` returns at some step; earlier steps are not read.

    Args:
        cache: folder or URL of a cache, or an open one.
        step: its number in the epoch, from 0.
        epoch: from 0.
        micro_batch: index in the rank's share of the step, from 0.
        rank: of `world_size`.
        world_size: number of ranks.
        arguments: other arguments of the loader; `split` is by default the first of the cache.

    Raises:
        UsageError: no such rank, step or micro-batch, or something the loader refuses.
        CheckError: a row is damaged.
    """
    if not 0 <= rank < world_size:
        raise UsageError(f"no rank {rank} of {world_size}", hint=f"they are numbered 0 to {world_size - 1}")
    cache = open_cache(cache)
    shards = _shards(cache, arguments)
    arguments |= {
        "world_size": world_size,
        "prefetch": 0,
        "images": False,
    }
    loaders = [PackedLoader(cache, rank=each, **arguments) for each in range(world_size)]
    loaders[0].set_epoch(epoch)
    target_state = _state_after_steps(loaders[0], step)
    steps = [_step_at(loader, target_state) for loader in loaders]
    rank_step = steps[rank]
    if not 0 <= micro_batch < len(rank_step):
        raise UsageError(
            f"no micro-batch {micro_batch}", hint=f"a rank has {len(rank_step)} in this step, numbered from 0"
        )
    paired = isinstance(shards, DocumentShards) and shards.is_paired
    sizes = [_num_rows(each, shards) // (1 + paired) for each in rank_step]
    first = sum(sizes[:micro_batch])
    rows = rank_step.block_ids[first : first + sizes[micro_batch]]
    return BatchView(
        state=decode_state(target_state),
        global_batch_size=loaders[0].global_batch_size,
        step=rank_step,
        micro_batch=rank_step[micro_batch],
        parts=tuple(
            _parts(
                rank_step[micro_batch],
                documents_of_pairs(rows) if paired else rows,
                shards,
            )
        ),
        check=check_batch(
            [each for each_step in steps for each in each_step],
            num_items_in_batch=rank_step.num_items_in_batch,
            pad_id=pad_id_of(cache.manifest),
        ),
    )


def _shards(cache: Cache, arguments: dict[str, Any]) -> BlockShards | DocumentShards:
    """Return the rows to read, and fill in the default split."""
    if resolve_batching([cache], arguments.get("batching")) != "packed":
        return cache.documents(arguments.setdefault("split", cache.splits("documents")[0]))
    return cache.blocks(arguments.setdefault("split", next(iter(cache.splits("blocks")), "train")))


def _state_after_steps(loader: PackedLoader, num_steps: int) -> dict[str, Any]:
    """Return the state of a loader after `num_steps` more steps, except for its counters."""
    state, passed = loader.state_dict(), -1
    for passed, plan in enumerate(islice(loader.plans(last_epoch=loader.epoch), num_steps + 1)):
        if passed == num_steps:
            return state
        state |= {"epoch": plan.epoch, "cursor": plan.next_cursor}
    raise UsageError(
        f"no step {num_steps} in epoch {loader.epoch}", hint=f"it has {passed + 1} steps of this size, numbered from 0"
    )


def _step_at(loader: PackedLoader, state: dict[str, Any]) -> Step:
    with loader:
        loader.load_state_dict(state)
        return next(loader.endless())


def _num_rows(micro_batch: MicroBatch, shards: BlockShards | DocumentShards) -> int:
    """Count the blocks or documents of a micro-batch, including padding rows."""
    if isinstance(shards, BlockShards):
        return int(micro_batch["input_ids"].numel()) // shards.block_len
    return len(micro_batch["cu_seq_lens_q"]) - 1 if "cu_seq_lens_q" in micro_batch else len(micro_batch["input_ids"])


def _parts(micro_batch: MicroBatch, rows: Int64, shards: BlockShards | DocumentShards) -> Iterator[BatchPart]:
    """Yield the parts of a micro-batch in order."""
    num_rows, width = micro_batch["input_ids"].shape
    names = ("input_ids", "labels", "position_ids")
    columns = [micro_batch[name].numpy().reshape(-1) for name in names]
    is_padded = "attention_mask" in micro_batch
    numbers = np.arange(num_rows)[:, None] if is_padded else documents_of(micro_batch).numpy()
    sequences = np.broadcast_to(numbers, (num_rows, width)).reshape(-1)
    if isinstance(shards, BlockShards):
        owners, doc_ids, piece_starts = _pieces_of_blocks(rows, shards)
    else:
        real = rows != PADDING_ROW
        owners = np.where(real, np.cumsum(real) - 1, -1)[sequences]
        if is_padded:
            owners[micro_batch["attention_mask"].numpy().reshape(-1) == 0] = -1
        doc_ids = np.concatenate([np.zeros(0, np.int64), *shards.locate(rows[real]).doc_ids()])
        piece_starts = np.zeros(len(doc_ids), np.int32)
    changes = (np.diff(owners) != 0) | (np.diff(sequences) != 0)
    changes[width - 1 :: width] = True
    for start, stop in pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), len(owners)]):
        ids, labels, positions = (column[start:stop] for column in columns)
        owner = int(owners[start])
        yield BatchPart(
            row=start // width,
            start=start % width,
            sequence=int(sequences[start]),
            positions=(int(positions[0]), int(positions[-1])),
            doc_id=int(doc_ids[owner]) if owner >= 0 else None,
            piece_start=int(piece_starts[owner]) if owner >= 0 else 0,
            input_ids=ids.astype(np.int32),
            labels=labels.astype(np.int32),
        )


def _pieces_of_blocks(rows: Int64, shards: BlockShards) -> tuple[Int64, Int64, Int32]:
    """Return the piece in each slot of some blocks, or -1, with each piece's doc_id and its offset in the document."""
    real = np.flatnonzero(rows != PADDING_ROW)
    batch = shards.read(rows[real])
    firsts = np.repeat(real, np.diff(batch.doc_offsets)) * shards.block_len + batch.doc_places
    owners = np.full(len(rows) * shards.block_len, -1, np.int64)
    owners[concatenated_ranges(firsts, batch.doc_lengths)] = np.repeat(np.arange(len(firsts)), batch.doc_lengths)
    return owners, batch.doc_ids, batch.doc_starts
