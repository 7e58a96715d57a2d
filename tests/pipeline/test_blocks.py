"""A block shard is made from the document shards of its groups, and is the one that all documents would make."""

import json
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from packer.pipeline import blocks
from packer.pipeline.blocks import BlockForm, BlockTask, block_worker, pack_split
from packer.pipeline.documents import BuildOptions
from packer.pipeline.from_python import build
from packer.pipeline.run import build_recipe
from packer.pipeline.workers.executor import Processes
from packer.progress import Silent
from packer.recipe.recipe import make_recipe
from packer.store.document_shards import DocumentShards
from packer.store.manifest import Shard, read_manifest
from packer.store.row_tables import documents_of

RULES = {"split": {"shares": {"validation": 0.3}}}


@pytest.mark.parametrize("rules", [{}, RULES], ids=["all rows", "rules about rows"])
def test_a_task_has_the_shards_of_its_groups_and_writes_what_all_documents_would(
    rules: dict[str, object], starter: Path, tmp_path: Path
) -> None:
    rows = [{"prompt": f"row {i}", "completion": "word " * (1 + i * 7 % 40)} for i in range(300)]
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
    form = BlockForm.of(recipe.pack, pad_id=model.pad_id, eos_id=model.eos_id, stop_ids=model.stop_ids)
    work, most, made, num_groups = (
        block_worker(tmp_path / "cache", form, recipe.pack, model.stop_ids),
        0,
        list[Shard](),
        0,
    )
    for split, documents in documents_of(tmp_path / "cache", manifest).items():
        for number, (packed, group, shard_tasks) in enumerate(
            pack_split(split, documents, recipe.pack, stop_ids=model.stop_ids, shard_bytes=recipe.shard_bytes)
        ):
            tasks = list(shard_tasks)
            most = max([most, *(len(task.documents.shards) for task in tasks)])
            whole = [_of_all(task, documents) for task in tasks]
            of_group = {*range(20 * number, 20 * number + 20)}
            assert all({*task.plan.document.tolist()} <= of_group for task in whole if task.plan is not None)
            num_groups += 1
            shards = [shard for task in tasks for shard in work(task)]
            assert shards == [shard for task in whole for shard in work(task)] == list(work(group))
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
    assert first is not None and task.plan is not None
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
    for number in range(60):
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


class Apart(Processes):
    """Processes that count as machines without a common folder."""

    def are_apart(self, folder: Path) -> bool:
        return True


@pytest.mark.parametrize("group_documents", [30, 1000])
def test_machines_without_a_common_folder_make_the_blocks_of_whole_groups_to_the_same_bytes(
    group_documents: int, starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {"pack": {"block_len": 128, "group_documents": group_documents}, "shard_bytes": 2**14}
    sources = [{"path": str(starter / "data" / "chat.jsonl")}]
    recipe = make_recipe({"sources": sources, "tokenizer": str(starter / "tokenizer"), **rules})
    made: list[BlockTask] = []
    planned = blocks._packed
    monkeypatch.setattr(blocks, "_packed", lambda group, *rest: made.append(group) or planned(group, *rest))
    one = build_recipe(recipe, tmp_path / "one", BuildOptions(workers=Processes(1), fail_above=1), Silent())
    num_groups = len(made)
    apart = build_recipe(recipe, tmp_path / "apart", BuildOptions(workers=Apart(1), fail_above=1), Silent())
    assert one.manifest == apart.manifest
    assert len(made) == num_groups * (3 if num_groups > 1 else 2), "each of several groups is planned where it is made"
    assert (num_groups > 1) == (group_documents == 30)
