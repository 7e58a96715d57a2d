"""No file may be longer than so much, or the folder is read-only: told, nothing lost, and readers write nothing."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from faults.amount import FULL
from faults.jobs import Job, contents
from faults.lab import Lab
from faults.storage import CHANGING

from packer.audit.verify import verify

NOTHING_WRITTEN = dict.fromkeys((*CHANGING, "open_write"), 0)


def test_a_limit_on_the_size_of_files_is_reported_and_costs_no_cache(
    lab: Lab, tiny_job: Job, tiny_changed: Job, tmp_path: Path, tally
) -> None:
    """RLIMIT_FSIZE: the kernel itself refuses, in the middle of a write."""
    old_cache = tiny_job.build(tmp_path / "old")
    old, new_cache = contents(old_cache), tiny_changed.build(tmp_path / "new")
    new = contents(new_cache)
    written = [name for name in new if old.get(name) != new[name]]
    largest = max((new_cache / name).stat().st_size for name in written)
    sizes = [largest * i // 30 for i in range(30)] if FULL else [0, 5000, largest - 1]
    held = 0
    folder = tmp_path / "cache"
    words = tiny_changed.command(folder)
    for size in sizes:
        shutil.copytree(old_cache, folder)
        outcome = lab.run(words, root=folder, file_bytes=size)
        assert outcome.code == 5, f"{size}: {outcome.told}"
        assert os.strerror(errno.EFBIG) in outcome.told and str(folder) in outcome.told
        assert "hint: the file is larger than this disk or this user's limit allows" in outcome.told
        assert contents(folder)["manifest.json"] == old["manifest.json"]
        assert verify(folder, threads=1).findings == ()
        assert lab.run(words, root=folder).code == 0
        held += contents(folder) == new
        shutil.rmtree(folder)
    shutil.copytree(old_cache, folder)
    outcome = lab.run(words, root=folder, file_bytes=largest)
    assert outcome.code == 0, "as large as the largest file it writes is enough"
    tally("file size limit", tried=len(sizes), held=held)


def read_only(folder: Path, yes: bool) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o555 if yes else 0o755) if path.is_dir() else (0o444 if yes else 0o644))


@pytest.fixture(scope="module")
def sealed_cache(lab: Lab, tiny_job: Job, memory: Path):
    """A cache nobody may write, and the proof that permissions count here, for root too. Shared, as nobody changes it."""
    folder = Path(tempfile.mkdtemp(dir=memory))
    probe = folder / "probe"
    probe.mkdir()
    read_only(probe, yes=True)
    if lab.run(tiny_job.command(probe / "cache"), root=probe, as_owner=True).code != 5:
        pytest.skip("PERMISSIONS DO NOT COUNT HERE: a folder that may not be written was written")
    cache = tiny_job.build(folder / "cache")
    read_only(cache, yes=True)
    yield cache
    read_only(cache, yes=False)


@pytest.mark.parametrize(
    "words", ["verify CACHE --full", "verify CACHE", "stats CACHE", "inspect CACHE", "diff CACHE CACHE", "build"]
)
def test_who_reads_a_cache_needs_no_right_to_write_and_writes_nothing(
    words: str, lab: Lab, tiny_job: Job, sealed_cache: Path, tally
) -> None:
    before = contents(sealed_cache)
    command = tiny_job.command(sealed_cache) if words == "build" else words.replace("CACHE", str(sealed_cache)).split()
    outcome = lab.run(command, root=sealed_cache, as_owner=True)
    assert outcome.code == 0, outcome.told
    assert {name: outcome.counts.get(name, 0) for name in NOTHING_WRITTEN} == NOTHING_WRITTEN
    tally("reading a read-only cache", tried=1, held=int(contents(sealed_cache) == before), note=words)


def test_a_build_into_a_read_only_cache_is_refused_and_changes_nothing(
    lab: Lab, tiny_changed: Job, sealed_cache: Path, tally
) -> None:
    before = contents(sealed_cache)
    tried = held = 0
    for command in (tiny_changed.command(sealed_cache), tiny_changed.command(sealed_cache, "--force")):
        outcome = lab.run(command, root=sealed_cache.parent, as_owner=True)
        assert outcome.code == 5, outcome.told
        assert "Permission denied" in outcome.told and "hint: check who owns the folder" in outcome.told
        held += contents(sealed_cache) == before
        tried += 1
    tally("writing into a read-only folder", tried=tried, held=held)
