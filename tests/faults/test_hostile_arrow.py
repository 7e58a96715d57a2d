"""Shards that Arrow did not write, with digests that are right: valid or an error, and never a signal."""

from pathlib import Path

import pytest
from faults.amount import amount
from faults.jobs import Job
from processes import run_forked

MUTATED = """
import dataclasses, hashlib, random, sys
from pathlib import Path
import msgspec, numpy as np, pyarrow as pa
from faults.readers import read_shard
from packer.audit.verify.shard_checks import audit_shard
from packer.errors import PackerError
from packer.store.cache import Cache
from packer.store.folder import digest_file
from xxhash import xxh3_128
from packer.store.shards import DocumentShards
from packer.store.manifest import read_manifest
from packer.store.writing import find_places, shard_name
from packer.store.arrow_columns import shard_rows

cache, kind, first, last, progress = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5])
manifest = read_manifest(cache)
whole = next(shard for shard in manifest.shards if shard.kind == kind)
original = (cache / whole.path).read_bytes()

def mutated(rng):
    content = bytearray(original)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        # The schema stands at the start, the places of the batches before the end: most of what leads somewhere.
        where = rng.choice((rng.randrange(len(content)), rng.randrange(1200), len(content) - 1 - rng.randrange(1400)))
        how = rng.randrange(5)
        if how == 0:
            content[where] ^= 1 << rng.randrange(8)
        elif how == 1:
            content[where] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif how == 2:
            value = rng.choice((-1, 0, 1, 2**31 - 1, 2**31, 2**62, -2**63, len(content), len(content) * 8))
            piece = (value % 2**64).to_bytes(8, "little")[: rng.choice((4, 8))]
            content[where : where + len(piece)] = piece
        elif how == 3:
            size = rng.choice((1, 4, 8, 64))
            other = rng.randrange(len(content) - size)
            content[where : where + size] = content[other : other + size]
        else:
            size = rng.choice((1, 4, 8, 64))
            del content[where : where + size]
            content[where:where] = bytes(size)
    return bytes(content)

def with_right_row_digests(content):
    \"\"\"The same, where each row's digest is the one of its values, as far as values can be found at all.\"\"\"
    try:
        reader = pa.ipc.open_file(pa.BufferReader(content))
        patched = bytearray(content)
        base = pa.py_buffer(content).address
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            batch.validate()
            rows = shard_rows(batch, kind)
            stored = batch.column("digest").buffers()[-1]
            start = stored.address - base
            fixed = rows.digests().tobytes()
            patched[start : start + len(fixed)] = fixed
        return bytes(patched) if len(patched) == len(content) else content
    except Exception:
        return content

valid = refused = deep = lost = 0
for seed in range(first, last):
    progress.write_text(str(seed))
    rng = random.Random(f"{kind} {seed}")
    content = mutated(rng)
    if seed % 2:
        content = with_right_row_digests(content)
    sha256 = hashlib.sha256(content).hexdigest()
    path = f"{kind}/{shard_name(sha256, split=whole.split, index=0)}"
    (cache / path).write_bytes(content)
    digest = digest_file(cache / path)
    num_bytes, xxh3, sha256 = digest.num_bytes, digest.xxh3, digest.sha256
    shard = msgspec.structs.replace(whole, path=path, num_bytes=num_bytes, xxh3=xxh3, sha256=sha256)
    try:
        places = find_places(cache / path)
        starts = [(place.columns["digest"], place.num_rows) for place in places]
        rows_xxh3 = xxh3_128(b"".join(content[start : start + 8 * count] for start, count in starts)).hexdigest()
        num_rows = sum(place.num_rows for place in places)
        shard = msgspec.structs.replace(shard, places=places, rows_xxh3=rows_xxh3, num_rows=num_rows)
    except (ValueError, KeyError, OSError, ArithmeticError, pa.ArrowException):
        lost += 1  # what nothing can be found in has no right places, or none that a manifest could name
    findings = audit_shard(cache, shard, level="full", model=manifest.model)
    try:
        read_shard(cache, shard)
        if kind == "documents":
            documents = DocumentShards(cache, [shard])
            documents.runs(), documents.columns(), documents.file_rows()
        valid += 1
        deep += bool(findings)
    except PackerError:
        refused += 1
    (cache / path).unlink()
print(valid, refused, deep, lost)
"""


@pytest.mark.parametrize("kind", ["documents", "blocks"])
def test_a_shard_made_by_somebody_else_is_valid_or_an_error_and_no_signal(
    kind: str, tiny_job: Job, tmp_path: Path, tally
) -> None:
    cache = tiny_job.build(tmp_path / "cache")
    tried, progress = amount(small=40, full=5000), tmp_path / "progress"
    process = run_forked(MUTATED, cache, kind, 0, tried, progress)
    told = f"{kind} {progress.read_text()}: ended by {process.returncode}: {process.stderr[-3000:]}"
    assert process.returncode == 0, told
    valid, refused, deep, lost = map(int, process.stdout.split())
    assert valid and refused and 0 < lost < tried
    note = f"{refused:,} refused by the reader, {deep:,} more by verify --full"
    tally(f"hostile Arrow, {kind}", tried=tried, held=valid + refused, note=note)
