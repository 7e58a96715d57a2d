"""Buckets without a server: obstore's stores in memory and in a folder. tests/cluster asks a real server."""

import errno
import gzip
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import assert_refused, fields, run

from packer.batches import RowBatch
from packer.errors import BusyError, CheckError, InputError, StorageError, UsageError
from packer.names import bucket_url
from packer.pipeline import run as pipeline
from packer.source.partition import Partition, partition_file
from packer.source.rows import read_rows
from packer.store import bucket as buckets
from packer.store.bucket import Bucket
from packer.store.cache import Cache
from packer.store.place import build_place, copy_objects, make_mirror, objects_of
from packer.store.row_tables import content_fingerprint

obstore = pytest.importorskip("obstore", reason="OBSTORE MISSING: tests/requirements.txt")
URL = "s3://bucket/cache"


def test_urls_are_told_from_paths() -> None:
    assert bucket_url("s3://b/c/") == bucket_url(Path("s3://b/c")) == "s3://b/c"
    assert [bucket_url(text) for text in ("gs://b", "az://b/c", "abfss://b/c")] == ["gs://b", "az://b/c", "abfss://b/c"]
    assert not any(map(bucket_url, ("s3", "s3:", "s3://", "a/s3://b", "hf://datasets/a/b", "https://a/b", "C:/x")))


