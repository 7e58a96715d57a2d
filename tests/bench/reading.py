"""How fast shuffled blocks come, beside plain copying and other loaders; and how long one waits for a first batch."""

import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from caches import repeated, seed_cache, write_blocks
from readers import MICRO_BATCH, Blocks, Reader, limits, packers, peers
from rich.table import Table
from timing import best, measured

from packer import PackedLoader
from packer.load.ordering import EpochOrder
from packer.store.cache import Cache

_BLOCK_LEN = 2048
_BYTES = 10**9
_TURNS = 120
"""Of a few milliseconds, one reader after another: so each finds quiet moments of a machine that others use too."""

_TURN_SECONDS = 0.06
_WARM = 24
"""Batches before a turn's clock runs: more than a prefetching loader has ready."""


def reading_tables() -> tuple[Table, Table]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seed, rows = seed_cache(folder, block_len=_BLOCK_LEN)
        blocks = _written(folder, seed)
        return _rates(blocks, folder, rows), _waits(blocks)


def _written(folder: Path, seed: Cache) -> Blocks:
    """The blocks as a cache and as flat files; writing leaves them in the page cache."""
    cache = Cache.open(write_blocks(folder / "blocks", repeated(seed, _BYTES), like=seed))
    shards = cache.blocks("train")
    shards.verify()
    paths = {"input_ids": folder / "ids.bin", "labels": folder / "labels.bin"}
    for name, path in paths.items():
        with path.open("wb") as file:
            for first in range(0, len(shards), 512):
                stretch = np.arange(first, min(first + 512, len(shards)))
                np.stack(shards.locate(stretch).values(name)).tofile(file)
    return Blocks(
        folder=cache.folder,
        cache=cache,
        ids=paths["input_ids"],
        labels=paths["labels"],
        num_blocks=len(shards),
        block_len=_BLOCK_LEN,
    )


def _rates(blocks: Blocks, folder: Path, rows: str) -> Table:
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.title = (
        f"{blocks.num_blocks:,} blocks of {blocks.block_len} from {rows}; the last column: tokens/s as a share of\n"
        f"the gather into 2 batches in turn of the same epoch; torch {torch.__version__}, numpy {np.__version__}"
    )
    for name in ("reader", "columns", "epoch"):
        table.add_column(name, no_wrap=True)
    for name in ("M tok/s", "us/batch", "CPU us", "of gather"):
        table.add_column(name, justify="right", no_wrap=True)
    readers = [*limits(blocks), *packers(blocks), *peers(blocks, folder)]
    turns = [_Turns(reader) for reader in readers]
    for _ in range(_TURNS):
        for turn in turns:
            turn.take()
    for turn in turns:
        turn.end()
        reader, gather = turn.reader, turns[2 if turn.reader.first_epoch else 1]
        epoch = "first" if reader.first_epoch else "later"
        table.add_row(reader.name, reader.columns, epoch, *_figures(turn, gather))
    return table


def _figures(turn: "_Turns", gather: "_Turns") -> list[str]:
    if turn.reader.batches is None:
        return ["not", "installed", "", ""]
    tokens = MICRO_BATCH * _BLOCK_LEN
    return [
        f"{tokens / turn.best / 1e6:,.0f}",
        f"{turn.best * 1e6:,.0f}",
        f"{turn.best_cpu * 1e6:,.0f}",
        f"{gather.best / turn.best:.2f}",
    ]


class _Turns:
    """A reader that goes on where its last turn ended, and begins again where it came to an end."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.best = float("inf")
        """Seconds of a micro-batch in the fastest turn."""

        self.best_cpu = float("inf")
        """The same of processor time, over all threads: what a machine with other work to do tells better."""

        self._batches: Iterator[Any] = iter(())
        self._ended = True

    def take(self) -> None:
        if self.reader.batches is None:
            return
        self._read(_WARM)
        if self._ended:
            self._batches = self.reader.batches()
            self._ended = False
            self._read(_WARM)
        start, cpu = time.perf_counter(), time.process_time()
        num_batches = self._read(self.reader.turn)
        if num_batches:
            self.best = min(self.best, (time.perf_counter() - start) / num_batches)
            self.best_cpu = min(self.best_cpu, (time.process_time() - cpu) / num_batches)

    def end(self) -> None:
        self._batches = iter(())

    def _read(self, most: int) -> int:
        """Batches that were taken; the loop holds one while the next is made, as a training loop does."""
        taken, until = 0, time.perf_counter() + _TURN_SECONDS
        for _batch in islice(self._batches, most):
            taken += 1
            if time.perf_counter() > until:
                break
        else:
            self._ended = taken < most
        return taken


def _waits(blocks: Blocks) -> Table:
    table = Table("waiting, imports done", "rows", "ms", "MB", box=None, pad_edge=False)
    _add_waits(table, blocks.folder)
    _add_order(table)
    return table


def _add_waits(table: Table, cache: Path) -> None:
    with _loader(cache) as loader:
        rows = f"{loader.num_blocks:,}"
        middle = loader.num_blocks // 2 // MICRO_BATCH
        next(iter(loader))
        state = loader.state_dict()
    counters = state["counters"] | {"steps": middle, "rows": middle * MICRO_BATCH}
    state |= {"cursor": middle * MICRO_BATCH, "counters": counters}

    def first() -> None:
        with _loader(cache) as opened:
            next(iter(opened))

    def resumed() -> float:
        with _loader(cache) as opened:
            start = time.perf_counter()
            opened.load_state_dict(state)
            step = next(iter(opened))
            seconds = time.perf_counter() - start
            assert step.index == middle
            return seconds

    table.add_row("open to the first step", rows, f"{best(first) * 1e3:.1f}", "")
    table.add_row("load_state_dict to the next step", rows, f"{min(resumed() for _ in range(3)) * 1e3:.1f}", "")


def _loader(cache: Path) -> PackedLoader:
    return PackedLoader(cache, micro_batch_size=MICRO_BATCH, global_batch_size=MICRO_BATCH, rank=0, world_size=1)


def _add_order(table: Table) -> None:
    """Stretches from all over an order: each costs its own rows and leaves nothing behind."""
    order = EpochOrder(fingerprint="f00d", seed=0, num_items=10**9, shuffled=True)
    for size in (MICRO_BATCH, 4096):
        starts = np.random.default_rng(0).integers(0, 10**9 - size, 100).tolist()

        def ask(starts: list[int] = starts, size: int = size) -> None:
            for start in starts:
                order.rows(0, start, start + size)

        found = measured(ask)
        name = f"a slice of {size:,} of an order"
        table.add_row(name, f"{10**9:,}", f"{found.seconds * 10:.2f}", f"{found.peak_bytes / 1e6:.1f}")
