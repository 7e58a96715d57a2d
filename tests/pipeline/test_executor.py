"""Tasks in worker processes: each is answered once, what dies is told, and nobody is left behind."""

import os
import signal
import subprocess
import sys
from functools import partial
from multiprocessing import Pipe
from pathlib import Path

import pytest
import worker_tasks
from processes import HANG_S, is_running, run_forked, wait_until
from worker_tasks import dying, dying_midway, failing, measuring, naming, waiting

from packer.pipeline.workers import executor, fork_server
from packer.pipeline.workers.executor import Processes, WorkerDiedError, run_tasks
from packer.store.place import make_mirror


@pytest.fixture(scope="module", autouse=True)
def server():
    """One for all tests, each of which would wait until its own has imported packer."""
    with fork_server.fork_server():
        yield


@pytest.fixture(params=[True, False], ids=["forked", "spawned"])
def forks(request, monkeypatch):
    """Whether workers are forked from a server."""
    if request.param and not fork_server.FORKS:
        pytest.skip("no process is forked on this system")
    monkeypatch.setattr(fork_server, "FORKS", request.param)
    return request.param


def test_every_task_is_answered_once_and_nobody_is_left(forks):
    """Arguments and tasks are larger than a pipe; there are fewer workers than tasks."""
    tasks = [bytes(2**17 + n) for n in range(5)]
    answers = dict(run_tasks(partial(measuring, bytes(2**18)), tasks, jobs=2))
    assert {n: size for n, (size, _) in answers.items()} == {n: 2**18 + 2**17 + n for n in range(5)}
    processes = {process for _, process in answers.values()}
    assert os.getpid() not in processes and 1 <= len(processes) <= 2
    wait_for_the_end_of(processes)
    assert list(run_tasks(partial(failing, "made"), [], jobs=2)) == [], "without tasks nothing is made"
    assert dict(run_tasks(partial(measuring, b""), [b"a", b""], jobs=1)) == {0: (1, os.getpid()), 1: (0, os.getpid())}


@pytest.mark.parametrize("failing_one", [0, 1])
def test_what_is_finished_when_another_fails_is_answered_before_the_error(failing_one):
    pipes = [Pipe() for _ in range(2)]
    for number, (_, there) in enumerate(pipes):
        there.send((ValueError("no") if number == failing_one else None, "made"))
    answers = executor._answers({here: None for here, _ in pipes}, iter(enumerate("ab")))
    assert next(answers) == (1 - failing_one, "made")
    with pytest.raises(ValueError, match="no"):
        next(answers)


ERRORS = [
    ("made", 0, ValueError, "not to be made"),
    ("error", 3, KeyError, "3"),
    ("error", -1, TypeError, "it stays here"),
    ("result", 0, TypeError, "cannot pickle"),
]


def test_errors_come_back_as_they_are():
    for where, task, error, words in ERRORS:
        with pytest.raises(error, match=words) as caught:
            list(run_tasks(partial(failing, where), [task, task], jobs=2))
        if error in (ValueError, KeyError):  # where it was raised
            assert "in failing" in str(caught.value.__cause__) or "in work" in str(caught.value.__cause__)


def wait_for_the_end_of(processes) -> None:
    wait_until(lambda: not any(map(is_running, processes)))


def test_a_run_that_is_left_midway_leaves_no_process_behind(tmp_path):
    running = run_tasks(partial(waiting, tmp_path), [0, 1, 2, 3], jobs=3)
    assert next(running) == (0, None)
    wait_until(lambda: len(list(tmp_path.iterdir())) == 3)
    processes = [int(path.name) for path in tmp_path.iterdir()]
    assert len(processes) == 3 and all(map(is_running, processes))
    running.close()
    wait_for_the_end_of(processes)


