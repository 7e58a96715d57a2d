"""The driver of a build of many partitions: what it holds, and that it finds all of them again."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from packer.display import Silent
from packer.pipeline.partition import JOURNALS, PartitionResult
from packer.pipeline.plan.build_plan import plan_build
from packer.recipe.recipe import Recipe, make_recipe, to_json
from packer.store.manifest import read_manifest

NUM_PARTITIONS = 10_000
MOST_LINKS = 5_000
"""Names that a file system gives a file, or a few more."""

ROW = b'{"prompt": "question 000000", "completion": "its answer"}\n'

BUILD = """
import json, sys, time
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe

begin = time.perf_counter()
result = build(make_recipe(json.loads(sys.argv[1])), sys.argv[2], jobs=1)
# ru_maxrss would begin with what the process that started this one has.
peak = 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
print(json.dumps({
    "seconds": time.perf_counter() - begin,
    "parts": dict(result.seconds),
    "bytes": peak,
    "built": result.num_partitions_built,
    "reused": result.num_partitions_reused,
}))
"""


def recipe_of(path: Path, starter: Path) -> Recipe:
    values = {"sources": [{"path": str(path)}], "tokenizer": str(starter / "tokenizer"), "partition_bytes": len(ROW)}
    return make_recipe(values | {"pack": {"block_len": 128, "group_documents": 2_000}})


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory in /proc")
def test_a_build_of_10_000_partitions_goes_on_from_its_journal_in_300_megabytes(starter: Path, tmp_path: Path) -> None:
    one, many, cache = tmp_path / "one.jsonl", tmp_path / "many.jsonl", tmp_path / "cache"
    one.write_bytes(ROW)
    many.write_bytes(b"".join(ROW.replace(b"000000", b"%06d" % i) for i in range(NUM_PARTITIONS)))
    command = [sys.executable, "-c", BUILD]
    subprocess.run([*command, json.dumps(to_json(recipe_of(one, starter))), str(tmp_path / "first")], check=True)
    done = next(shard for shard in read_manifest(tmp_path / "first").shards if shard.kind == "documents")
    # The shard of one row stands for those of all, under as many names.
    recipe = recipe_of(many, starter)
    plan = plan_build(recipe, Silent())
    assert len(plan.tasks) == NUM_PARTITIONS
    journal = cache / JOURNALS[PartitionResult]
    journal.mkdir(parents=True)
    (cache / "documents").mkdir()
    contents = [tmp_path / f"content-{i}" for i in range(NUM_PARTITIONS // MOST_LINKS)]
    for content in contents:
        shutil.copyfile(tmp_path / "first" / done.path, content)
    for number, task in enumerate(plan.tasks):
        path = f"documents/{number:05d}-{done.sha256[:12]}.arrow"
        first = {"first_row": task.partition.first_row, "first_line": task.partition.first_line}
        shard = msgspec.structs.replace(done, path=path, key=task.key, **first)
        (cache / path).hardlink_to(contents[number % len(contents)])
        (journal / f"{task.key}.json").write_bytes(msgspec.json.encode(PartitionResult(shard=shard, rejected=())))
    words = [*command, json.dumps(to_json(recipe)), str(cache)]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(ended.stdout)
    print(found)
    assert (found["built"], found["reused"]) == (0, NUM_PARTITIONS)
    assert found["bytes"] < 300e6
    assert read_manifest(cache).totals.rows == NUM_PARTITIONS
