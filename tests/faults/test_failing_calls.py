"""The N-th call fails, for every N: exit 5 with path and hint, the old cache or the new one whole, run again completes."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from faults.amount import FULL, amount
from faults.jobs import Job, contents
from faults.lab import Lab
from faults.storage import CALLS, CHANGING, READING, SPENDING, Fault
from processes import run_forked

from packer.audit.verify import verify

OPENING = ("open_read", "open_write", "open_folder", "map", "scandir", "listdir")
INTERRUPTED = ("open_read", "open_write", "open_folder", "write", "fsync", "fsync_folder", "lock", "truncate", "pwrite")

# What fails, and with what: only what a kernel answers to such a call.
FAULTS = [
    ("ENOSPC", SPENDING, True),
    ("ENOSPC", (*SPENDING, "fsync_folder"), False),
    ("EDQUOT", SPENDING, True),
    ("EIO", CALLS, False),
    ("EIO", CHANGING, True),
    ("EACCES", ("open_write", "mkdir", "rename", "link", "unlink"), True),
    ("EACCES", (*OPENING, "stat", "mkdir", "rename", "link", "unlink", "open_write"), False),
    ("EROFS", ("open_write", "mkdir", "rename", "link", "unlink"), True),
    ("EMFILE", (*OPENING, "open_write"), False),
    ("EMFILE", (*OPENING, "open_write"), True),
    ("EINTR", INTERRUPTED, False),
]


def is_old_or_new(folder: Path, old: dict[str, str], new: dict[str, str]) -> bool:
    found = contents(folder)["manifest.json"]
    assert found in (old["manifest.json"], new["manifest.json"])
    assert verify(folder, threads=1).findings == ()
    return True


HINTS = {"ENOSPC": "free some space", "EDQUOT": "the disk quota is used up"}

SMALL = {("EIO", False), ("ENOSPC", True)}
"""What `make test` tries of it."""


@pytest.mark.parametrize(
    ("name", "calls", "lasting"),
    [
        pytest.param(n, c, e, id=f"{n}-{'lasting' if e else 'once'}", marks=[] if (n, e) in SMALL else pytest.mark.slow)
        for n, c, e in FAULTS
    ],
)
def test_the_nth_failing_call_is_reported_and_costs_no_cache(
    name: str, calls: tuple[str, ...], lasting: bool, lab: Lab, tiny_job: Job, tiny_changed: Job, tmp_path: Path, tally
) -> None:
    old_cache = tiny_job.build(tmp_path / "old")
    old, new = contents(old_cache), contents(tiny_changed.build(tmp_path / "new"))
    folder = tmp_path / "cache"
    words = tiny_changed.command(folder)
    tried = held = harmless = at = 0
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(old_cache, folder)
        fault = Fault(calls=calls, at=at, code=getattr(errno, name), lasting=lasting)
        outcome = lab.run(words, root=folder, fault=fault)
        if outcome.num_hit == 0:
            assert outcome.code == 0, outcome.told
            break
        tried += 1
        where = f"call {at} of {calls}: {outcome.told}"
        assert is_old_or_new(folder, old, new), where
        if outcome.code == 0:  # nothing that was lost matters
            harmless += 1
            assert contents(folder)["manifest.json"] == new["manifest.json"], where
        else:
            assert outcome.code == 5, where
            assert str(folder) in outcome.told and os.strerror(fault.code).lower() in outcome.told.lower(), where
            assert f"\nhint: {HINTS.get(name, '')}" in outcome.told, where
            assert name != "ENOSPC" or not [*folder.rglob(".tmp-packer-*")], where
        again = lab.run(words, root=folder)
        assert again.code == 0, again.told
        assert contents(folder) == new, where
        held += 1
        at += 1 if FULL else 8 + 5 * at
    kind = "every later one too" if lasting else "once"
    tally(f"{name}, {kind}", tried=tried, held=held, note=f"{harmless} of no consequence")


def test_a_short_write_is_written_on(lab: Lab, tiny_job: Job, tmp_path: Path, tally) -> None:
    new = contents(tiny_job.build(tmp_path / "new"))
    tried = held = 0
    at = 0
    while True:
        folder = tmp_path / f"cache{at}"
        outcome = lab.run(tiny_job.command(folder), root=folder, fault=Fault(calls=("write",), at=at, code=-1))
        assert outcome.code == 0, outcome.told
        assert contents(folder) == new
        if outcome.num_hit == 0:
            break
        tried += 1
        held += 1
        at += 1 if FULL else 25
    assert at > 10
    tally("short write", tried=tried, held=held)


SIGNALLED = """
import signal, sys
count = 0
def count_up(*_):
    global count
    count += 1
signal.signal(signal.SIGALRM, count_up)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
from packer_cli.main import cli
try:
    cli.main(sys.argv[1:], prog_name="packer")
except SystemExit as end:
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(count, file=sys.stderr)
    raise
"""


def test_a_storm_of_signals_interrupts_calls_and_changes_nothing(tiny_job: Job, tmp_path: Path, tally) -> None:
    """Real EINTR, from the kernel: a timer of half a millisecond through a whole build."""
    new = contents(tiny_job.build(tmp_path / "new"))
    least, tried, held, count = amount(small=100, full=1_000), 0, 0, 0
    while count < least:  # a busy machine delivers fewer of them in one build
        folder = tmp_path / f"cache{tried}"
        process = run_forked(SIGNALLED, *tiny_job.command(folder))
        assert process.returncode == 0, process.stderr
        received = int(process.stderr.split()[-1])
        assert received > 0
        count += received
        tried += 1
        held += contents(folder) == new
    tally("EINTR by a timer", tried=tried, held=held, note=f"{count:,} signals")


def test_reading_calls_that_fail_are_reported_by_verify_and_crash_nothing(
    lab: Lab, tiny_job: Job, tmp_path: Path, tally
) -> None:
    folder = tiny_job.build(tmp_path / "cache")
    before = contents(folder)
    tried = held = 0
    for name in ("EIO", "EACCES", "EMFILE"):
        at = 0
        while True:
            fault = Fault(calls=READING, at=at, code=getattr(errno, name))
            outcome = lab.run(["verify", str(folder), "-j", "1"], root=folder, fault=fault)
            if outcome.num_hit == 0:
                assert outcome.code == 0
                break
            assert outcome.code in (0, 1, 5), f"{name} at {at}: {outcome.told}"
            tried += 1
            held += "internal error" not in outcome.told and contents(folder) == before
            at += 1 if FULL else 8 + 5 * at
    tally("a reading call of verify fails", tried=tried, held=held)
