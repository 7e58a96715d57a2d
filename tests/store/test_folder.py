"""The cache folder: one writer, whole files or none, nothing left over, nothing of others touched."""

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from store.samples import document_batch, small_cache, write_documents

from packer.errors import BusyError, CheckError, ResourceError, StorageError
from packer.host.files import path_errors
from packer.store.cache import Cache
from packer.store.files import CacheFiles
from packer.store.folder import (
    AtomicFile,
    digest_file,
    digest_file_xxh3,
    lock,
    refuse_busy,
    sweep,
    write_atomically,
)
from packer.store.work_folder import work_folder


def test_a_lock_is_free_again_after_its_body_however_it_ends(tmp_path: Path) -> None:
    with pytest.raises(KeyError), lock(tmp_path):
        raise KeyError
    with lock(tmp_path), pytest.raises(BusyError, match=f"process {os.getpid()}"), lock(tmp_path):
        pytest.fail("two writers")
    with lock(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="cannot lock"), lock(tmp_path / "file" / "cache"):
        pytest.fail("locked a file")
    with pytest.raises(StorageError, match="cannot write into"):
        write_atomically(tmp_path / "file" / "a.json", b"")


def test_a_file_appears_whole_and_with_its_digests(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.bin"
    digest = write_atomically(path, [b"abc", b"", b"def" * 1_000_000])
    assert path.read_bytes() == b"abc" + b"def" * 1_000_000
    found = digest_file(path)
    assert (digest.num_bytes, digest.xxh3, digest.sha256) == (found.num_bytes, found.xxh3, found.sha256)
    assert digest.xxh3 == digest_file_xxh3(path)
    assert list(path.parent.iterdir()) == [path]
    write_atomically(path, b"other")
    assert path.read_bytes() == b"other"


def test_a_digest_of_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        digest_file(tmp_path / "missing")


def test_an_error_while_writing_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def chunks() -> Any:
        yield b"new"
        raise KeyError

    with pytest.raises(KeyError):
        write_atomically(path, chunks())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_refuses_at_the_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, refuse)
        with pytest.raises(StorageError, match=r"a\.bin: Input/output error"):
            write_atomically(tmp_path / "a.bin", b"x")
    assert list(tmp_path.iterdir()) == []


def test_sweep_removes_what_the_manifest_does_not_name_and_nothing_else(tmp_path: Path) -> None:
    cache, outside = tmp_path / "cache", tmp_path / "outside"
    manifest = small_cache(cache)
    outside.mkdir()
    (outside / "precious.arrow").write_text("x")
    strangers = [
        ".packer/units/a.json",
        "blocks/old.arrow",
        "documents/.tmp-packer-1-ab",
        "documents/old.arrow",
        "model/old.json",
    ]
    for name in strangers:
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_text("x")
    (cache / ".tmp-packer-1-cd").write_text("x")
    (cache / "blocks" / "link").symlink_to(outside)
    (cache / "notes.txt").write_text("mine")
    (cache / "mine").mkdir()
    (cache / "mine" / "old.arrow").write_text("mine")
    with lock(cache):
        removed = sweep(cache, manifest.named_files)
        assert sweep(cache, manifest.named_files) == ()
    assert set(removed) == {*strangers, ".tmp-packer-1-cd", "blocks/link"}
    assert (outside / "precious.arrow").exists()
    kept = {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}
    named = {shard.path for shard in manifest.shards}
    assert kept == named | {
        ".packer/lock",
        "manifest.json",
        "mine/old.arrow",
        "model/tokenizer.json",
        "notes.txt",
        "rejected.jsonl",
    }
    Cache.open(cache).blocks("train").verify()


def test_a_body_that_fails_under_the_lock_leaves_no_temporary_files_of_processes_it_ended(tmp_path: Path) -> None:
    shard = write_documents(tmp_path, [document_batch(3)])
    left = tmp_path / "documents" / ".tmp-packer-1-00000000"
    left.write_bytes(b"x")
    with pytest.raises(KeyboardInterrupt), lock(tmp_path):
        raise KeyboardInterrupt
    assert [*left.parent.iterdir()] == [tmp_path / shard.path]


LOCKS = {
    "a symbolic link": lambda place, canary: place.symlink_to(canary),
    "a pipe": lambda place, _: os.mkfifo(place),
    "a device": lambda place, _: place.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", LOCKS)
def test_a_lock_that_is_something_else_is_refused_and_nothing_is_written(kind: str, tmp_path: Path) -> None:
    cache, canary = tmp_path / "cache", tmp_path / "canary"
    canary.write_text("canary" * 10)
    (cache / ".packer").mkdir(parents=True)
    LOCKS[kind](cache / ".packer" / "lock", canary)
    refuse_busy(cache)
    with pytest.raises(StorageError, match="not a regular file"), lock(cache):
        pass
    assert canary.read_text() == "canary" * 10


def test_a_lock_that_is_another_folders_file_too_is_taken_and_not_written(tmp_path: Path) -> None:
    """As in copies made of hard links: a process's number there would be in the other one as well."""
    canary = tmp_path / "canary"
    canary.write_text("canary" * 10)
    (tmp_path / "cache" / ".packer").mkdir(parents=True)
    (tmp_path / "cache" / ".packer" / "lock").hardlink_to(canary)
    with lock(tmp_path / "cache"), pytest.raises(BusyError, match="another process"), lock(tmp_path / "cache"):
        pass
    assert canary.read_text() == "canary" * 10


def test_nothing_is_written_through_a_link_below_a_cache_whose_own_name_may_be_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "outside").mkdir()
    cache = tmp_path / "named"
    cache.symlink_to(tmp_path / "real")
    for inner in ("documents", ".packer"):
        (cache / inner).symlink_to(tmp_path / "outside")
        with pytest.raises(StorageError, match="symbolic link"):
            AtomicFile(cache / inner / "further", below=cache)
    with pytest.raises(StorageError, match="symbolic link"), lock(cache):
        pass
    assert list((tmp_path / "outside").iterdir()) == []
    (cache / ".packer").unlink()
    with lock(cache), AtomicFile(cache / "blocks", below=cache) as file:
        file.commit("a")
    assert (tmp_path / "real" / "blocks" / "a").exists()