@pytest.mark.parametrize("bucket", ["s3://team", "gs://team", "az://team", "abfss://team@account.dfs.core.windows.net"])
@pytest.mark.parametrize("folder", ["victim#v2", "runs/a?b", "a%20b", "100%", "br[1]", "größe", "a+b c"])
def test_every_character_of_a_folder_is_part_of_its_name(
    bucket: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    _, store = buckets._opened(f"{bucket}/{folder}")
    assert store.prefix == folder
    assert "team" in store.config.values()


def test_a_url_that_names_no_bucket_is_refused() -> None:
    for url in ("s3://team#v2/cache", "s3://team?v2", "s3://team/a/../b", "s3://team/a//b"):
        with pytest.raises(UsageError, match="s3://team"):
            buckets._opened(url)


def test_an_object_is_made_once_and_replaced_by_who_has_seen_it(in_memory: Bucket) -> None:
    assert in_memory.read("x") is None and in_memory.size("x") is None
    assert in_memory.swap("x", None, b"1")
    assert not in_memory.swap("x", None, b"3") and not in_memory.swap("x", b"2", b"3")
    assert in_memory.swap("x", b"1", b"3") and in_memory.swap("x", b"1", b"3"), "it is there: an answer may be lost"
    assert in_memory.read("x") == b"3"
    assert in_memory.sizes() == {"x": 1}
    in_memory.refuse_unconditional()
    assert in_memory.sizes() == {"x": 1}, "the probe leaves nothing"


def test_an_object_that_is_larger_than_any_manifest_is_not_read(
    in_memory: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "MAX_READ_BYTES", 3)
    for size in (3, 4):
        in_memory.replace("x", b"x" * size)
        if size == 3:
            assert in_memory.read("x") is not None
    with pytest.raises(CheckError, match="/x: expected at most 3 bytes, found 4"):
        in_memory.read("x")


@pytest.fixture
def broken(in_memory: Bucket, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What becomes of the next writes whose connections break: `lost`, or `done`; or another build is faster."""
    put, left = obstore.put, list[str]()

    def breaking(*given: Any, **more: Any) -> None:
        kind = left.pop(0) if left else ""
        if kind == "overtaken":
            put(given[0], given[1], b"of another build")
        elif kind != "lost":
            put(*given, **more)
        if kind:
            raise obstore.exceptions.GenericError("Error performing PUT - HTTP error: error sending request")

    monkeypatch.setattr(obstore, "put", breaking)
    monkeypatch.setattr(buckets.time, "sleep", lambda _: None)
    return left


@pytest.mark.parametrize("kinds", [["lost"], ["done"], ["lost", "lost", "done"]])
def test_a_write_whose_connection_breaks_is_repeated(kinds: list[str], broken: list[str], in_memory: Bucket) -> None:
    for before, content in ((None, b"1"), (b"1", b"2")):
        broken.extend(kinds)
        assert in_memory.swap("manifest.json", before, content)
        assert in_memory.read("manifest.json") == content and not broken
    broken.extend(kinds)
    in_memory.replace("shard", b"x")
    assert in_memory.read("shard") == b"x" and not broken


def test_the_test_of_a_store_is_repeated_when_its_connection_breaks(broken: list[str], in_memory: Bucket) -> None:
    for kinds in (["lost", "", "lost"], ["done", "done", "", "lost"], ["", "", "lost"]):
        broken.extend(kinds)
        in_memory.refuse_unconditional()
        assert in_memory.sizes() == {} and not broken


@pytest.mark.parametrize("ends", [(0,), (1,), (2, 1), (3, 0, 2)])
def test_a_listing_that_breaks_off_is_made_again_and_names_each_object_once(
    ends: tuple[int, ...], in_memory: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks off after so many of its answers, each of two objects."""
    for number in range(7):
        in_memory.replace(f"x/{number}", bytes(number))
    listing, left = obstore.list, list(ends)

    def breaking(*given: Any, **more: Any) -> Iterator[Any]:
        end = left.pop(0) if left else None
        for number, batch in enumerate(listing(*given, chunk_size=2, **more)):
            if number == end:
                raise obstore.exceptions.GenericError(
                    "Error getting list response body: HTTP error: request or response"
                )
            yield batch

    monkeypatch.setattr(obstore, "list", breaking)
    monkeypatch.setattr(buckets.time, "sleep", lambda _: None)
    found = [(name, size) for name, size, _ in in_memory.listed("x")]
    assert sorted(found) == [(f"x/{number}", number) for number in range(7)] and not left


@pytest.mark.parametrize("within", [None, (2, 7)])
def test_an_answer_that_breaks_off_is_continued(
    within: tuple[int, int] | None, in_memory: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, content, asked = obstore.get, b"0123456789", []

    class BreaksOff:
        def __init__(self, result: Any) -> None:
            self.meta, self.range, self._content = result.meta, result.range, bytes(result.bytes())

        def stream(self, **_: Any) -> Iterator[bytes]:
            yield self._content[:2]
            if len(self._content) > 2:
                raise obstore.exceptions.GenericError("HTTP error: request or response body error")

    def breaking(*given: Any, options: Any, **more: Any) -> BreaksOff:
        asked.append(options.get("range"))
        return BreaksOff(get(*given, options=options, **more))

    monkeypatch.setattr(obstore, "get", breaking)
    monkeypatch.setattr(buckets.time, "sleep", lambda _: None)
    in_memory.replace("x", content)
    first, stop = within or (0, 10)
    assert b"".join(in_memory.stream("x", within=within)) == content[first:stop]
    assert asked == [within, *((start, stop) for start in range(first + 2, stop, 2))]


def test_a_build_that_is_overtaken_while_its_connection_is_broken_has_lost(
    broken: list[str], in_memory: Bucket
) -> None:
    in_memory.replace("manifest.json", b"1")
    broken.append("overtaken")
    assert not in_memory.swap("manifest.json", b"1", b"2")
    assert in_memory.read("manifest.json") == b"of another build"


def test_a_write_that_is_never_answered_ends_with_an_error(
    broken: list[str], in_memory: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken.extend(["lost"] * 9)
    monkeypatch.setattr(buckets, "_REPEATED_S", -1)
    with pytest.raises(StorageError, match="error sending request") as caught:
        in_memory.replace("shard", b"x")
    assert len(broken) == 8
    assert "check the network" in str(caught.value.hint)


def test_a_store_without_conditional_updates_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Obstore's own store of a folder creates conditionally and does not replace so."""
    store = obstore.store.LocalStore(tmp_path)
    monkeypatch.setattr(buckets, "_opened", lambda _: (obstore, store))
    with pytest.raises(StorageError) as caught:
        Bucket(URL).refuse_unconditional()
    assert caught.value.hint
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_cache_in_a_bucket_is_the_one_of_a_folder(in_memory: Bucket, starter: Path, tmp_path: Path) -> None:
    rows, model = starter / "data" / "chat.jsonl", starter / "tokenizer"
    run("build", rows, "--tokenizer", model, "--block-len", 128, "--fail-above", 1, "-o", tmp_path / "local")
    assert (
        fields("build", rows, "--tokenizer", model, "--block-len", 128, "--fail-above", 1, "-o", URL)["folder"] == URL
    )
    names = {str(path.relative_to(tmp_path / "local")) for path in (tmp_path / "local").rglob("*") if path.is_file()}
    names -= {".packer/lock"}
    assert {name: in_memory.read(name) for name in names} == {
        name: (tmp_path / "local" / name).read_bytes() for name in names
    }
    with Cache.open(tmp_path / "local") as local, Cache.open(URL, cache_dir=tmp_path / "reader") as cache:
        order = np.arange(len(local.blocks("train")))[::-1]
        assert np.array_equal(cache.blocks("train").read(order).labels, local.blocks("train").read(order).labels)
        assert cache.fingerprint == local.fingerprint
    with Cache.open(URL, cache_dir=tmp_path / "columns") as cache:
        assert content_fingerprint(cache.folder, cache.manifest.shards) == cache.manifest.content_fingerprint
        assert cache.documents("train").stored("length", np.int32).sum() == cache.manifest.totals.tokens
    assert not list((tmp_path / "columns").rglob("*.arrow")), "columns alone are read, and no shard is fetched"
    assert (tmp_path / "reader").is_dir()
    run("verify", URL)


def test_a_build_that_another_one_overtook_commits_nothing(in_memory: Bucket, tmp_path: Path) -> None:
    first, second = (make_mirror(tmp_path / name, URL) for name in ("first", "second"))
    first.commit("manifest.json", b"of the first", before=None, named=())
    with pytest.raises(BusyError, match="another build committed") as caught:
        second.commit("manifest.json", b"of the second", before=None, named=())
    assert caught.value.hint
    assert second.refresh("manifest.json") == (None, in_memory.read("manifest.json")) == (None, b"of the first")
    second.commit("manifest.json", b"of the second", before=b"of the first", named=())
    assert in_memory.read("manifest.json") == b"of the second"


@pytest.mark.parametrize("began_with", [None, b"the first cache"])
def test_a_build_is_overtaken_also_if_another_command_of_its_machine_has_seen_the_other_cache(
    began_with: bytes | None, in_memory: Bucket, starter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other command updates the manifest in the folder that both work in."""
    if began_with is not None:
        in_memory.replace("manifest.json", began_with)

    def overtaken(*given: Any, **more: Any) -> Any:
        in_memory.replace("manifest.json", b"of another machine")
        assert (build_place(URL, is_dry=True) / "manifest.json").read_bytes() == b"of another machine"
        return pack(*given, **more)

    pack = pipeline.pack_documents
    monkeypatch.setattr(pipeline, "pack_documents", overtaken)
    rows, model = starter / "data" / "chat.jsonl", starter / "tokenizer"
    command = ["build", rows, "--tokenizer", model, "--block-len", 128, "--fail-above", 1, "-o", URL]
    told = run(*command, exit_code=4)
    assert "another build committed a cache there meanwhile" in told.stderr
    assert in_memory.read("manifest.json") == b"of another machine"


def test_without_the_library_the_extra_is_named(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    buckets._opened.cache_clear()
    assert_refused("s3://b/c: caches and inputs in buckets need obstore", "stats", "s3://b/c", exit_code=2)
    with pytest.raises(UsageError) as caught:
        Cache.open("gs://b/c", cache_dir=tmp_path)
    assert caught.value.hint == 'pip install "token-packer[cloud]"'


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        *(
            (
                f"Server returned non-2xx status code: 404: <Error>\n<Code>{code}</Code>",
                "there is no bucket 'bucket'",
                "check its name",
            )
            for code in ("NoSuchBucket", "ContainerNotFound")
        ),
        (
            "Error performing PUT http://169.254.169.254/latest/api/token",
            "Error performing PUT",
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and others, not from ~/.aws",
        ),
    ],
)
def test_what_a_store_refuses_is_said_in_words(
    said: str, message: str, hint: str, in_memory: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise obstore.exceptions.GenericError(said)

    for name in ("list", "get", "put", "head"):
        monkeypatch.setattr(obstore, name, refuse)
    for ask in (
        in_memory.sizes,
        lambda: in_memory.read("x"),
        lambda: in_memory.replace("x", b""),
        lambda: in_memory.size("x"),
    ):
        with pytest.raises(StorageError, match=f"cannot .*: {message}") as caught:
            ask()
        assert hint in caught.value.hint


def test_a_panic_of_obstore_is_an_error_like_any_other(in_memory: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: Any, **__: Any) -> None:
        raise PanicException("request valid")

    monkeypatch.setattr(obstore, "get", panic)
    with pytest.raises(StorageError, match="cannot read s3://bucket/cache/x: request valid"):
        in_memory.read("x")


@pytest.mark.parametrize("name", ["a\x01b", "../a", "a//b", "\ud83d"])
def test_a_name_that_obstore_refuses_is_an_error_like_any_other(in_memory: Bucket, name: str) -> None:
    for ask in (in_memory.read, in_memory.size, in_memory.sizes, partial(in_memory.replace, content=b"")):
        with pytest.raises(StorageError, match=r"cannot .* s3://bucket/cache/") as caught:
            ask(name)
        assert caught.value.hint


def test_a_folder_as_an_input_is_said_to_be_one(in_memory: Bucket) -> None:
    for name in ("folder/a.jsonl", "a.jsonl"):
        in_memory.replace(name, b"{}")
    for url in (f"{URL}/folder/", f"{URL}/folder", "s3://bucket"):
        # Every URL leads to one store here, so that what is below a folder is what is below its bucket.
        with pytest.raises(InputError, match="is a folder") as caught:
            objects_of(url)
        assert caught.value.hint == f"'{url.rstrip('/')}/**/*.jsonl' names the files in it"


def test_a_disk_that_takes_no_copies_is_a_matter_of_where_they_are_kept(in_memory: Bucket) -> None:
    in_memory.replace("manifest.json", b"{}")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("packer.store.place.make_folder", lambda _: (_ for _ in ()).throw(full))
        told = run("stats", URL, exit_code=5)
    assert "No space left on device" in told.stderr and "with PACKER_CACHE_DIR" in told.stderr


def test_errors_name_the_url_that_a_folder_stands_for_unless_they_are_about_the_disk(tmp_path: Path) -> None:
    folder = make_mirror(tmp_path / "copy", "s3://bucket/cache").folder
    error = CheckError(f"{folder / 'a.arrow'} is damaged", hint=f"packer build -o {folder} --repair")
    assert error.message == "s3://bucket/cache/a.arrow is damaged"
    assert error.hint == "packer build -o s3://bucket/cache --repair"
    assert StorageError(f"cannot write {folder}").message == f"cannot write {folder}"


def test_an_object_is_taken_by_its_name_before_those_that_the_name_matches(in_memory: Bucket) -> None:
    in_memory.replace("br[1].jsonl", b"{}")
    in_memory.replace("br1.jsonl", b"{}")
    assert [str(file) for file in objects_of(f"{URL}/br[1].jsonl")] == [f"{URL}/br[1].jsonl"]
    in_memory.remove(["br[1].jsonl"])
    assert [str(file) for file in objects_of(f"{URL}/br[1].jsonl")] == [f"{URL}/br1.jsonl"]


def test_an_object_may_have_any_name_however_long(in_memory: Bucket) -> None:
    name = "行" * 160 + ".jsonl"
    in_memory.replace(name, b"{}")
    (file,) = objects_of(f"{URL}/{name}")
    assert Path(file).read_bytes() == b"{}"


def test_without_a_home_directory_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PACKER_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def no_home() -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    told = run("stats", "s3://bucket/cache", exit_code=2)
    assert "there is no home directory" in told.stderr and "set PACKER_CACHE_DIR" in told.stderr


def test_a_build_continues_where_one_ended_before_its_first_note(in_memory: Bucket, starter: Path) -> None:
    in_memory.replace("documents/train-00000-0123456789ab.arrow", b"of a build that was interrupted")
    run("build", "-c", starter / "recipe.yaml", "-o", URL)
    run("verify", URL)


@pytest.mark.parametrize("codec", ["", ".gz"])
def test_an_object_is_cut_and_read_as_a_file_is_and_never_lies_on_the_disk(
    codec: str, in_memory: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"\xef\xbb\xbf" + b"".join(b'{"text": "%d"}\n' % number for number in range(30_000))
    (tmp_path / "rows").write_bytes(gzip.compress(content) if codec else content)
    in_memory.replace("rows.jsonl", tmp_path / "rows")
    asked: list[tuple[int, int]] = []
    stream = Bucket.stream

    def noted(*given: Any, within: tuple[int, int], **more: Any) -> Iterator[bytes]:
        asked.append(within)
        return stream(*given, within=within, **more)

    monkeypatch.setattr(Bucket, "stream", noted)
    (file,) = objects_of(f"{URL}/*.jsonl")
    cut, local = (
        partition_file(path, format="jsonl", partition_bytes=2**16, limit=None) for path in (file, tmp_path / "rows")
    )
    assert cut.sha256 == local.sha256 and asked
    assert [replace(each, path=tmp_path / "rows") for each in cut.partitions] == [*local.partitions]

    def rows(each: Partition) -> list[RowBatch]:
        return list(read_rows(each, schema="text", columns={}, max_row_bytes=1000))

    asked.clear()
    assert [rows(each) for each in cut.partitions] == [rows(each) for each in local.partitions]
    if not codec:
        assert asked == [(each.start, each.stop) for each in cut.partitions] and len(asked) > 3
    assert not (tmp_path / "kept").exists()
    assert Path(file).read_bytes() == (tmp_path / "rows").read_bytes(), "a copy is made for who needs a path"
    in_memory.replace("rows.jsonl", b"others")
    assert rows(cut.partitions[0]) == rows(local.partitions[0]), "and read from then on"
    Path(file).unlink()
    with pytest.raises(InputError, match=r"s3://bucket/cache/rows.jsonl: .*has been replaced"):
        rows(cut.partitions[0])
    with pytest.raises(InputError, match=r"s3://bucket/cache/rows.jsonl: .*has been replaced"):
        copy_objects([file])


def test_a_partition_that_stands_elsewhere_in_a_later_build_is_not_uploaded_again(
    in_memory: Bucket, starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        lines = [f'{{"prompt": "row {number} {i}", "completion": "words and words"}}\n' for i in range(50)]
        (tmp_path / f"{number}.jsonl").write_text("".join(lines))
    written: list[str] = []
    replace = Bucket.replace

    def noted(bucket: Bucket, name: str, content: Any) -> None:
        written.append(name)
        replace(bucket, name, content)

    monkeypatch.setattr(Bucket, "replace", noted)
    for first, expected in ((1, 2), (0, 1)):
        written.clear()
        files = [tmp_path / f"{number}.jsonl" for number in range(first, 3)]
        run("build", *files, "--tokenizer", starter / "tokenizer", "--block-len", 64, "-j", 1, "-o", URL)
        assert sum(name.startswith("documents/") for name in written) == expected
    run("verify", URL)
