"""A bit flips: verify finds it wherever it lies, and a reader is told, or is handed what was written."""

import random
from pathlib import Path

from faults.amount import FULL, amount
from faults.jobs import Job
from faults.readers import read_shard

from packer.audit import verify
from packer.audit.shard_checks import audit_shard
from packer.errors import CheckError
from packer.store.cache import Cache
from packer.store.manifest import read_manifest
from packer.store.rejected import read_rejected


def test_a_flipped_bit_of_a_shard_is_found_by_verify_and_never_read(cache: Path, tally) -> None:
    """Of bits between buffers, which nothing reads, the reader knows nothing; what it hands out is what was written."""
    manifest = read_manifest(cache)
    whole = {shard.path: (cache / shard.path).read_bytes() for shard in manifest.shards}
    values = {shard.path: read_shard(cache, shard) for shard in manifest.shards}
    rng = random.Random(0)
    tried, held, refused = amount(small=250, full=10_000), 0, 0
    for number in range(tried):
        shard = rng.choice(manifest.shards)
        content = bytearray(whole[shard.path])
        bit = rng.randrange(len(content) * 8)
        content[bit // 8] ^= 1 << bit % 8
        path = cache / shard.path
        path.write_bytes(content)
        if number % 50 == 0:
            found = {finding.path for finding in verify(cache, threads=1).findings}
        else:  # what verify calls for every shard
            audit = audit_shard(cache, shard, level="default", model=manifest.model)
            found = {finding.path for finding in audit.findings}
        assert found == {shard.path}, f"bit {bit} of {shard.path}"
        try:
            assert read_shard(cache, shard) == values[shard.path], f"bit {bit} of {shard.path} was read"
        except CheckError as error:
            assert str(path) in error.message and "--repair" in str(error.hint)
            refused += 1
        held += 1
        path.write_bytes(whole[shard.path])
    assert refused > tried // 3
    assert verify(cache, threads=1).ok
    tally("bit flip in a shard", tried=tried, held=held, note=f"{refused:,} refused by the reader, the rest not read")


def test_any_flipped_bit_of_a_manifest_is_found_by_verify_and_by_the_reader(
    tiny_job: Job, tmp_path: Path, tally
) -> None:
    cache = tiny_job.build(tmp_path / "cache")
    path = cache / "manifest.json"
    whole = path.read_bytes()
    bits = range(len(whole) * 8) if FULL else random.Random(0).sample(range(len(whole) * 8), 600)
    held = 0
    for bit in bits:
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        assert {finding.path for finding in verify(cache).findings} == {"manifest.json"}, bit
        try:
            Cache.open(cache)
        except CheckError as error:
            held += str(path) in error.message
    tally("bit flip in the manifest", tried=len(bits), held=held)


def test_a_flipped_bit_of_any_other_file_is_found_and_never_read(cache: Path, tally) -> None:
    manifest = read_manifest(cache)
    names = ["rejected.jsonl", *(f"model/{file.path}" for file in manifest.model.files)]
    rng = random.Random(1)
    tried = held = 0
    for name in names:
        path = cache / name
        whole = path.read_bytes()
        for bit in rng.sample(range(len(whole) * 8), amount(small=4, full=400)):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << bit % 8
            path.write_bytes(content)
            assert name in {finding.path for finding in verify(cache, threads=1).findings}
            if name == "rejected.jsonl":
                try:
                    list(read_rejected(cache, manifest))
                except CheckError as error:
                    held += str(path) in error.message
            else:
                held += 1
            tried += 1
        path.write_bytes(whole)
    tally("bit flip in the ledger or a tokenizer file", tried=tried, held=held)