def test_a_work_folder_is_real_and_its_own_and_leftovers_of_its_path_alone_are_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "new").mkdir(parents=True)
    with work_folder(tmp_path / "out") as first, work_folder(tmp_path / "other") as other:
        assert first.is_dir() and not first.is_symlink() and first != other
        shared = first.name.rpartition("-")[0]
        with pytest.raises(BusyError), work_folder(tmp_path / "out"):
            pass
        assert first.is_dir()
    (tmp_path / f"{shared}-left" / "old").mkdir(parents=True)
    (tmp_path / f"{shared}-link").symlink_to(outside)
    with work_folder(tmp_path / "out") as second:
        found = {path.name for path in tmp_path.iterdir()}
    assert found == {"outside", f"{shared}-link", second.name}
    assert (outside / "new").is_dir() and not second.exists()


@pytest.mark.parametrize(("number", "told"), [(errno.EINVAL, None), (errno.EIO, "Input/output error")])
def test_a_folder_that_cannot_be_flushed_is_reported_unless_its_file_system_never_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, told: str | None
) -> None:
    """Network and FUSE file systems answer EINVAL: there is nothing better than the rename then."""
    fsync, refused = os.fsync, []

    def refuse_folders(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            refused.append(descriptor)
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    if told is None:
        write_atomically(tmp_path / "a.bin", b"x")
    else:
        with pytest.raises(StorageError, match=told):
            write_atomically(tmp_path / "a.bin", b"x")
    assert refused
    assert (tmp_path / "a.bin").read_bytes() == b"x", "the file has its name already"


def test_a_folder_that_cannot_be_listed_is_reported_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = small_cache(tmp_path)
    scandir = os.scandir

    def refuse_blocks(path: Any) -> Any:
        if not isinstance(path, int) and Path(path).name == "blocks":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse_blocks)
    with pytest.raises(StorageError, match=r"cannot list .*blocks: Permission denied"):
        sweep(tmp_path, manifest.named_files)


def test_a_shard_that_cannot_be_begun_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(pa.ipc, "new_file", refuse)
    with pytest.raises(MemoryError):
        write_documents(tmp_path, [document_batch(3)])
    assert list((tmp_path / "documents").iterdir()) == []


def test_what_a_path_refuses_is_reported_with_the_path_and_other_errors_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"cannot use {tmp_path}/missing: No such file") as caught, path_errors():
        (tmp_path / "missing").stat()
    assert caught.value.hint is None
    with pytest.raises(BrokenPipeError), path_errors():
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def test_without_a_temporary_directory_the_hint_is_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python looks at several, and a full disk may have all of them."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    with pytest.raises(ResourceError, match=f"No usable temporary directory.*{tmp_path}") as caught, path_errors():
        tempfile.mkdtemp()
    assert "TMPDIR" in (caught.value.hint or "")


@pytest.mark.parametrize("passes", ["a link", "a link to a link of the cache", "a folder that is a link"])
def test_what_a_link_leads_to_outside_of_a_cache_is_neither_read_nor_measured(tmp_path: Path, passes: str) -> None:
    cache, outside = tmp_path / "cache", tmp_path / "outside"
    (cache / "own").mkdir(parents=True)
    outside.mkdir()
    (outside / "a.json").write_bytes(b"secret")
    (cache / "own" / "a.json").write_bytes(b"own")
    (cache / "inside").symlink_to(cache / "own")
    if passes == "a folder that is a link":
        (cache / "folder").symlink_to(outside)
    else:
        (cache / "folder").mkdir()
        (cache / "link").symlink_to(outside / "a.json")
        (cache / "folder" / "a.json").symlink_to(outside / "a.json" if passes == "a link" else cache / "link")
    (tmp_path / "named").symlink_to(cache)
    for folder in (cache, tmp_path / "named"):
        files = CacheFiles(folder)

        def first_byte(name: str, files: CacheFiles = files) -> list[bytes]:
            return [*files.read_ranges([(name, [(0, 1)])])]

        for read in (files.size, files.read, files.fetch, files.map, first_byte, files.sha256, files.xxh3):
            with pytest.raises(CheckError, match="is a link that leads out of the cache"):
                read("folder/a.json")
            read("inside/a.json")
        assert [*files.contents("folder", ["a.json"])] == []
        assert files.names("folder", ".json") == ([] if "folder" in passes else ["folder/a.json"])
        assert [*files.contents("inside", ["a.json"])] == [("a.json", b"own")]
