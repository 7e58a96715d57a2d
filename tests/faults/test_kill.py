"""SIGKILL: after every storage operation of a build, and at random moments of one with processes."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults.amount import FULL, amount
from faults.jobs import Job, contents, write_job
from faults.lab import Lab
from faults.storage import CHANGING, Fault

from packer.audit import verify
from packer.errors import InputError
from packer.store.cache import Cache
from packer.store.manifest import read_manifest
from packer.store.rejected import read_rejected

CODE = "from packer_cli.main import main; main()"


def is_whole(folder: Path) -> bool:
    """What is there passes verify, and its ledger is its own."""
    assert verify(folder, threads=1).findings == ()
    return len(list(read_rejected(folder, read_manifest(folder)))) > 0


def refused_as_incomplete(folder: Path) -> bool:
    with pytest.raises(InputError, match="not a cache, or its build did not finish"):
        Cache.open(folder)
    return True


def test_killed_after_any_storage_operation_a_first_build_is_no_cache_or_a_whole_one(
    lab: Lab, tiny_job: Job, tmp_path: Path, tally
) -> None:
    whole = contents(tiny_job.build(tmp_path / "whole"))
    counted = lab.run(tiny_job.command(tmp_path / "counted"), root=tmp_path / "counted").counts
    num_calls = sum(counted.get(name, 0) for name in CHANGING)
    held = refused = 0
    moments = range(num_calls) if FULL else sorted({*range(3, num_calls, 40), *range(num_calls - 4, num_calls)})
    for at in moments:
        folder = tmp_path / "killed"
        outcome = lab.run(tiny_job.command(folder), root=folder, fault=Fault(calls=CHANGING, at=at))
        assert outcome.code == -signal.SIGKILL
        if (folder / "manifest.json").exists():
            assert is_whole(folder)
        else:
            refused += refused_as_incomplete(folder)
        assert lab.run(tiny_job.command(folder), root=folder).code == 0
        held += contents(folder) == whole
        shutil.rmtree(folder)
    assert 0 < refused < len(moments)
    tally("SIGKILL after a storage operation, first build", tried=len(moments), held=held, note=f"of {num_calls}")


def test_killed_after_any_storage_operation_a_rebuild_leaves_the_old_cache_or_the_new_one(
    lab: Lab, tiny_job: Job, tiny_changed: Job, tmp_path: Path, tally
) -> None:
    old_cache = tiny_job.build(tmp_path / "old")
    old, new = contents(old_cache), contents(tiny_changed.build(tmp_path / "new"))
    counted = shutil.copytree(old_cache, tmp_path / "counted")
    calls = lab.run(tiny_changed.command(counted), root=counted).counts
    num_calls = sum(calls.get(name, 0) for name in CHANGING)
    held = num_old = num_new = 0
    moments = range(num_calls) if FULL else sorted({*range(5, num_calls, 60), *range(num_calls - 9, num_calls)})
    for at in moments:
        folder = Path(shutil.copytree(old_cache, tmp_path / "killed"))
        assert lab.run(tiny_changed.command(folder), root=folder, fault=Fault(calls=CHANGING, at=at)).code == -9
        found = contents(folder)["manifest.json"]
        assert found in (old["manifest.json"], new["manifest.json"])
        num_old += found == old["manifest.json"]
        num_new += found == new["manifest.json"]
        assert is_whole(folder)
        assert lab.run(tiny_changed.command(folder), root=folder).code == 0
        held += contents(folder) == new
        shutil.rmtree(folder)
    assert num_old and num_new
    note = f"of {num_calls}; {num_old} left the old cache, {num_new} the new"
    tally("SIGKILL after a storage operation, rebuild", tried=len(moments), held=held, note=note)


@pytest.mark.slow
def test_killed_at_any_moment_a_build_with_processes_is_no_cache_and_its_next_run_ends_it(
    tmp_path: Path, tally
) -> None:
    """The group is killed, workers and all; then the same command is run to its end."""
    job = write_job(tmp_path / "job", num_rows=300)
    whole = job.build(tmp_path / "whole", "shard_bytes=64KiB")
    words = [*job.command(tmp_path / "killed", "--set", "shard_bytes=64KiB"), "-j", "2"]
    seconds = 0.0
    for _ in range(2):  # the second one as warm as those that follow
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", CODE, *words], check=True)
        seconds = time.monotonic() - began
    shutil.rmtree(tmp_path / "killed")
    rng = random.Random(0)
    num_rounds, held, finished = amount(small=1, full=200), 0, 0
    for _ in range(num_rounds):
        moment = rng.uniform(0.25, 0.95) * seconds
        process = subprocess.Popen([sys.executable, "-c", CODE, *words], start_new_session=True)
        try:
            process.wait(timeout=moment)
            finished += 1
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if (tmp_path / "killed" / "manifest.json").exists():
            assert is_whole(tmp_path / "killed")
        else:
            refused_as_incomplete(tmp_path / "killed")
        job.build(tmp_path / "killed", "shard_bytes=64KiB")
        held += contents(tmp_path / "killed") == contents(whole)
        shutil.rmtree(tmp_path / "killed")
    tally("SIGKILL at a random moment, two processes", tried=num_rounds, held=held, note=f"{finished} had finished")
