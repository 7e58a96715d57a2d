"""Damage: any file that is not what was written is refused with a reason, and never crashes the process."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from flipped_bits import flip
from single_documents import read_document
from store.samples import block_batch, document_batch, small_cache, write_blocks, write_documents

from packer.errors import CheckError, StorageError
from packer.store import writing as documents_module
from packer.store.cache import Cache
from packer.store.files import CacheFiles
from packer.store.manifest import Shard
from packer.store.shards import BlockShards, DocumentShards


def _shard(folder: Path, kind: str) -> Shard:
    if kind == "documents":
        return write_documents(folder, [document_batch(40)])
    return write_blocks(folder, [block_batch(20)])


@pytest.mark.parametrize("kind", ["documents", "blocks"])
def test_a_damaged_row_is_refused_by_file_row_and_digests(tmp_path: Path, kind: str) -> None:
    shard = _shard(tmp_path, kind)
    column, size = ("doc_id", 8) if kind == "documents" else ("length", 4)
    flip(tmp_path / shard.path, shard.places[0].columns[column] + size * 3)  # of row 3
    reader = DocumentShards(tmp_path, [shard]) if kind == "documents" else BlockShards(tmp_path, [shard])
    message = rf"{shard.path} is damaged: row 3: expected digest [0-9a-f]{{16}}, found [0-9a-f]{{16}}"
    with pytest.raises(CheckError, match=message):
        reader.verify()
    reader.verify(np.array([0, 1, 2, 4, 5]))
    with pytest.raises(CheckError, match=message):
        reader.verify(np.array([5, 3]))
    if isinstance(reader, BlockShards):
        reader.read(np.array([0, 1, 2]))
        for _ in range(2):  # a row found damaged stays damaged
            with pytest.raises(CheckError, match=message):
                reader.read(np.array([0, 3]))
    else:
        with pytest.raises(CheckError, match=message):
            read_document(reader, 3)
        assert read_document(reader, 2).length > 0


def test_a_row_is_digested_once_and_again_when_asked(tmp_path: Path) -> None:
    """A file changed under a reader: rows already checked are believed by `read`, not by `verify`."""
    shard = _shard(tmp_path, "blocks")
    reader = BlockShards(tmp_path, [shard])
    reader.read(np.array([3]))
    with (tmp_path / shard.path).open("r+b") as file:
        file.seek(shard.places[0].columns["length"] + 4 * 3)
        file.write(b"\x07\x07\x07\x07")
    assert reader.read(np.array([3])).length.tolist() == [0x07070707]
    with pytest.raises(CheckError, match="row 3"):
        reader.verify()


def test_every_byte_of_the_shards_of_chosen_documents_is_checked(tmp_path: Path) -> None:
    shard = _shard(tmp_path, "documents")
    chosen = DocumentShards(tmp_path, [shard], chosen=np.array([0], np.int64))
    chosen.verify_files()
    with (tmp_path / shard.path).open("r+b") as file:
        file.seek(shard.places[0].columns["doc_id"] + 8 * 3)  # of another document
        file.write(b"\x07")
    read_document(chosen, 0)
    with pytest.raises(CheckError, match=f"{shard.path} is damaged: expected xxh3-128 {shard.xxh3}, found") as caught:
        chosen.verify_files()
    assert "--repair" in str(caught.value.hint)


def test_places_that_are_not_the_files_are_refused(tmp_path: Path) -> None:
    shard = _shard(tmp_path, "documents")
    values = json.loads(msgspec.json.encode(shard))
    place = values["places"][0]
    for change, message in [
        ({"places": [{**place, "columns": {"digest": place["columns"]["digest"]}}]}, "is not where the manifest says"),
        ({"places": [{**place, "num_rows": 39}], "num_rows": 39}, "is not where"),
        ({"places": [place, {**place, "first_row": 40}], "num_rows": 80}, "expected 2 record batches, found 1"),
    ]:
        changed = msgspec.convert(values | change, Shard)
        with pytest.raises(CheckError, match=message):
            DocumentShards(tmp_path, [changed]).verify()


def test_places_that_no_file_has_are_refused_before_one_is_opened(tmp_path: Path) -> None:
    shard = _shard(tmp_path, "documents")
    values = json.loads(msgspec.json.encode(shard))
    place, half = values["places"][0], values["num_bytes"] // 2
    for change in [
        {"places": []},
        {"num_rows": 41},
        {"num_bytes": half},
        {"places": [{**place, "columns": {}}]},
        {"places": [{**place, "columns": place["columns"] | {"row": 2**53 - 1}}]},
        {"places": [{**place, "num_rows": 4000}], "num_rows": 4000},
        {"places": [place, {**place, "first_row": 39}], "num_rows": 80},
        {"num_tokens": values["num_bytes"]},
        {"num_trained": values["num_bytes"]},
    ]:
        with pytest.raises(msgspec.ValidationError, match=r"do not add up to its rows, or are not|tokens in \d+ bytes"):
            msgspec.convert(values | change, Shard)


def test_shards_of_another_kind_are_not_taken(tmp_path: Path) -> None:
    shard = _shard(tmp_path, "documents")
    with pytest.raises(ValueError, match="expected shards of blocks"):
        BlockShards(tmp_path, [shard])
    disguised = msgspec.structs.replace(shard, kind="blocks")
    with pytest.raises(CheckError, match="schema is not the one of blocks"):
        BlockShards(tmp_path, [disguised]).read(np.array([0]))


def test_shards_of_two_block_lengths_do_not_mix(tmp_path: Path) -> None:
    shards = [write_blocks(tmp_path, [block_batch(3, block_len=n)], index=n) for n in (16, 32)]
    reader = BlockShards(tmp_path, shards)
    for _ in range(2):
        with pytest.raises(CheckError, match="expected blocks of 16 tokens, found 32"):
            reader.read(np.array([0, 3]))


def test_record_batches_that_do_not_follow_one_another_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "BATCH_ROWS", 7)
    shard = write_documents(tmp_path, [document_batch(20)])
    assert len(shard.places) == 3
    second = msgspec.structs.replace(shard.places[1], first_row=6)
    with pytest.raises(ValueError, match="its record batches do not add up to its rows"):
        msgspec.structs.replace(shard, places=(shard.places[0], second, shard.places[2]))


def test_a_shard_that_links_to_itself_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / small_cache(tmp_path).shards[0].path
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(StorageError, match=r"cannot read .*Too many levels of symbolic links"):
        Cache.open(tmp_path)


def test_a_shard_that_goes_behind_the_look_at_its_size_is_missing_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build with --force may remove it at any moment."""
    path = tmp_path / small_cache(tmp_path).shards[0].path
    cache = Cache.open(tmp_path)
    mapped = CacheFiles.map

    def goes(files: CacheFiles, name: str) -> pa.Buffer:
        path.unlink()
        return mapped(files, name)

    monkeypatch.setattr(CacheFiles, "map", goes)
    with pytest.raises(CheckError, match=f"{path} is missing: expected [0-9]+ bytes"):
        read_document(cache.documents("train"), 0)


def test_a_shard_that_is_gone_is_missing_to_who_reads_a_column_of_it(tmp_path: Path) -> None:
    path = tmp_path / small_cache(tmp_path).shards[0].path
    documents = Cache.open(tmp_path).documents("train")
    path.unlink()
    with pytest.raises(CheckError, match=f"{path} is missing: expected [0-9]+ bytes"):
        list(documents.by_shard({"length": np.int32}))
