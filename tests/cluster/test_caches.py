"""Caches in a bucket of a real server: bytes, other machines, kills, races, damage, readers."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bucket_objects import NUM_FILES, files, objects
from command_line import assert_refused, fields, run
from processes import wait_until

from packer.errors import CheckError, StorageError
from packer.store.bucket import Bucket
from packer.store.cache import Cache

pytestmark = pytest.mark.slow

PACKER = [sys.executable, "-c", "from packer_cli.main import main; main()"]
SHORT = ("--block-len", 128, "--set", "pack.overlong=split")


@pytest.fixture(params=["s3", "az"])
def scheme(request):
    """Every test of this module runs in both stores."""
    return request.param


def build(recipe, bucket, *options, **env):
    """A build in a process of its own, which may be killed."""
    command = [*PACKER, "build", "-c", str(recipe), "-o", bucket.url, "-q", "--json", *map(str, options)]
    return subprocess.Popen(
        command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process):
    """Exit code, what it said in JSON, and its errors."""
    output, errors = process.communicate(timeout=300)
    return process.returncode, json.loads(output) if output.startswith("{") else {}, errors


def test_a_build_into_a_bucket_makes_the_objects_of_a_local_one(bucket, recipe, local):
    told = run("build", "-c", recipe, "-o", bucket.url, "-j", 2)
    assert f"built {bucket.url} in " in told.stdout and f"next: packer inspect {bucket.url}" in told.stdout
    assert objects(bucket) == files(local)
    assert fields("build", "-c", recipe, "-o", bucket.url)["built"] is False
    assert run("verify", bucket.url, "--full").stdout.endswith("ok: everything is as it was written\n")
    here, there = (fields("stats", place) for place in (local, bucket.url))
    assert there == here | {"folder": bucket.url}
    assert "the same bytes" in run("diff", local, bucket.url).stdout
    assert fields("diff", local, bucket.url)["new"] == bucket.url


@pytest.mark.parametrize("end", ["#v2", "?versionId=1", "%20x"])
def test_caches_and_inputs_whose_names_have_characters_of_web_addresses_are_their_own(end, bucket, recipe):
    """Such a name once meant the one before its end."""
    victim, other = Bucket(bucket.url), Bucket(bucket.url + end)
    inputs = Bucket(bucket.url.replace("/cache", f"/in{end}"))
    victim.replace("manifest.json", b"not to be touched")
    inputs.replace(f"0{end}.jsonl", recipe.with_name("0.jsonl"))
    for source in (f"{inputs.url}/*.jsonl", f"{inputs.url}/0{end}.jsonl"):
        run("build", source, "--tokenizer", recipe.parent / "tokenizer", *SHORT, "-o", other.url, "-j", 1)
    with Cache.open(other.url) as cache:
        assert [entry.path for entry in cache.manifest.inputs] == [f"{inputs.url}/0{end}.jsonl"]
    assert objects(victim) == {"manifest.json": b"not to be touched"}
    assert "manifest.json" in other.sizes()


def test_another_machine_finds_what_a_killed_build_finished(bucket, recipe, local, tmp_path):
    first = build(recipe, bucket, "-j", 1)
    wait_until(lambda: len(bucket.sizes(".packer/partitions")) > 2 or first.poll() is not None)
    assert first.poll() is None, "it ended before it was killed"
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert bucket.read("manifest.json") is None
    there = len(bucket.sizes(".packer/partitions"))
    code, told, errors = ended(build(recipe, bucket, PACKER_CACHE_DIR=str(tmp_path / "other")))
    assert code == 0, errors
    assert told["partitions_reused"] == there and told["partitions_built"] == NUM_FILES - there
    assert objects(bucket) == files(local)


def test_of_builds_that_race_the_loser_says_so_and_the_cache_is_whole(bucket, recipe, tmp_path):
    losers = 0
    for attempt in range(3):
        racing = [
            build(
                recipe,
                bucket,
                *("--force", "--set", f"pack.seed={2 * attempt + number}"),
                PACKER_CACHE_DIR=str(tmp_path / f"{number}"),
            )
            for number in range(2)
        ]
        results = [ended(process) for process in racing]
        codes = [code for code, _, _ in results]
        assert 0 in codes and {*codes} <= {0, 4}, results
        losers += codes.count(4)
        lost = [told["error"] for code, told, _ in results if code]
        assert all(error["code"] == "busy" and "another build committed a cache" in error["message"] for error in lost)
        fingerprints = {told["fingerprint"] for code, told, _ in results if code == 0}
        assert fields("verify", bucket.url)["fingerprint"] in fingerprints
    assert losers, "no builds ended together"


def test_of_processes_that_replace_one_object_one_wins_each_time(bucket):
    code = """
