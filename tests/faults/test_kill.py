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

from packer.audit.verify import verify
from packer.errors import InputError
from packer.store.cache import Cache
from packer.store.manifest import read_manifest
from packer.store.row_tables import read_rejected

CODE = "from packer_cli.main import main; main()"


def is_whole(folder: Path) -> bool:
    """What is there passes verify, and its ledger is its own."""
    assert verify(folder, threads=1).findings == ()
    return len(list(read_rejected(folder, read_manifest(folder)))) > 0


def refused_as_incomplete(folder: Path) -> bool:
    with pytest.raises(InputError, match="not a cache, or its build did not finish"):
        Cache.open(folder)
    return True


RULES = """filters: [{name: short, of: answers, chars: {min: 40}}]
deduplicate: {exact: normalized, near: {jaccard: 0.8}}
split: {shares: {validation: 0.3}, leakage: {near: 0.8}}
"""


@pytest.mark.parametrize(
    "kind", ["first build", pytest.param("first build with rules about rows", marks=pytest.mark.slow), "rebuild"]
)
def test_killed_after_any_storage_operation_there_is_the_old_cache_or_the_new_one_and_the_next_run_completes(
    kind: str, lab: Lab, tiny_job: Job, tiny_changed: Job, tmp_path: Path, tally
) -> None:
    """The old cache of a first build is none, and what is there is refused as such."""
    folder, start = tmp_path / "cache", tmp_path / "start"
    if kind != "rebuild":
        start.mkdir()
        job, old = tiny_job.copy(tmp_path / "job"), None
        if "rules" in kind:
            job.recipe.write_text(job.recipe.read_text() + RULES)
    else:
        job, old = tiny_changed, contents(tiny_job.build(start))["manifest.json"]
    shutil.copytree(start, folder)
    calls = lab.run(job.command(folder), root=folder).counts
    whole = contents(job.build(tmp_path / "whole"))
    assert contents(folder) == whole
    num_calls = sum(calls.get(name, 0) for name in CHANGING)
    held = num_old = 0
    moments = range(num_calls) if FULL else sorted({*range(5, num_calls, 400), *range(num_calls - 3, num_calls)})
    for at in moments:
        shutil.rmtree(folder)
        shutil.copytree(start, folder)
        assert lab.run(job.command(folder), root=folder, fault=Fault(calls=CHANGING, at=at)).code == -signal.SIGKILL
        if (folder / "manifest.json").exists():
            assert is_whole(folder)
            found = contents(folder)["manifest.json"]
        else:
            found = None if refused_as_incomplete(folder) else ""
        assert found in (old, whole["manifest.json"])
        num_old += found == old
        assert lab.run(job.command(folder), root=folder).code == 0
        held += contents(folder) == whole
    assert 0 < num_old < len(moments)
    note = f"of {num_calls}; {num_old} left the old cache or none, {len(moments) - num_old} the new"
    tally(f"SIGKILL after a storage operation, {kind}", tried=len(moments), held=held, note=note)


@pytest.mark.slow
@pytest.mark.parametrize(("rules", "small"), [("", 1), (RULES, 20)], ids=["", "with rules about rows"])
def test_killed_at_any_moment_a_build_with_processes_is_no_cache_and_its_next_run_ends_it(
    rules: str, small: int, tmp_path: Path, tally
) -> None:
    """The group is killed, workers and all; then the same command is run to its end."""
    job = write_job(tmp_path / "job", num_rows=300)
    job.recipe.write_text(job.recipe.read_text() + rules)
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
    num_rounds, held, finished = amount(small=small, full=200), 0, 0
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
    tally(
        f"SIGKILL at a random moment, two processes{', rules' * bool(rules)}",
        tried=num_rounds,
        held=held,
        note=f"{finished} had finished",
    )
