"""A block shard is made from the few document shards of its documents, which are let go once it is written."""

import json
import weakref
from itertools import accumulate
from pathlib import Path

import pytest
from packed_caches import check_packing

from packer.pipeline.blocks import pack_split
from packer.pipeline.from_python import build
from packer.recipe.groups import Pack
from packer.store.cache import Cache
from packer.store.manifest import read_manifest
from packer.store.shards import DocumentShards


def test_a_block_shard_needs_few_document_shards_and_lets_them_go(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may hold some 65,000 maps of files, which the shards of a hundred block shards times a thousand exceed."""
    opened: list[weakref.ref[DocumentShards]] = []
    alive: list[int] = []
    needed: list[int] = []
    of_shards = DocumentShards.of_shards

    def counted(documents: DocumentShards, first: int, last: int) -> tuple[DocumentShards, int]:
        own, before = of_shards(documents, first, last)
        opened.append(weakref.ref(own))
        needed.append(len(own.shards))
        alive.append(sum(each() is not None for each in opened))
        return own, before

    monkeypatch.setattr(DocumentShards, "of_shards", counted)
    for number in range(40):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"text": f"text {number} and words"}) + "\n")
    keys = {"tokenizer": starter / "tokenizer", "pack": {"block_len": 32, "group_documents": 10}, "shard_bytes": 2**9}
    build(tmp_path / "*.jsonl", tmp_path / "cache", **keys, jobs=1, progress=None)
    assert len(opened) > 8
    assert max(alive) <= 4
    assert max(needed) <= 10
    check_packing(tmp_path / "cache")
    blocks = [each for each in read_manifest(tmp_path / "cache").shards if each.kind == "blocks"]
    assert [each.first_row for each in blocks] == [0, *accumulate(each.num_rows for each in blocks)][:-1]


def test_trained_runs_are_read_only_if_a_document_is_cut(starter_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning needs no more than lengths of the documents that fit."""
    read: list[DocumentShards] = []
    runs = DocumentShards.runs
    monkeypatch.setattr(DocumentShards, "runs", lambda documents: read.append(documents) or runs(documents))
    with Cache.open(starter_cache) as cache:
        documents = cache.documents("train")
        longest = int(documents.lengths().max())
        for block_len, num_read in ((longest, 0), (longest - 1, 1)):
            pack = Pack(block_len=block_len, overlong="split")
            assert [*pack_split("train", documents, pack, shard_bytes=2**20)]
            assert len(read) == num_read
