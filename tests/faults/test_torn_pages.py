"""Pages of 4 KiB and sectors of 512 bytes that were zeroed, swapped, or written by half: all found."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.amount import FULL
from faults.readers import read_shard

from packer.audit import verify
from packer.audit.shard_checks import audit_shard
from packer.errors import CheckError
from packer.store.cache import Cache
from packer.store.manifest import Shard, read_manifest


def torn(whole: bytes, other: bytes, size: int) -> Iterator[tuple[str, bytes]]:
    """The file with one piece of `size` bytes not as written, every piece and every kind; only what changes a byte."""
    starts = range(0, len(whole), size)
    for start in starts:
        piece, stop = whole[start : start + size], start + size
        foreign = other[start:stop].ljust(len(piece), b"\0")[: len(piece)]
        half = len(piece) // 2
        pieces = {"zeroed": bytes(len(piece)), "foreign": foreign, "torn": piece[:half] + foreign[half:]}
        for kind, changed in pieces.items():
            yield f"{kind} at {start}", whole[:start] + changed + whole[stop:]
        if stop + size <= len(whole):
            following = whole[stop : stop + size]
            yield f"swapped at {start}", whole[:start] + following + piece + whole[stop + size :]


def is_found(cache: Path, name: str, shard: Shard | None) -> bool:
    """Found by verify, the file named; of shards and manifest by the reader too, unless it hands out what was written."""
    if shard is None:
        found = {finding.path for finding in verify(cache, threads=1).findings}
    else:
        model = read_manifest(cache).model
        found = {finding.path for finding in audit_shard(cache, shard, level="default", model=model).findings}
    return name in found


@pytest.mark.parametrize("size", [4096, 512])
def test_a_torn_piece_of_any_file_is_found(size: int, cache: Path, tally) -> None:
    manifest = read_manifest(cache)
    shards = {shard.path: shard for shard in manifest.shards}
    names = [*shards, "manifest.json", "rejected.jsonl", *(f"model/{file.path}" for file in manifest.model.files)]
    wholes = {name: (cache / name).read_bytes() for name in names}
    values = {name: read_shard(cache, shard) for name, shard in shards.items()}
    rng = random.Random(size)
    tried = held = refused = 0
    for number, name in enumerate(names):
        path, whole, shard = cache / name, wholes[name], shards.get(name)
        for told, content in torn(whole, wholes[names[number - 1]], size):
            if content == whole or not (FULL or rng.random() < (0.3 if size == 4096 else 0.04)):
                continue
            path.write_bytes(content)
            assert is_found(cache, name, shard), f"{name}: {told}"
            try:
                if shard is not None:
                    assert read_shard(cache, shard) == values[name], f"{name}: {told} was read"
                elif name == "manifest.json":
                    Cache.open(cache)
                    pytest.fail(f"{name}: {told} was read")
            except CheckError as error:
                assert str(path) in error.message
                refused += 1
            path.write_bytes(whole)
            tried += 1
            held += 1
    assert verify(cache, threads=1).ok
    tally(
        f"zeroed, swapped, foreign, torn pieces of {size:,} bytes",
        tried=tried,
        held=held,
        note=f"{refused:,} by the reader",
    )
