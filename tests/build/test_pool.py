"""Builds in several processes from a script of one's own."""

import subprocess
import sys
from pathlib import Path

import pytest
from processes import HANG_S

from packer.build import pool

SCRIPT = """
import sys
from packer import build_cache, load_recipe

build_cache(load_recipe(sys.argv[1]), sys.argv[2], jobs=2)
"""


def run(text: str, starter: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text, "utf-8")
    command = [sys.executable, str(script), str(starter / "recipe.yaml"), str(folder / "cache")]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def test_a_script_without_a_main_guard_ends_and_is_told_of_it(starter: Path, tmp_path: Path) -> None:
    """What a worker is given is larger than a pipe: handed over at its start, it would block the parent for ever."""
    assert (starter / "tokenizer" / "tokenizer.json").stat().st_size > 2**16
    found = run(SCRIPT, starter, tmp_path)
    assert found.returncode == 1
    # The workers' own last words may stand between and behind.
    assert any("WorkerDiedError: " in line for line in found.stderr.splitlines())
    assert any("if __name__ == '__main__':" in line for line in found.stderr.splitlines())
    assert not (tmp_path / "cache" / "manifest.json").exists()


def test_a_script_with_a_main_guard_builds(starter: Path, tmp_path: Path) -> None:
    guarded = SCRIPT.replace("build_cache(load", "if __name__ == '__main__':\n    build_cache(load")
    found = run(guarded, starter, tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert (tmp_path / "cache" / "manifest.json").exists()


@pytest.mark.parametrize(("forks", "jobs"), [(True, [1, 1, 4, 7, 8, 8]), (False, [1, 1, 1, 1, 2, 8])])
def test_processes_are_started_where_there_is_work_for_them(
    forks: bool, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process loads for seconds; a small build is done by then. The bytes do not depend on it."""
    monkeypatch.setattr(pool, "default_jobs", lambda: 8)
    monkeypatch.setattr(pool, "FORKS", forks)
    assert [pool.jobs_for(mebibytes * 2**20) for mebibytes in (0, 15, 16, 31, 32, 10_000)] == jobs
    monkeypatch.setattr(pool, "default_jobs", lambda: 1)
    assert pool.jobs_for(2**40) == 1
