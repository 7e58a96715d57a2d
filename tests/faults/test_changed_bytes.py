"""Bits flip, pages are zeroed, swapped or half written: verify finds it, and a reader is told or gets what was written."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.amount import FULL, amount
from faults.jobs import Job
from faults.readers import read_shard

from packer.audit.verify import verify
from packer.audit.verify.shard_checks import audit_shard
from packer.errors import CheckError
from packer.store.cache import Cache
from packer.store.manifest import read_manifest
from packer.store.row_tables import read_rejected


class Whole:
    """A cache as it was written, whose files are changed one at a time."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.manifest = read_manifest(cache)
        self.shards = {shard.path: shard for shard in self.manifest.shards}
        others = ["manifest.json", "rejected.jsonl", *(f"model/{file.path}" for file in self.manifest.model.files)]
        self.files = {name: (cache / name).read_bytes() for name in (*self.shards, *others)}
        self._values = {name: read_shard(cache, shard) for name, shard in self.shards.items()}

    def is_refused(self, name: str, content: bytes, *, by_verify: bool = False) -> bool:
        """Whether a reader refuses a file that was changed: else it returns what was written. verify always finds it.

        Of bits between buffers, which nothing reads, the reader knows nothing. Of a shard, what verify calls for each is
        asked, unless `by_verify`.
        """
        path = self.cache / name
        path.write_bytes(content)
        try:
            if name in self.shards and not by_verify:
                findings = audit_shard(self.cache, self.shards[name], level="default", model=self.manifest.model)
            else:
                findings = verify(self.cache, threads=1).findings
            found = {finding.path for finding in findings}
            assert name in found and (name not in self.shards or found == {name}), name
            if name in self.shards:
                assert read_shard(self.cache, self.shards[name]) == self._values[name], f"{name} was read"
            elif name == "manifest.json":
                Cache.open(self.cache)
                pytest.fail("a manifest that was changed was read")
            elif name == "rejected.jsonl":
                list(read_rejected(self.cache, self.manifest))
                pytest.fail("rejected.jsonl was read though it was changed")
        except CheckError as error:
            assert str(path) in error.message and "packer build" in str(error.hint)
            assert "--repair" in str(error.hint) or name not in self.shards
            return True
        finally:
            path.write_bytes(self.files[name])
        return False


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_flipped_bit_of_a_shard_is_found_by_verify_and_never_read(cache: Path, tally) -> None:
    whole, rng = Whole(cache), random.Random(0)
    tried, refused = amount(small=50, full=10_000), 0
    for number in range(tried):
        name = rng.choice(list(whole.shards))
        content = flipped(whole.files[name], rng.randrange(len(whole.files[name]) * 8))
        refused += whole.is_refused(name, content, by_verify=number % 25 == 0)
    assert refused > tried // 3
    assert verify(cache, threads=1).ok
    tally("bit flip in a shard", tried=tried, held=tried, note=f"{refused:,} refused by the reader, the rest not read")


def test_any_flipped_bit_of_a_manifest_is_found_by_verify_and_by_the_reader(
    tiny_job: Job, tmp_path: Path, tally
) -> None:
    whole = Whole(tiny_job.build(tmp_path / "cache"))
    content = whole.files["manifest.json"]
    bits = range(len(content) * 8) if FULL else random.Random(0).sample(range(len(content) * 8), 300)
    held = sum(whole.is_refused("manifest.json", flipped(content, bit)) for bit in bits)
    tally("bit flip in the manifest", tried=len(bits), held=held)


def test_a_flipped_bit_of_any_other_file_is_found_and_never_read(cache: Path, tally) -> None:
    whole, rng, tried = Whole(cache), random.Random(1), 0
    for name in (name for name in whole.files if name not in (*whole.shards, "manifest.json")):
        for bit in rng.sample(range(len(whole.files[name]) * 8), amount(small=2, full=400)):
            assert whole.is_refused(name, flipped(whole.files[name], bit)) or name.startswith("model/")
            tried += 1
    tally("bit flip in the ledger or a tokenizer file", tried=tried, held=tried)


def torn(whole: bytes, other: bytes, size: int) -> Iterator[bytes]:
    """The file with one piece of `size` bytes zeroed, foreign, half written or swapped with the next: every piece."""
    for start in range(0, len(whole), size):
        piece, stop = whole[start : start + size], start + size
        foreign = other[start:stop].ljust(len(piece), b"\0")[: len(piece)]
        half = len(piece) // 2
        for changed in (bytes(len(piece)), foreign, piece[:half] + foreign[half:]):
            yield whole[:start] + changed + whole[stop:]
        if stop + size <= len(whole):
            yield whole[:start] + whole[stop : stop + size] + piece + whole[stop + size :]


@pytest.mark.parametrize(("size", "share"), [(4096, 0.1), (512, 0.01)])
def test_a_torn_piece_of_any_file_is_found(size: int, share: float, cache: Path, tally) -> None:
    whole, rng = Whole(cache), random.Random(size)
    names = list(whole.files)
    tried = refused = 0
    for number, name in enumerate(names):
        content, other = whole.files[name], whole.files[names[number - 1]]
        for changed in torn(content, other, size):
            if changed != content and (FULL or rng.random() < share):
                refused += whole.is_refused(name, changed)
                tried += 1
    assert verify(cache, threads=1).ok
    note = f"{refused:,} by the reader"
    tally(f"zeroed, swapped, foreign, torn pieces of {size:,} bytes", tried=tried, held=tried, note=note)