def test_one_that_dies_ends_all_and_is_reported(tmp_path):
    for end, told in (
        (signal.SIGKILL, "SIGKILL, most often for lack of memory"),
        (signal.SIGTERM, "SIGTERM, most often"),
        (0, "exit code 9"),
    ):
        folder = tmp_path / told
        folder.mkdir()
        with pytest.raises(WorkerDiedError, match=told):
            list(run_tasks(partial(dying, folder, end), [0, 1, 2], jobs=3))
        workers = [int(path.name.split()[1]) for path in folder.iterdir()]
        assert len(workers) == 3
        wait_for_the_end_of(workers)


def test_one_that_dies_in_the_middle_of_its_answer_is_reported():
    running = run_tasks(partial(dying_midway, ""), [0, 1, 2], jobs=3)
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        assert len(list(running)) < 3


PARENT = """
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, sys.argv[3])
from packer.pipeline.workers import fork_server
from packer.pipeline.workers import executor
from worker_tasks import waiting

if __name__ == "__main__":
    fork_server.FORKS = sys.argv[2] == "True"
    list(executor.run_tasks(partial(waiting, Path(sys.argv[1])), [1, 2, 3], jobs=3))
"""


@pytest.mark.parametrize(
    "forks", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["forked", "spawned"], indirect=True
)
def test_they_end_with_a_parent_that_is_killed(forks, tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "seen"
    script.write_text(PARENT, "utf-8")
    folder.mkdir()
    here = Path(worker_tasks.__file__).parent
    parent = subprocess.Popen([sys.executable, str(script), str(folder), str(forks), str(here)])
    wait_until(lambda: len(list(folder.iterdir())) == 3 or parent.poll() is not None)
    workers = [int(path.name) for path in folder.iterdir()]
    parent.kill()
    parent.wait()
    assert len(workers) == 3
    wait_for_the_end_of(workers)


ABANDONED = """
import multiprocessing
import sys

from functools import partial
from packer.pipeline.workers.executor import _serve
from worker_tasks import measuring

for unread in (False, True):
    here, there = multiprocessing.Pipe()
    if unread:
        there.send("an answer")  # closing a socket with unread bytes resets it
    here.close()
    _serve(there, partial(measuring, b""))
    print("ended")
"""


def test_a_worker_whose_parent_is_gone_ends_without_a_word():
    found = run_forked(ABANDONED)
    assert (found.returncode, found.stdout, found.stderr) == (0, "ended\nended\n", "")


SCRIPT = """
import sys
import packer
from packer.pipeline.workers import fork_server

fork_server.FORKS = fork_server.FORKS and sys.argv[3] == "True"
packer.build(sys.argv[1], sys.argv[2], jobs=2, limit=4, partition_bytes=2000, progress=False)
"""


def run_script(text: str, starter: Path, folder: Path, *, forks: bool) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text, "utf-8")
    command = [sys.executable, str(script), str(starter / "recipe.yaml"), str(folder / "cache"), str(forks)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


# What a worker is told of the script is the same for both.
@pytest.mark.parametrize(
    "forks", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["forked", "spawned"], indirect=True
)
def test_a_script_builds_without_a_main_guard(forks: bool, starter: Path, tmp_path: Path) -> None:
    """Its workers do not import it: it says nothing twice, and builds once."""
    found = run_script(f"{SCRIPT}print('once')\n", starter, tmp_path, forks=forks)
    assert (found.returncode, found.stdout, found.stderr) == (0, "once\n", "")
    assert (tmp_path / "cache" / "manifest.json").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_workers_are_told_which_bucket_the_folder_mirrors_that_they_write_to(jobs: int, tmp_path: Path) -> None:
    """They would not find it out from the folder."""
    folder = make_mirror(tmp_path / "copy", "s3://bucket/cache").folder
    for place, expected in ((folder, "s3://bucket/cache"), (tmp_path, str(tmp_path))):
        told = dict(Processes(jobs).run(partial(naming, place), [0, 1], sizes=[2**30] * jobs, folder=place)).values()
        assert {name for name, _ in told} == {expected}
        assert (os.getpid() in {process for _, process in told}) == (jobs == 1)