import sys
from packer.store.bucket import Bucket
bucket, name = Bucket(sys.argv[1]), sys.argv[2].encode()
for number, line in enumerate(sys.stdin):
    before = line.strip().encode()
    print(int(bucket.swap("manifest.json", before or None, name + b"%d" % number)), flush=True)
"""
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", code, bucket.url, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "ab"
    ]
    before = ""
    won = []
    for _ in range(50):
        for each in racing:
            each.stdin.write(f"{before}\n")
            each.stdin.flush()
        won.append([int(each.stdout.readline()) for each in racing])
        before = bucket.read("manifest.json").decode()
        assert sum(won[-1]) == 1
        assert before[0] == "ab"[won[-1].index(1)]
    for each in racing:
        each.communicate()
    assert len({tuple(each) for each in won}) == 2, "the same one was first every time"


def test_damage_in_a_bucket_is_found_and_mended(bucket, recipe, local):
    run("build", "-c", recipe, "-o", bucket.url)
    whole = objects(bucket)
    damaged = [name for name in whole if name.startswith(("blocks/", "model/"))]
    damaged += [name for name in whole if name.startswith("documents/")][::3]
    for name in damaged:
        bucket.replace(name, whole[name][:-9] + bytes([whole[name][-9] ^ 1]) + whole[name][-8:])
    found = fields("verify", bucket.url, exit_code=1)
    assert {finding["path"] for finding in found["findings"]} >= {*damaged}
    assert found["folder"] == bucket.url
    with Cache.open(bucket.url) as cache, pytest.raises(CheckError, match="is damaged: its sha256"):
        rows_of(cache)
    run("build", "-c", recipe, "-o", bucket.url, "--repair")
    assert objects(bucket) == files(local)
    run("verify", bucket.url)


def test_a_missing_object_is_named_and_made_again(bucket, recipe, local):
    run("build", "-c", recipe, "-o", bucket.url)
    name = next(name for name in bucket.sizes("documents"))
    bucket.remove([name])
    assert_refused(f"{Path(name).name} is missing", "stats", bucket.url, exit_code=1)
    run("build", "-c", recipe, "-o", bucket.url)
    assert objects(bucket) == files(local)


def test_what_is_in_the_way_is_refused_with_a_hint(scheme, bucket, recipe, tmp_path):
    assert_refused("it has no manifest.json", "stats", bucket.url, exit_code=3)
    model = ("--tokenizer", recipe.parent / "tokenizer")
    missing = f"{scheme}://no-such-bucket/x"
    for command in (
        ("stats", missing),
        ("build", "-c", recipe, "-o", missing),
        ("build", f"{missing}/*", *model, "-o", "c"),
    ):
        assert_refused("there is no bucket 'no-such-bucket'", *command, exit_code=5)
    key = {"s3": "AWS_SECRET_ACCESS_KEY", "az": "AZURE_STORAGE_ACCOUNT_KEY"}[scheme]
    told = run("stats", f"{bucket.url}/other", exit_code=5, env={key: "d3Jvbmc="})
    assert key in told.stderr and "Debug source" not in told.stderr


def rows_of(cache):
    """Every block of a cache, in an order that jumps between shards."""
    blocks = cache.blocks("train")
    order = np.random.default_rng(0).permutation(len(blocks))
    return np.concatenate([blocks.read(order[i : i + 3]).input_ids for i in range(0, len(order), 3)])


def test_a_training_loop_with_workers_gets_the_batches_of_a_local_one(bucket, recipe, local):
    from torch.utils.data import DataLoader

    from packer import PackedLoader
    from packer.load.datasets import PackedDataset, collate

    run("build", "-c", recipe, "-o", bucket.url)
    steps = [list(PackedLoader(place, global_batch_size=4)) for place in (local, bucket.url)]
    assert len(steps[0]) > 3
    assert all(
        bytes(a[0]["input_ids"].numpy()) == bytes(b[0]["input_ids"].numpy()) for a, b in zip(*steps, strict=True)
    )
    shutil.rmtree(os.environ["PACKER_CACHE_DIR"])
    for place in (local, bucket.url):  # of the bucket, its rows are fetched by the workers
        loader = DataLoader(
            PackedDataset(place), batch_size=4, num_workers=2, collate_fn=collate, multiprocessing_context="spawn"
        )
        steps.append([batch["input_ids"].numpy().tobytes() for batch in loader])
    assert steps[2] == steps[3]


def test_a_forked_worker_that_must_fetch_says_how_it_can(bucket, recipe):
    """The threads of the store's library do not survive a fork."""
    from torch.utils.data import DataLoader

    from packer.load.datasets import PackedDataset, collate

    run("build", "-c", recipe, "-o", bucket.url)
    loader = DataLoader(
        PackedDataset(bucket.url), batch_size=4, num_workers=1, collate_fn=collate, multiprocessing_context="fork"
    )
    with pytest.raises(StorageError, match="was forked from one that had asked") as caught:
        next(iter(loader))
    assert 'multiprocessing_context="spawn"' in str(caught.value)


