"""A file is shorter or longer than it was: found before anything is mapped, at every length, with no signal."""

import json
from pathlib import Path

from faults.amount import FULL
from faults.jobs import Job, write_job
from processes import run_forked

from packer.store.manifest import read_manifest

TRUNCATED = """
import json, os, sys
from pathlib import Path
from packer.audit.verify import verify
from packer.audit.verify.shard_checks import audit_shard
from packer.errors import CheckError
from packer.store.cache import Cache
from packer.store.mapping import map_shard

cache, name, lengths = Path(sys.argv[1]), sys.argv[2], json.loads(sys.stdin.read())
path = cache / name
whole = path.read_bytes()
manifest = Cache.open(cache).manifest
shard = next((shard for shard in manifest.shards if shard.path == name), None)
held = 0
for length in lengths:
    content = whole[:length] + bytes(max(0, length - len(whole)))
    path.write_bytes(content)
    refused = 0
    try:
        if shard is None:
            Cache.open(cache)
        else:
            map_shard(cache, shard)
    except CheckError as error:
        refused += str(path) in error.message
    if shard is None:
        found = verify(cache).findings
    else:
        found = audit_shard(cache, shard, level="default", model=manifest.model)
    refused += {finding.path for finding in found} == {name}
    held += refused == 2
print(held)
"""


def truncate(cache: Path, name: str, lengths: list[int]) -> int:
    """In a process of its own, which a page that is not there would kill; how many lengths were found."""
    process = run_forked(TRUNCATED, cache, name, stdin=json.dumps(lengths))
    assert process.returncode == 0, f"ended by {process.returncode}: {process.stderr}"
    return int(process.stdout)


def lengths_around(size: int, page: int = 4096) -> list[int]:
    """Every length, or those about pages and ends; and longer ones."""
    longer = [size + 1, size + 8, size + page, size * 2]
    if FULL:
        return [length for length in range(size) if length != size] + longer
    near = {0, 1, 7, 8, size - 1, size - 10, *range(0, size, page), *range(1, size, max(1, size // 60))}
    return sorted(length for length in near if 0 <= length < size) + longer


def test_a_shard_of_any_other_length_is_found_and_never_mapped(tmp_path: Path, tally) -> None:
    job = write_job(tmp_path / "job", num_rows=120)
    cache = job.build(tmp_path / "cache", "shard_bytes=64KiB")
    shard = max(read_manifest(cache).shards, key=lambda shard: shard.num_bytes)
    assert shard.num_bytes > 64 * 1024
    lengths = lengths_around(shard.num_bytes)
    held = truncate(cache, shard.path, lengths)
    tally("shard truncated or appended to", tried=len(lengths), held=held, note=f"of {shard.num_bytes:,} bytes")


def test_a_manifest_of_any_other_length_is_found(tiny_job: Job, tmp_path: Path, tally) -> None:
    cache = tiny_job.build(tmp_path / "cache")
    size = (cache / "manifest.json").stat().st_size
    lengths = lengths_around(size)
    held = truncate(cache, "manifest.json", lengths)
    tally("manifest truncated or appended to", tried=len(lengths), held=held, note=f"of {size:,} bytes")
