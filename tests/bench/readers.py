"""Readers to compare: packer's, and what people use today. Each hands out shuffled batches of [16, 2048] int64 tensors.

They do not all do the same. packer's loader goes through an order that can be resumed, counts trained targets and checks
digests; the limits only move bytes; most peers draw blocks at random or shuffle a list of numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer import PackedDataset, PackedLoader
from packer.batches import Int32
from packer.store.cache import Cache

MICRO_BATCH = 16
_IN_MEMORY = 8192
"""Blocks that are kept as tensors; their bytes are many times those of a processor's caches."""

_PAGE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    name: str
    batches: Callable[[], Iterator[Any]] | None
    """Micro-batches without end, or to the end of an epoch; None where what it needs is not installed."""

    columns: str = "ids, labels"
    turn: int = 16
    """Micro-batches that are timed in one go. For whoever works ahead so many that what it had ready counts for little."""

    first_epoch: bool = False
    """Every row is touched for the first time: its pages are mapped then, and packer checks its digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The same blocks for every reader."""

    folder: Path
    """A cache."""

    cache: Cache
    """The same, open; all its digests were checked."""

    ids: Path
    """One flat file of int32: the block's ids one after another."""

    labels: Path
    num_blocks: int
    block_len: int

    def mapped(self, path: Path) -> Int32:
        """int32[num_blocks, block_len]; a plain array over the mapping, which is faster to index than a memmap."""
        return np.asarray(np.memmap(path, np.int32, "r")).reshape(self.num_blocks, self.block_len)

    def shuffled(self, seed: int = 0) -> Iterator[list[int]]:
        """Numbers of MICRO_BATCH blocks, epoch after epoch."""
        rng = np.random.default_rng(seed)
        while True:
            order = rng.permutation(self.num_blocks)
            for first in range(0, self.num_blocks - MICRO_BATCH + 1, MICRO_BATCH):
                yield order[first : first + MICRO_BATCH].tolist()


def limits(blocks: Blocks) -> list[Reader]:
    """What no loader beats; the second is what others are compared with."""
    return [
        Reader(name="memcpy into 2 batches in turn", batches=partial(_copies, blocks)),
        *(
            Reader(name="gather into 2 batches in turn", batches=partial(_gathered, blocks, first), first_epoch=first)
            for first in (False, True)
        ),
    ]


def _copies(blocks: Blocks) -> Iterator[Any]:
    """Rows that are int64 already and lie in a row: as many bytes written as a batch has, and as many read."""
    L = blocks.block_len
    source = np.random.default_rng(0).integers(0, 100_000, (2, MICRO_BATCH * 64, L))
    rooms = [np.empty((2, MICRO_BATCH, L), np.int64) for _ in range(2)]
    while True:
        for number in range(64):
            room = rooms[number % 2]
            room[:] = source[:, number * MICRO_BATCH : (number + 1) * MICRO_BATCH]
            yield torch.from_numpy(room)