def test_a_second_reader_fetches_nothing(bucket, recipe):
    run("build", "-c", recipe, "-o", bucket.url)
    with Cache.open(bucket.url) as cache:
        first = rows_of(cache)
        kept = {path: path.stat().st_mtime_ns for path in cache.folder.rglob("*.arrow")}
    assert len(kept) == len(bucket.sizes("blocks"))
    with Cache.open(bucket.url) as cache:
        assert np.array_equal(rows_of(cache), first)
        assert {path: path.stat().st_mtime_ns for path in cache.folder.rglob("*.arrow")} == kept


def test_a_reader_sees_the_cache_that_was_built_in_place_of_another(bucket, recipe):
    run("build", "-c", recipe, "-o", bucket.url)
    with Cache.open(bucket.url) as cache:
        rows_of(cache)
    run("build", "-c", recipe, "-o", bucket.url, "--force", "--block-len", 64, "--fail-above", 1)
    with Cache.open(bucket.url) as cache:
        assert rows_of(cache).shape[1] == 64
        kept = {f"blocks/{path.name}" for path in (cache.folder / "blocks").iterdir()}
        assert kept <= {shard.path for shard in cache.manifest.shards}, "shards of the old cache are removed"


def test_inputs_in_a_bucket_are_built_as_files_are(bucket, recipe, local, tmp_path):
    inputs = Bucket(bucket.url.replace("/cache", "/in"))
    for number in range(NUM_FILES):
        inputs.replace(f"{number:02d}.jsonl", recipe.with_name(f"{number}.jsonl"))
    inputs.replace("about.txt", b"no rows")
    told = fields(
        "build", f"{inputs.url}/*.jsonl", "--tokenizer", recipe.parent / "tokenizer", *SHORT, "-o", bucket.url
    )
    with Cache.open(local) as cache:
        assert told["content_fingerprint"] == cache.manifest.content_fingerprint
    with Cache.open(bucket.url) as cache:
        assert [entry.path for entry in cache.manifest.inputs] == sorted(
            f"{inputs.url}/{name}" for name in inputs.sizes()
        )[:-1]
    run("verify", bucket.url, "--sources", "/", "--sources", inputs.url)
    assert (
        fields("build", f"{inputs.url}/*.jsonl", "--tokenizer", recipe.parent / "tokenizer", *SHORT, "-o", bucket.url)[
            "built"
        ]
        is False
    )
    assert_refused(
        "no object in the bucket", "build", f"{inputs.url}/x.jsonl", "--tokenizer", "t", "-o", "c", exit_code=3
    )


def test_of_an_input_that_is_replaced_during_the_build_the_version_that_was_listed_is_built(
    bucket, recipe, monkeypatch
):
    inputs = Bucket(bucket.url.replace("/cache", "/in"))
    for number in range(3):
        inputs.replace(f"{number}.jsonl", recipe.with_name(f"{number}.jsonl"))
    from packer.pipeline import run as pipeline

    def replaced(*arguments, **options):
        inputs.replace("1.jsonl", recipe.with_name("2.jsonl"))
        return pack(*arguments, **options)

    pack = pipeline.pack_documents
    monkeypatch.setattr(pipeline, "pack_documents", replaced)
    command = ["build", f"{inputs.url}/*.jsonl", "--tokenizer", recipe.parent / "tokenizer", *SHORT, "-o", bucket.url]
    digests = [hashlib.sha256(recipe.with_name(f"{number}.jsonl").read_bytes()).hexdigest() for number in range(3)]
    run(*command)
    with Cache.open(bucket.url) as cache:
        assert [entry.sha256 for entry in cache.manifest.inputs] == digests
    assert f"{inputs.url}/1.jsonl" in run("verify", bucket.url, "--sources", inputs.url, exit_code=1).stdout
