"""How long `packer verify` takes, beside reading the same files: pairs of a reading and a verification, one after another.

Reading is every file of the cache from its first byte to its last, in pieces, as many files at a time as there are
processors, and nothing done with the bytes. From memory that is a copy, and the row digests of short rows cost many times
as much; from a disk, where the kernel is asked to forget the files before each reading, it is what one waits for.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from caches import REAL, seed_rows
from rich.table import Table

from packer.audit.verify import verify
from packer.audit.verify.verify_report import Level
from packer.pipeline.from_python import build
from packer.pipeline.workers.fork_server import default_jobs
from packer.recipe.recipe import make_recipe
from packer.store.manifest import Manifest, read_manifest

_BYTES = 500 * 2**20
_PIECE_BYTES = 4 * 2**20
_LINES: tuple[tuple[Level, str, int], ...] = (
    ("default", "memory", 9),
    ("default", "disk", 5),
    ("full", "memory", 3),
)
"""A level, where the files are, and how many pairs are measured."""

_CHATS = ("sgd_train_tools_600", "sgd_train_chat_1800", "hh_harmless_test_messages", "taubench_airline_gpt4o")


def verifying_table() -> Table:
    """A line a level, of a cache of short rows and, where the real files lie, of one of chats."""
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.title = f"packer verify beside reading the same files, {default_jobs()} threads each, medians of pairs"
    for name in ("cache", "level", "from"):
        table.add_column(name, no_wrap=True)
    for name in ("MB", "read, ms", "verify, ms", "ratio", "least", "most"):
        table.add_column(name, justify="right", no_wrap=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, tokenizer, kind = seed_rows(folder)
        caches = [(kind, _cache(folder / "short", [rows], tokenizer))]
        chats = [REAL / "corpora" / f"{corpus}.jsonl" for corpus in _CHATS]
        if all(path.exists() for path in chats):
            caches.append(("chats", _cache(folder / "chats", chats, tokenizer)))
        for kind, cache in caches:
            _add_lines(table, kind, cache)
    return table


def _cache(folder: Path, rows: list[Path], tokenizer: Path) -> Path:
    """A cache of these rows as often as it takes, its partitions tokenized once and every file a copy of its own."""
    cache = folder / "cache"
    one = _build(cache, rows, tokenizer)
    size = sum(shard.num_bytes for shard in one.shards)
    copies = [folder / f"{number}-{path.name}" for number in range(1, _BYTES // size + 1) for path in rows]
    for copy in copies:
        shutil.copy(rows[copies.index(copy) % len(rows)], copy)
    many = _build(cache, [*rows, *copies], tokenizer)
    for shard in many.shards:  # a partition that was taken over is a link to the same bytes, in memory once
        path = cache / shard.path
        shutil.copy(path, path.with_suffix(".copy"))
        path.with_suffix(".copy").replace(path)
    return cache


def _build(cache: Path, rows: list[Path], tokenizer: Path) -> Manifest:
    sources = [{"path": str(path), "ignore": ["reward"]} for path in rows]
    rules = {"pack": {"block_len": 4096, "overlong": "split"}, "supervision": {"history_rewrite": "exact"}}
    build(make_recipe({"sources": sources, "tokenizer": str(tokenizer), **rules}), cache)
    return read_manifest(cache)


def _add_lines(table: Table, kind: str, cache: Path) -> None:
    paths = sorted((path for path in cache.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)
    megabytes = f"{sum(path.stat().st_size for path in paths) / 1e6:,.0f}"
    for level, place, rounds in _LINES:
        pairs = []
        for _ in range(rounds):
            reading = _seconds(_read, paths, forget=place == "disk")
            verifying = _seconds(lambda _, level=level: _verify(cache, level), paths, forget=place == "disk")
            pairs.append((reading, verifying))
        ratios = sorted(verifying / reading for reading, verifying in pairs)
        medians = [statistics.median(column) * 1e3 for column in zip(*pairs, strict=True)]
        figures = [f"{median:,.1f}" for median in medians]
        spread = [f"{ratio:.2f}" for ratio in (statistics.median(ratios), ratios[0], ratios[-1])]
        table.add_row(kind, level, place, megabytes, *figures, *spread)


def _seconds(function: Callable[[list[Path]], None], paths: list[Path], *, forget: bool) -> float:
    if forget:
        _forget(paths)
    start = time.perf_counter()
    function(paths)
    return time.perf_counter() - start


def _forget(paths: list[Path]) -> None:
    """Ask the kernel to drop the pages of files; what it does not drop is read from memory all the same."""
    os.sync()
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _verify(cache: Path, level: Level) -> None:
    assert verify(cache, level=level).ok


def _read(paths: list[Path]) -> None:
    with ThreadPoolExecutor(default_jobs()) as pool:
        assert sum(pool.map(_read_file, paths)) == sum(path.stat().st_size for path in paths)


def _read_file(path: Path) -> int:
    buffer, num_bytes = bytearray(_PIECE_BYTES), 0
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while count := file.readinto(buffer):
            num_bytes += count
    return num_bytes
