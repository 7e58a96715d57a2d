"""Nodes without a common disk, with inputs and cache in a bucket: the bytes are a local build's, whatever dies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from bucket_objects import files, objects
from command_line import fields, run
from processes import wait_until
from store_proxy import proxied
from written_formats import in_three_files, some_rows

from packer.store.bucket import Bucket

pytestmark = pytest.mark.slow

PACKER = "from packer_cli.main import main; main()"

PHASES = {
    "planning": ("GET", "/in/", 4),
    "documents": ("PUT", "/documents/", 4),
    "blocks": ("PUT", "/blocks/", 2),
    "commit": ("PUT", "/manifest.json", 1),
}
"""The request that a phase is seen by: its command, a part of its path, and the how manieth it is."""


class Strikes:
    """Does something once in each phase, before the store has seen the request."""

    def __init__(self, strike, *phases):
        self.left = [*phases]
        self._seen = dict.fromkeys(phases, 0)
        self._strike = strike

    def __call__(self, command, path):
        for phase in [*self.left]:
            asked, part, number = PHASES[phase]
            if command == asked and part in path:
                self._seen[phase] += 1
                if self._seen[phase] == number:
                    self.left.remove(phase)
                    self._strike(phase)


@pytest.fixture(scope="module")
def inputs(server, starter, tmp_path_factory):
    """A recipe whose inputs are in a bucket, in three formats, and a local build of it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("inputs")
        patch.setenv("PACKER_CACHE_DIR", str(folder / "kept"))
        place = Bucket("s3://tests/nodes/in")
        for name, content in in_three_files([*some_rows(6000), {"prompt": "rejected", "completion": ""}]).items():
            place.replace(name, content)
        recipe = {
            "version": 1,
            "sources": [{"path": f"{place.url}/*"}],
            "tokenizer": str(starter / "tokenizer"),
            "pack": {"block_len": 256, "overlong": "split"},
            "partition_bytes": "64KiB",
            "shard_bytes": "256KiB",
        }
        (folder / "recipe.yaml").write_text(json.dumps(recipe))
        run("build", "-c", folder / "recipe.yaml", "-o", folder / "cache", "-j", 1)
    return folder


def started(inputs, bucket, nodes, place, store=None):
    """`packer build --on ray`, on a machine that has nothing but what is in a folder.

    It reaches the store as nodes do, or at an address of its own.
    """
    command = [sys.executable, "-c", PACKER, "build", "-c", inputs / "recipe.yaml", "-o", bucket.url]
    return subprocess.Popen(
        [*map(str, command), "--on", "ray", "--json", "-q"],
        env={**os.environ, "PACKER_CACHE_DIR": str(place), "AWS_ENDPOINT_URL": store or nodes.store},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, (output, errors)
    return json.loads(output)


def assert_finished_work_is_not_done_again(nodes, bucket):
    """No document shard is put again once the note that it is finished was taken."""
    notes = {name: bucket.read(name) for name in bucket.sizes(".packer/partitions")}
    shard_of = {name: json.loads(content)["shard"]["path"] for name, content in notes.items()}
    assert shard_of
    finished = set()
    for request in nodes.answered:
        name = request.path.rpartition("/cache/")[2]
        assert not (request.command == "PUT" and name in finished), f"{name} was made again"
        if request.command == "PUT" and request.status == 200 and name in shard_of:
            finished.add(shard_of[name])
    assert len(finished) == len(shard_of)


def test_nodes_without_a_common_disk_make_the_objects_of_a_local_build(inputs, nodes, bucket, server, tmp_path):
    with proxied(server.address, lambda *_: None) as (store, asked):
        done = told(started(inputs, bucket, nodes, tmp_path / "driver", store))
    assert objects(bucket) == files(inputs / "cache")
    assert done["fingerprint"] == fields("verify", inputs / "cache")["fingerprint"]
    made = [{path.name for path in place.glob("builds/**/documents/*")} for place in nodes.places[-4:]]
    assert sum(map(bool, made)) > 1, "several nodes took part"
    assert done["partitions_built"] > 20
    copied = [path for place in nodes.places for path in place.glob("inputs/**/*") if path.is_file()]
    assert {path.read_bytes()[:4] for path in copied} == {b"PAR1"}, "text is read from the bucket"
    fetched = [request for request in asked if request.command == "GET" and "/nodes/in/" in request.path]
    read = sum(request.num_bytes for request in fetched)
    assert read <= 16 * 2**20, (
        "the machine that waits reads the first chunks of each file four times, to try two keys on first rows and to "
        "note answers that go on"
    )
    assert not (tmp_path / "driver" / "inputs").exists()


def test_workers_and_nodes_that_die_in_any_phase_cost_time_alone(inputs, nodes, bucket, tmp_path):
    def strike(phase):
        if phase != "documents":
            nodes.lose_one()
        nodes.kill_workers()

    for _ in range(2):
        nodes.add()
    nodes.meet = strikes = Strikes(strike, "planning", "documents", "blocks")
    done = told(started(inputs, bucket, nodes, tmp_path / "driver"))
    assert not strikes.left and done["partitions_built"] > 20
    assert objects(bucket) == files(inputs / "cache")
    assert_finished_work_is_not_done_again(nodes, bucket)


def test_a_store_that_dies_in_any_phase_costs_time_alone(inputs, nodes, bucket, server, tmp_path):
    def strike(_):
        server.kill()
        time.sleep(2)
        server.start()

    nodes.meet = strikes = Strikes(strike, *PHASES)
    told(started(inputs, bucket, nodes, tmp_path / "driver"))
    assert not strikes.left
    assert objects(bucket) == files(inputs / "cache")
    assert_finished_work_is_not_done_again(nodes, bucket)


def test_a_driver_that_dies_in_any_phase_goes_on_from_any_machine(inputs, nodes, bucket, tmp_path):
    for number, phase in enumerate(PHASES):
        driver, died = started(inputs, bucket, nodes, tmp_path / f"{number}"), threading.Event()

        def strike(_, driver=driver, died=died):
            driver.kill()
            died.set()

        nodes.meet = strikes = Strikes(strike, phase)
        driver.communicate(timeout=300)
        assert died.is_set() and not strikes.left and driver.returncode == -signal.SIGKILL
        nodes.meet = lambda *_: None
        wait_until(lambda: not nodes.workers())
        there = len(bucket.sizes(".packer/partitions"))
    assert bucket.read("manifest.json") is None or phase == "commit"
    done = told(started(inputs, bucket, nodes, tmp_path / "another"))
    assert done["partitions_reused"] == there > 20
    assert objects(bucket) == files(inputs / "cache")
    assert_finished_work_is_not_done_again(nodes, bucket)


def test_audits_on_nodes_give_what_they_give_here(inputs, nodes, bucket, monkeypatch):
    monkeypatch.setattr("packer.pipeline.plan.inputs.MIN_PARALLEL_BYTES", 0)
    run("build", "-c", inputs / "recipe.yaml", "-o", bucket.url)
    name = min(bucket.sizes("blocks"))
    content = bucket.read(name)
    bucket.replace(name, content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    for command, code in (
        (("verify", "--full", "--sources", "/", "--reencode", "--sample", 50), 1),
        (("check", "--near", "--sources", "/"), 0),
    ):
        here = fields(*command, bucket.url, exit_code=code)
        assert fields(*command, bucket.url, "--on", "ray", exit_code=code) == here
        assert here["ok"] is not bool(code)
    assert not any(path.name.startswith("verify-") for place in nodes.places for path in place.glob("*"))
