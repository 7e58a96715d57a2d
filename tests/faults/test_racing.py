"""Many at once: writers of one cache, and readers of a cache that is built again and again."""

import json
import multiprocessing
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults.amount import amount
from faults.jobs import Job, contents, write_job
from faults.readers import read_cache
from processes import HANG_S

from packer.errors import BusyError, CheckError, InputError
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from packer.store.folder import lock

RACER = """
import sys, time
from packer_cli.main import cli
import packer.pipeline.run, packer_cli.build
while time.time() < float(sys.argv[1]):
    time.sleep(0.001)
cli.main(sys.argv[2:], prog_name="packer")
"""


def test_of_writers_that_race_one_builds_and_the_others_name_it(tmp_path: Path, tally) -> None:
    job = write_job(tmp_path / "job", num_rows=40)
    whole = contents(job.build(tmp_path / "whole"))
    num_rounds, num_processes = amount(small=1, full=20), amount(small=2, full=8)
    held = busy = 0
    for number in range(num_rounds):
        folder = tmp_path / f"cache{number}"
        words = [*job.command(folder)[:-1], "--json"]
        start = time.time() + num_processes * 0.8
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", RACER, str(start), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for _ in range(num_processes)
        ]
        answers = {racer.pid: (json.loads(racer.communicate()[0]), racer.returncode) for racer in racers}
        builders = [pid for pid, (found, code) in answers.items() if code == 0 and found["built"]]
        assert len(builders) == 1, answers
        for found, code in answers.values():
            if code:
                assert code == 4
                assert f"process {builders[0]} is writing this cache" in found["error"]["message"], found
                busy += 1
        held += contents(folder) == whole
        shutil.rmtree(folder)
    assert busy
    note = f"of {num_processes}; {busy} found it busy, the others up to date"
    tally("rounds of racing writers", tried=num_rounds, held=held, note=note)


def test_a_writer_that_comes_second_is_reported_before_it_reads_anything(job: Job, tmp_path: Path) -> None:
    """Its inputs are not there, and that is not what it is told."""
    recipe = load_recipe(job.recipe, [f'sources=[{{path: "{tmp_path}/nowhere.jsonl"}}]'])
    with pytest.raises(InputError, match="no such file"):
        build(recipe, tmp_path / "cache", jobs=1)
    assert not (tmp_path / "cache").exists()
    with lock(tmp_path / "cache"), pytest.raises(BusyError, match=r"process \d+ is writing this cache"):
        build(recipe, tmp_path / "cache", jobs=1)
    with pytest.raises(InputError, match="no such file"):
        build(recipe, tmp_path / "cache", jobs=1)


def read_until(folder: str, known: dict[str, list], begun, stop, answers) -> None:
    """A reader: opens and reads everything, again and again; says each time that it begins."""
    counts = {"whole": 0, "told": 0, "wrong": []}
    seen = set()
    while not stop.is_set():
        begun.release()
        try:
            fingerprint, values = read_cache(Path(folder))
        except CheckError as error:
            counts["told"] += "is missing" in error.message or "damaged" in error.message
            continue
        if known.get(fingerprint) == values:
            counts["whole"] += 1
            seen.add(fingerprint)
        else:
            counts["wrong"].append(fingerprint)
    answers.put((counts, len(seen)))


def test_readers_of_a_cache_that_is_built_again_read_all_of_one_build(
    tiny_job: Job, tiny_changed: Job, tmp_path: Path, tally
) -> None:
    folder = tmp_path / "cache"
    known = dict(read_cache(each.build(tmp_path / name)) for name, each in (("a", tiny_job), ("b", tiny_changed)))
    assert len(known) == 2
    tiny_job.build(folder)
    context = multiprocessing.get_context("spawn")
    begun, stop, answers = context.Semaphore(0), context.Event(), context.Queue()
    num_readers = amount(small=1, full=4)
    arguments = (str(folder), known, begun, stop, answers)
    readers = [context.Process(target=read_until, args=arguments) for _ in range(num_readers)]
    for reader in readers:
        reader.start()
    assert all(begun.acquire(timeout=HANG_S) for _ in readers), "every reader has come to read before the first round"
    num_rounds = amount(small=2, full=100)
    for number in range(num_rounds):
        each = (tiny_changed, tiny_job)[number % 2]
        each.build(folder, force=True)
        assert read_cache(folder)[0] in known
    while begun.acquire(block=False):
        pass
    for _ in range(2 * num_readers):  # a last reading of what stays
        assert begun.acquire(timeout=HANG_S)
    stop.set()
    found = [answers.get(timeout=HANG_S) for _ in readers]
    for reader in readers:
        reader.join()
    assert [counts["wrong"] for counts, _ in found] == [[]] * num_readers
    reads, told = sum(counts["whole"] for counts, _ in found), sum(counts["told"] for counts, _ in found)
    assert reads > num_readers
    note = f"{reads:,} reads all old or all new, {told:,} told that a file is gone"
    tally(f"rounds of --force under {num_readers} readers", tried=num_rounds, held=num_rounds, note=note)
