"""Jobs and caches that faults are tried on, and the table of what was tried."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.amount import FULL
from faults.jobs import Job, write_job
from faults.lab import Lab

Tally = Callable[..., None]


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Say how many of a fault were tried, and of how many the promise held; they must be the same."""

    def say(fault: str, *, tried: int, held: int, note: str = "") -> None:
        record_property("fault", [fault, tried, held, note])
        assert held == tried > 0, f"{fault}: the promise held for {held} of {tried}"

    return say


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """A folder in memory where there is one: faults are made by the tests, and a disk would only make them slow."""
    parent = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="packer-faults-", dir=parent if os.access(parent, os.W_OK) else None
    ) as place:
        yield Path(place)


@pytest.fixture
def tmp_path(memory: Path) -> Iterator[Path]:
    """As pytest's, in memory, and gone after the test."""
    with tempfile.TemporaryDirectory(dir=memory) as place:
        yield Path(place)


@pytest.fixture(scope="session")
def job(memory: Path) -> Job:
    """Inputs, a tokenizer and a recipe. Shared: tests that change something copy it."""
    return write_job(memory / "job")


@pytest.fixture(scope="session")
def changed_job(job: Job, memory: Path) -> Job:
    """The same job after its inputs changed in the middle and grew at the end."""
    return job.changed(memory / "changed")


@pytest.fixture(scope="session")
def tiny_job(memory: Path) -> Job:
    """A job of ten rows, for what is tried at every call of a build. Shared."""
    return write_job(memory / "tiny", num_rows=8)


@pytest.fixture(scope="session")
def tiny_changed(tiny_job: Job, memory: Path) -> Job:
    """The same after its inputs changed. Shared."""
    return tiny_job.changed(memory / "tiny_changed")


@pytest.fixture(scope="session")
def built(job: Job, memory: Path) -> Path:
    """The job's cache. Shared: tests that damage it copy it."""
    return job.build(memory / "built" / "cache")


@pytest.fixture(scope="session")
def rebuilt(changed_job: Job, memory: Path) -> Path:
    """The cache of the changed job. Shared."""
    return changed_job.build(memory / "rebuilt" / "cache")


@pytest.fixture
def cache(built: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(built, tmp_path / "cache"))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Where builds run whose storage is watched, refused or cut off."""
    with Lab() as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    table: dict[str, list[Any]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in report.user_properties:
                if name == "fault":
                    fault, tried, held, note = value
                    row = table.setdefault(fault, [0, 0, 0, note])
                    row[:3] = row[0] + tried, row[1] + held, row[2] + 1
    if not table:
        return
    terminalreporter.section("faults: all that is promised" if FULL else "faults: a small part")
    terminalreporter.write_line(f"{'fault':<58} {'tried':>9} {'held':>9}")
    for fault, (tried, held, num_tests, note) in sorted(table.items()):
        told = note if num_tests == 1 else f"in {num_tests} tests"
        terminalreporter.write_line(f"{fault:<58} {tried:>9,} {held:>9,}  {told}{'' if held == tried else '  BROKEN'}")
