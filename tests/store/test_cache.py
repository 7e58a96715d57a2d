"""A finished cache, opened."""

import contextlib
import json
import pickle
import struct
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rejected_lines import write_rejected
from single_documents import read_document
from store.samples import block_batch, document_batch, small_cache, small_manifest

from packer.errors import CheckError, UsageError
from packer.store.cache import Cache, DocumentShards, fingerprint
from packer.store.folder import digest_file
from packer.store.manifest import write_manifest
from packer.store.row_tables import (
    Rejected,
    content_fingerprint,
    is_pending,
    publish_rejected,
    read_rejected,
    stage_rejected,
)


def test_an_opened_cache_gives_its_shards_by_split(tmp_path: Path) -> None:
    manifest = small_cache(tmp_path)
    with Cache.open(str(tmp_path)) as cache:
        assert cache.folder == tmp_path
        assert cache.manifest == manifest
        assert cache.fingerprint == fingerprint(manifest)
        assert cache.splits("documents") == cache.splits("blocks") == ("train",)
        blocks, documents = cache.blocks("train"), cache.documents("train")
        assert (len(blocks), len(documents)) == (48, 40)
        assert cache.blocks("train") is blocks
        np.testing.assert_array_equal(blocks.read(np.arange(12, 24)).input_ids, block_batch(12, seed=1).input_ids)
        assert (
            read_document(documents, 20).input_ids.tolist()
            == document_batch(20, seed=1).input_ids[:35].tolist()[: read_document(documents, 20).length]
        )
        assert [int(each[25]) for each in documents.origins()] == [1, 55]
        with pytest.raises(UsageError, match="has no blocks of split 'valid'") as caught:
            cache.blocks("valid")
        assert caught.value.hint == "splits with blocks: train"


def test_the_content_fingerprint_is_of_documents_with_their_rows_and_of_digests_of_blocks_in_order(
    tmp_path: Path,
) -> None:
    shards = small_cache(tmp_path).shards
    with Cache.open(tmp_path) as cache:
        documents, blocks = cache.documents("train"), cache.blocks("train")
        rows = documents.origins()[1].tolist()
        of_documents = b"".join(
            struct.pack("<2q", read_document(documents, i).doc_id, rows[i]) for i in range(len(documents))
        )
        of_blocks = b"".join(
            struct.pack("<Q", opened.digest(row)) for opened, _ in blocks.chunks() for row in range(len(opened.length))
        )
        assert len(shards) == 4 and len(of_documents) == 16 * 40 and len(of_blocks) == 8 * 48
        lines = [
            f"{kind}/train {sha256(each).hexdigest()}\n"
            for kind, each in (("blocks", of_blocks), ("documents", of_documents))
        ]
        assert content_fingerprint(tmp_path, shards) == sha256("".join(lines).encode()).hexdigest()
        chosen = np.array([3, 4, 30])
        some = {"train": DocumentShards(tmp_path, documents.shards, chosen=chosen)}
        of_some = b"".join(of_documents[16 * i : 16 * i + 16] for i in chosen.tolist())
        line = f"documents/train {sha256(of_some).hexdigest()}\n"
        assert content_fingerprint(tmp_path, documents.shards, some) == sha256(line.encode()).hexdigest()


def test_arrays_stay_valid_after_the_cache_is_closed(tmp_path: Path) -> None:
    small_cache(tmp_path)
    with Cache.open(tmp_path) as cache:
        ids = read_document(cache.documents("train"), 0).input_ids
        expected = ids.tolist()
    del cache
    assert ids.tolist() == expected


