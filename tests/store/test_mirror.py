"""A folder that stands for a bucket: what is fetched, and what stays."""

import fcntl
import hashlib
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from bucket_objects import put
from single_documents import read_document

from packer.errors import CheckError
from packer.names import shown
from packer.store.bucket import Bucket
from packer.store.cache import Cache
from packer.store.files import CacheFiles
from packer.store.folder import locked
from packer.store.place import fresh_place, make_mirror

NUM_SHARDS, BYTES = 24, 20_000


@pytest.fixture
def names(in_memory: Bucket) -> list[str]:
    """Shards in the bucket."""
    found = []
    for number in range(NUM_SHARDS):
        content = np.random.default_rng(number).bytes(BYTES)
        found.append(f"blocks/train-{number:05d}-{hashlib.sha256(content).hexdigest()[:12]}.arrow")
        in_memory.replace(found[-1], content)
    return found


def kept(mirror: CacheFiles) -> set[str]:
    return {f"blocks/{path.name}" for path in (mirror.folder / "blocks").glob("*.arrow")}


def test_all_that_is_missing_is_fetched_once_and_shards_that_no_manifest_names_go(names, tmp_path, monkeypatch) -> None:
    """Files that are not named like shards stay."""
    mirror, asked = make_mirror(tmp_path, "s3://bucket/cache"), []
    stream = Bucket.stream
    monkeypatch.setattr(Bucket, "stream", lambda *given: asked.append(given[1]) or stream(*given))
    foreign = tmp_path / "blocks" / "foreign.arrow"
    foreign.parent.mkdir()
    foreign.write_bytes(b"x")
    mirror.fetch(names[3])
    mirror.fetch_all(names)
    assert kept(mirror) == {*names, "blocks/foreign.arrow"} and sorted(asked) == names
    mirror.remove_copies(but=[names[5]])
    assert kept(mirror) == {names[5], "blocks/foreign.arrow"}


def test_a_damaged_object_is_no_copy(names, in_memory, tmp_path) -> None:
    in_memory.replace(names[1], b"x" * BYTES)
    mirror = make_mirror(tmp_path, "s3://bucket/cache")
    with pytest.raises(CheckError, match="is damaged: its sha256"):
        mirror.fetch_all(names)
    assert names[1] not in kept(mirror)


def test_a_lock_is_free_although_a_process_that_was_forked_meanwhile_has_its_file_open(tmp_path) -> None:
    """A descriptor that was copied is what a forked process has."""
    path = tmp_path / "lock"
    with locked(path):
        own = [each for each in Path("/proc/self/fd").iterdir() if _leads_to(each, path)]
        copy = os.dup(int(own[0].name))
        assert not is_free(path)
    assert is_free(path)
    os.close(copy)


def is_free(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _leads_to(descriptor: Path, path: Path) -> bool:
    try:
        return descriptor.readlink() == path
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_pickled_reads_the_bucket_where_it_arrives(
    is_there: bool, in_memory: Bucket, starter_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process that was not told the URL, of a machine that has the copy or none."""
    put(in_memory, starter_cache)
    opened = Cache.open(in_memory.url, cache_dir=tmp_path / "kept")
    sent = [pickle.dumps(each) for each in (opened.blocks("train"), opened.documents("train"), opened)]
    expected = read_document(opened.documents("train"), 0).input_ids
    for path in opened.folder.rglob("*.arrow"):
        path.unlink()
    monkeypatch.setattr("packer.display._URLS", {})
    assert shown(opened.folder) == str(opened.folder)
    if not is_there:
        shutil.rmtree(tmp_path / "kept")
    blocks, documents, cache = map(pickle.loads, sent)
    assert len(blocks.read([0]).input_ids) == 1
    assert np.array_equal(read_document(documents, 0).input_ids, expected)
    assert (shown(cache.folder), cache.fingerprint) == (in_memory.url, opened.fingerprint)
    assert repr(cache).startswith(f"<Cache '{in_memory.url}': "), "its name, by which any process opens it"
    assert len(list((tmp_path / "kept").rglob("*.arrow"))) >= 2


def test_a_copy_that_is_made_to_verify_is_forgotten_with_its_folder(in_memory: Bucket) -> None:
    in_memory.replace("manifest.json", b"{}")
    with fresh_place(in_memory.url) as folder:
        assert shown(folder) == in_memory.url
    assert shown(folder) == str(folder) and not folder.exists()