def _gathered(blocks: Blocks, first_epoch: bool) -> Iterator[Any]:
    """Rows of two mapped files of int32, assigned row by row to int64 arrays: no digests, no counts, an order made before.

    Two batches' memory in turn stays in a processor's cache.
    """
    columns = blocks.mapped(blocks.ids), blocks.mapped(blocks.labels)
    if not first_epoch:
        for column in columns:
            column[:, :: _PAGE // 4].sum()
    rooms = [[np.empty((MICRO_BATCH, blocks.block_len), np.int64) for _ in columns] for _ in range(2)]
    order = blocks.shuffled()
    for number, rows in enumerate(islice(order, blocks.num_blocks // MICRO_BATCH) if first_epoch else order):
        room = rooms[number % 2]
        for column, into in zip(columns, room, strict=True):
            for place, row in enumerate(rows):
                into[place] = column[row]
        yield [torch.from_numpy(array) for array in room]


def packers(blocks: Blocks) -> list[Reader]:
    forms: list[tuple[str, dict[str, Any]]] = [("all, in rows", {"flatten": False}), ("all, flattened", {})]
    return [
        *(
            Reader(
                name=f"packer, steps of {size}, prefetch {prefetch}",
                batches=partial(_loaded, blocks, first, global_batch_size=size, prefetch=prefetch, **form),
                columns=columns,
                turn=32 * size // MICRO_BATCH if prefetch else 16,
                first_epoch=first,
            )
            for columns, form in forms
            for first in (True, False)
            for size in (16, 128)
            for prefetch in (0, 2)
        ),
        Reader(name="PackedDataset.__getitems__", batches=partial(_items, blocks), columns="all, by block"),
    ]


def _loaded(blocks: Blocks, first_epoch: bool, **options: Any) -> Iterator[Any]:
    source = blocks.folder if first_epoch else blocks.cache
    with PackedLoader(source, micro_batch_size=MICRO_BATCH, rank=0, world_size=1, **options) as loader:
        for step in loader if first_epoch else loader.endless():
            yield from step


def _items(blocks: Blocks) -> Iterator[Any]:
    dataset = PackedDataset(blocks.cache)
    for rows in blocks.shuffled():
        yield dataset.__getitems__(rows)


def peers(blocks: Blocks, folder: Path) -> list[Reader]:
    """Files of their own are written into the folder."""
    return [
        Reader(name="nanoGPT's way", batches=partial(_nano, blocks)),
        Reader(name="tensors in memory, stacked", batches=partial(_in_memory, blocks)),
        *(
            Reader(
                name=f"{_versioned('datasets')}, {way}",
                batches=partial(_arrow, blocks, folder / "datasets.arrow", way) if find_spec("datasets") else None,
            )
            for way in ("format torch", "format numpy", "format arrow")
        ),
    ]


def _versioned(package: str) -> str:
    name = package.replace("-", ".")
    try:
        return f"{package} {version(package)}" if find_spec(name) else package
    except ImportError:
        return package


def _nano(blocks: Blocks) -> Iterator[Any]:
    """Blocks at random, with replacement; the files are mapped anew for each batch, as nanoGPT does."""
    L = blocks.block_len
    while True:
        ids, labels = (np.memmap(path, dtype=np.int32, mode="r") for path in (blocks.ids, blocks.labels))
        starts = torch.randint(blocks.num_blocks, (MICRO_BATCH,)) * L
        x = torch.stack([torch.from_numpy(ids[i : i + L].astype(np.int64)) for i in starts])
        y = torch.stack([torch.from_numpy(labels[i : i + L].astype(np.int64)) for i in starts])
        yield x, y


def _in_memory(blocks: Blocks) -> Iterator[Any]:
    """A list of dicts of int64 tensors, stacked by the collator: what torchtune's packed dataset comes to."""
    ids, labels = (blocks.mapped(path)[:_IN_MEMORY].astype(np.int64) for path in (blocks.ids, blocks.labels))
    items = [{"tokens": torch.from_numpy(x), "labels": torch.from_numpy(y)} for x, y in zip(ids, labels, strict=True)]
    for rows in blocks.shuffled():
        batch = [items[row % len(items)] for row in rows]
        yield {name: torch.stack([item[name] for item in batch]) for name in ("tokens", "labels")}


def _arrow(blocks: Blocks, path: Path, way: str) -> Iterator[Any]:
    """A memory-mapped dataset of two list columns, asked for batches of numbers.

    ``format torch`` gives what trainers get; the other two are as fast as its user can make them: widened from the arrays
    of a batch, or from the flat values of its Arrow table.
    """
    import datasets

    if not path.exists():
        _write_arrow(blocks, path)
    dataset = datasets.Dataset.from_file(str(path)).with_format(way.removeprefix("format "))
    for rows in blocks.shuffled():
        batch = dataset[rows]
        if way == "format torch":
            yield batch
        elif way == "format numpy":
            yield {name: torch.from_numpy(values.astype(np.int64)) for name, values in batch.items()}
        else:
            yield {name: _widened(batch.column(name), blocks.block_len) for name in batch.column_names}


def _widened(column: Any, block_len: int) -> torch.Tensor:
    flat = column.combine_chunks().flatten().to_numpy()
    return torch.from_numpy(flat.astype(np.int64).reshape(-1, block_len))


def _write_arrow(blocks: Blocks, path: Path) -> None:
    """As `datasets` writes: an Arrow stream of a thousand rows a record batch."""
    import pyarrow as pa

    columns = {"input_ids": blocks.mapped(blocks.ids), "labels": blocks.mapped(blocks.labels)}
    kind = pa.list_(pa.int32())
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, pa.schema(dict.fromkeys(columns, kind))) as writer:
        for first in range(0, blocks.num_blocks, 1000):
            parts = [values[first : first + 1000] for values in columns.values()]
            writer.write_batch(pa.record_batch([_lists(part) for part in parts], names=list(columns)))


def _lists(rows: npt.NDArray[Any]) -> Any:
    import pyarrow as pa

    bounds = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(pa.array(bounds), pa.array(rows.reshape(-1)))