def test_a_pickled_cache_opens_the_same_rows_or_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = small_cache(tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(Cache.open("cache"))
    monkeypatch.chdir("/")
    again = pickle.loads(pickled)
    assert again.manifest == manifest
    assert len(again.blocks("train")) == 48
    write_manifest(tmp_path / "cache", msgspec.structs.replace(manifest, engine_version="2"))
    assert len(pickle.loads(pickled).blocks("train")) == 48
    write_manifest(tmp_path / "cache", msgspec.structs.replace(manifest, rules_version=2))
    with pytest.raises(CheckError, match="was built again while in use"):
        pickle.loads(pickled)


def test_no_file_stays_open(tmp_path: Path) -> None:
    """A cache may have more shards than a process may have files."""
    small_cache(tmp_path)
    cache = Cache.open(tmp_path)
    cache.blocks("train").verify()
    cache.documents("train").verify()
    with (tmp_path / "manifest.json").open("rb"):
        assert open_files(tmp_path) == ["manifest.json"], "this is how one would be seen"
    assert open_files(tmp_path) == []


def open_files(folder: Path) -> list[str]:
    """Files below a folder that this process has open; other threads may have others."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself is gone
            found.append(descriptor.readlink())
    return [path.name for path in found if path.is_relative_to(folder)]


def test_rejected_rows_come_back_in_order_as_json_lines(tmp_path: Path) -> None:
    rows = [
        Rejected(source="a.jsonl", row=3, code="empty", reason="the row has no messages"),
        Rejected(source="ü.jsonl", row=0, code="overlong", reason="9 tokens\nof 8", document=-5),
    ]
    digests = write_rejected(tmp_path, iter(rows))
    path = tmp_path / "rejected.jsonl"
    assert digest_file(path).sha256 == digests["rejected_sha256"]
    assert list(read_rejected(tmp_path, small_manifest(**digests))) == rows
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [
        {"source": "a.jsonl", "row": 3, "code": "empty", "reason": "the row has no messages"},
        {"source": "ü.jsonl", "row": 0, "code": "overlong", "reason": "9 tokens\nof 8", "document": -5},
    ]


@pytest.mark.parametrize("line", [b"{", b"\n", b'{"source": "a"}\n', b'{"extra": 1}\n', b'{"source": "\xff"}\n'])
def test_a_damaged_line_is_refused_by_its_number(tmp_path: Path, line: bytes) -> None:
    write_rejected(tmp_path, [Rejected(source="a", row=0, code="empty", reason="x")])
    path = tmp_path / "rejected.jsonl"
    before = digest_file(path).sha256
    with path.open("ab") as file:
        file.write(line)
    with pytest.raises(CheckError, match=f"rejected.jsonl is damaged: expected sha256 {before}"):
        list(read_rejected(tmp_path, small_manifest(rejected_sha256=before)))
    damaged = small_manifest(rejected_sha256=digest_file(path).sha256)
    with pytest.raises(CheckError, match="line 2"):
        list(read_rejected(tmp_path, damaged))
    path.unlink()
    with pytest.raises(CheckError, match="is missing"):
        list(read_rejected(tmp_path, damaged))


def test_what_is_staged_is_read_before_it_is_published_and_the_old_file_by_the_old_manifest(tmp_path: Path) -> None:
    """The file has one name, and the manifest is replaced before it: each manifest finds its own lines, or none."""
    old_lines, new_lines = ([Rejected(source=name, row=0, code="empty", reason="x")] for name in ("old", "new"))
    old = small_manifest(**write_rejected(tmp_path, old_lines))
    new = small_manifest(**write_rejected(tmp_path / "aside", new_lines))
    with pytest.raises(CheckError, match=r"rejected\.jsonl is damaged"):
        list(read_rejected(tmp_path, new))
    assert stage_rejected(tmp_path, new_lines) == (new.rejected_sha256, new.rejected_content)
    assert is_pending(tmp_path, new) and not is_pending(tmp_path, old)
    assert (list(read_rejected(tmp_path, old)), list(read_rejected(tmp_path, new))) == (old_lines, new_lines)
    publish_rejected(tmp_path, new)
    assert not is_pending(tmp_path, new)
    assert list(read_rejected(tmp_path, new)) == new_lines
    assert [json.loads(line)["source"] for line in (tmp_path / "rejected.jsonl").read_text().splitlines()] == ["new"]
    with pytest.raises(CheckError, match=r"rejected\.jsonl is damaged"):
        list(read_rejected(tmp_path, old))
    publish_rejected(tmp_path, new)  # nothing is left to do
    assert list(read_rejected(tmp_path, new)) == new_lines


def test_rejected_rows_are_not_read_through_a_link_that_leads_out_of_the_cache(tmp_path: Path) -> None:
    cache, outside = tmp_path / "cache", tmp_path / "outside"
    manifest = small_manifest(**write_rejected(outside, []))
    cache.mkdir()
    (cache / "rejected.jsonl").symlink_to(outside / "rejected.jsonl")
    with pytest.raises(CheckError, match="leads out of the cache"):
        list(read_rejected(cache, manifest))
