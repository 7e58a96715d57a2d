"""A folder that stands for a bucket: its bound, who leaves first, what is fetched ahead."""

import hashlib
import os
import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from bucket_objects import put
from processes import wait_until

from packer.errors import CheckError, StorageError
from packer.store.bucket import Bucket
from packer.store.cache import Cache
from packer.store.fetch_ahead import FetchAhead
from packer.store.mirror import Mirror, make_mirror, shown
from packer.store.place import fresh_place

NUM_SHARDS, BYTES = 24, 20_000


@pytest.fixture
def names(in_memory: Bucket) -> list[str]:
    """Shards in the bucket."""
    found = []
    for number in range(NUM_SHARDS):
        content = np.random.default_rng(number).bytes(BYTES)
        found.append(f"blocks/train-{number:05d}-{hashlib.sha256(content).hexdigest()[:12]}.arrow")
        in_memory.create(found[-1], content)
    return found


def mirror_of(folder: Path, most_bytes: int | None) -> Mirror:
    return make_mirror(folder, "s3://bucket/cache", most_bytes=most_bytes)


def kept(mirror: Mirror) -> set[str]:
    return {f"blocks/{path.name}" for path in (mirror.folder / "blocks").glob("*.arrow")}


def test_what_is_fetched_at_once_and_what_is_kept_never_take_more_than_the_bound(names, tmp_path, monkeypatch) -> None:
    """Looked at whenever a piece of a shard was written, by eight threads that want all shards again and again."""
    most = 3 * BYTES + 7
    mirror, seen = mirror_of(tmp_path / "mirror", most), []
    download = Bucket.download

    def in_pieces(bucket, name, write):
        def piece(chunk):
            for first in range(0, len(chunk), BYTES // 4):
                write(chunk[first : first + BYTES // 4])
                seen.append(sum(size_of(path) for path in (mirror.folder / "blocks").iterdir()))

        return download(bucket, name, piece)

    monkeypatch.setattr(Bucket, "download", in_pieces)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(mirror.fetch, [names[place] for place in np.random.default_rng(0).integers(0, NUM_SHARDS, 100)]))
    assert len(seen) > 4 * NUM_SHARDS
    assert BYTES < max(seen) <= most
    assert len(kept(mirror)) == 3


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_the_smallest_bound_holds_for_all_that_share_a_folder(names, tmp_path) -> None:
    mirror = mirror_of(tmp_path, 3 * BYTES)
    for name in names[:4]:
        mirror.fetch(name)
    assert len(kept(mirror)) == 3
    for other, bound in ((None, 3), (5 * BYTES, 3), (2 * BYTES, 2), (4 * BYTES, 2), (None, 2)):
        assert mirror_of(tmp_path, other).most_bytes == mirror.most_bytes == bound * BYTES
        for reader in (mirror_of(tmp_path, other), mirror):
            for name in names[4:9]:
                reader.fetch(name)
                assert len(kept(mirror)) <= bound
    assert mirror_of(tmp_path / "another", None).most_bytes is None


def test_who_was_wanted_first_leaves_first_and_files_of_others_stay(names, tmp_path) -> None:
    mirror = mirror_of(tmp_path, 3 * BYTES)
    foreign = [tmp_path / "blocks" / "foreign.arrow", tmp_path / "blocks" / ".tmp-other", tmp_path / "foreign"]
    (tmp_path / "blocks").mkdir()
    for path in foreign:
        path.write_bytes(b"x" * 9 * BYTES)
    left_behind = tmp_path / "blocks" / ".tmp-packer-1-of-a-process-that-was-killed"
    left_behind.write_bytes(b"x" * BYTES)
    for name in names[:3]:
        mirror.fetch(name)
    assert mirror.keep([names[5], names[1], names[0]]) == [names[5]]
    mirror.fetch(names[5])
    assert kept(mirror) - {"blocks/foreign.arrow"} == {names[0], names[1], names[5]}
    mirror.fetch(names[6])
    assert kept(mirror) - {"blocks/foreign.arrow"} == {names[0], names[5], names[6]}
    assert all(path.stat().st_size == 9 * BYTES for path in foreign) and not left_behind.exists()
    mirror.remove_shards(but=[names[5]])
    assert kept(mirror) == {names[5], "blocks/foreign.arrow"}


def test_a_shard_that_never_has_room_is_refused(names, tmp_path) -> None:
    with pytest.raises(StorageError, match="20,000 bytes does not fit into the 19,999 bytes") as caught:
        mirror_of(tmp_path, BYTES - 1).fetch(names[0])
    assert "cache_bytes" in caught.value.hint


def test_what_comes_is_fetched_as_far_as_it_has_room_and_leaves_last(names, tmp_path) -> None:
    mirror = mirror_of(tmp_path, 5 * BYTES)
    mirror.fetch(names[20])
    mirror.fetch(names[3])
    ahead = FetchAhead(mirror)
    ahead.want([(name, BYTES) for name in names[:8]])
    wait_until(lambda: kept(mirror) == {*names[:5]})
    ahead.want([(name, BYTES) for name in names[4:8]])
    wait_until(lambda: kept(mirror) >= {*names[4:8]})
    ahead.close()
    assert len(kept(mirror)) == 5


def test_closing_ends_fetches_and_leaves_nothing_of_them(names, tmp_path, monkeypatch) -> None:
    mirror, writing = mirror_of(tmp_path, None), threading.Event()

    def endless(_bucket, _name, write):
        while True:
            write(memoryview(b"x"))
            writing.set()

    monkeypatch.setattr(Bucket, "download", endless)
    ahead = FetchAhead(mirror)
    ahead.want([(name, BYTES) for name in names])
    writing.wait()
    ahead.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "packer-fetch"]
    assert not [*(tmp_path / "blocks").iterdir()]


def test_what_goes_wrong_ahead_is_an_error_of_who_asks_for_it(names, in_memory, tmp_path) -> None:
    in_memory.replace(names[1], b"x" * BYTES)
    mirror = mirror_of(tmp_path, None)
    ahead = FetchAhead(mirror)
    ahead.want([(name, BYTES) for name in names])
    wait_until(lambda: len(kept(mirror)) == NUM_SHARDS - 1)
    ahead.close()
    with pytest.raises(CheckError, match="is damaged: its sha256"):
        mirror.fetch(names[1])


def test_a_lock_is_free_although_a_process_that_was_forked_meanwhile_has_its_file_open(tmp_path) -> None:
    """A descriptor that was copied is what a forked process has."""
    mirror = mirror_of(tmp_path, None)
    with mirror._locked("room"):
        own = [each for each in Path("/proc/self/fd").iterdir() if _leads_to(each, tmp_path / ".mirror" / "room")]
        copy = os.dup(int(own[0].name))
        with mirror._locked("room", wait=False) as is_alone:
            assert not is_alone
    with mirror._locked("room", wait=False) as is_alone:
        assert is_alone
    os.close(copy)


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
    expected = opened.documents("train").read(0).input_ids
    for path in opened.folder.rglob("*.arrow"):
        path.unlink()
    monkeypatch.setattr("packer.store.mirror._URLS", {})
    assert shown(opened.folder) == str(opened.folder)
    if not is_there:
        shutil.rmtree(tmp_path / "kept")
    blocks, documents, cache = map(pickle.loads, sent)
    assert len(blocks.read([0]).input_ids) == 1
    assert np.array_equal(documents.read(0).input_ids, expected)
    assert (shown(cache.folder), cache.fingerprint) == (in_memory.url, opened.fingerprint)
    assert repr(cache).startswith(f"<Cache '{in_memory.url}': "), "its name, by which any process opens it"
    assert len(list((tmp_path / "kept").rglob("*.arrow"))) >= 2


def test_a_copy_that_is_made_to_verify_is_forgotten_with_its_folder(in_memory: Bucket) -> None:
    with fresh_place(in_memory.url) as folder:
        assert shown(folder) == in_memory.url
    assert shown(folder) == str(folder) and not folder.exists()
