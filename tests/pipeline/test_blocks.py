"""A block shard is made from the document shards of its groups, and is the one that all documents would make."""

import json
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from packer.pipeline.blocks import BlockTask, block_worker, pack_split
from packer.pipeline.from_python import build
from packer.recipe.groups import Pack
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache
from packer.store.manifest import Shard, read_manifest
from packer.store.row_tables import documents_of
from packer.store.shards import DocumentShards

RULES = {"split": {"shares": {"validation": 0.3}}}


@pytest.mark.parametrize("rules", [{}, RULES], ids=["all rows", "rules about rows"])
def test_a_task_has_the_shards_of_its_groups_and_writes_what_all_documents_would(
    rules: dict[str, object], starter: Path, tmp_path: Path
) -> None:
    rows = [{"prompt": f"row {i}", "completion": "word " * (1 + i * 7 % 40)} for i in range(180)]
    weighted = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0.5}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.jsonl").write_text(json.dumps({"messages": weighted}) + "\n")
    recipe = make_recipe(
        {
            "sources": [{"path": str(tmp_path / name)} for name in ("a.jsonl", "b.jsonl")],
            "tokenizer": str(starter / "tokenizer"),
            "pack": {"block_len": 128, "group_documents": 20},
            "partition_bytes": 2**14,
            "shard_bytes": 2**14,
            **rules,
        }
    )
    build(recipe, tmp_path / "cache", jobs=1)
    manifest, model = read_manifest(tmp_path / "cache"), read_manifest(tmp_path / "cache").model
    work = block_worker(tmp_path / "cache", recipe.pack, model.pad_id)
    most, made, num_groups = 0, list[Shard](), 0
    for split, documents in documents_of(tmp_path / "cache", manifest).items():
        for number, (packed, shard_tasks) in enumerate(
            pack_split(split, documents, recipe.pack, shard_bytes=recipe.shard_bytes)
        ):
            tasks = list(shard_tasks)
            most = max([most, *(len(task.documents.shards) for task in tasks)])
            whole = [_of_all(task, documents) for task in tasks]
            of_group = {*range(20 * number, 20 * number + 20)}
            assert all({*task.plan.document.tolist()} <= of_group for task in whole)
            num_groups += 1
            shards = [*map(work, tasks)]
            assert shards == [*map(work, whole)]
            assert sum(shard.num_rows for shard in shards) == packed.num_blocks
            made += shards
    assert made == [shard for shard in manifest.shards if shard.kind == "blocks"]
    assert num_groups > 2
    assert len(made) > 8 and any(
        documents.weighted for documents in documents_of(tmp_path / "cache", manifest).values()
    )
    assert most < sum(shard.kind == "documents" for shard in manifest.shards) / 2


def _of_all(task: BlockTask, documents: DocumentShards) -> BlockTask:
    """The task with all documents of its split."""
    first = documents.find(int(task.documents.doc_ids()[0]))
    assert first is not None
    return replace(task, documents=documents, plan=replace(task.plan, document=task.plan.document + first))


def test_document_shards_are_let_go_once_their_blocks_are_written(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may hold some 65,000 maps of files, which the shards of a hundred block shards times a thousand exceed."""
    opened: list[weakref.ref[DocumentShards]] = []
    alive: list[int] = []
    of_shards = DocumentShards.of_shards

    def counted(documents: DocumentShards, first: int, last: int) -> tuple[DocumentShards, int]:
        own, before = of_shards(documents, first, last)
        opened.append(weakref.ref(own))
        alive.append(sum(each() is not None for each in opened))
        return own, before

    monkeypatch.setattr(DocumentShards, "of_shards", counted)
    for number in range(40):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"text": f"text {number} and words"}) + "\n")
    build(
        make_recipe(
            {
                "sources": [{"path": str(tmp_path / "*.jsonl")}],
                "tokenizer": str(starter / "tokenizer"),
                "pack": {"block_len": 32},
                "shard_bytes": 2**9,
            }
        ),
        tmp_path / "cache",
        jobs=1,
    )
    assert len(opened) > 8
    assert max(alive) <= 4


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
