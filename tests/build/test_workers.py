"""Worker processes: one loads and forks the others, or each loads; they answer everything once, and all of them end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import HANG_S, wait_until

from packer.build import workers
from packer.build.pool import Pool, WorkerDiedError
from packer.build.workers import Workers


@pytest.fixture(params=[True, False], ids=["forked", "spawned"])
def forks(request, monkeypatch):
    """Whether one process forks the others."""
    if request.param and not workers.FORKS:
        pytest.skip("no process is forked on this system")
    monkeypatch.setattr(workers, "FORKS", request.param)
    return request.param


def remembering(given: bytes) -> Callable[[int], tuple[int, int, int, int]]:
    """A function that tells which process made it and which runs it."""
    made = os.getpid()
    return lambda task: (task * len(given), made, os.getpid(), time.sleep(0.05) or os.getppid())


class Slow:
    """Work that loads for a while, or fails in the end; it tells which process looked at a task, and which did it."""

    def __init__(self, fails: bool) -> None:
        self.until = time.monotonic() + 0.5
        self.fails = fails

    def is_waiting(self) -> bool:
        return time.monotonic() < self.until

    def ahead(self, task: int) -> int:
        time.sleep(0.01)
        if task % 5 == 0:
            raise ValueError("left for later")
        return os.getpid()

    def settle(self) -> None:
        time.sleep(max(self.until - time.monotonic(), 0))
        if self.fails:
            raise ValueError("not to be loaded")

    def __call__(self, task: int, ahead: int | None = None) -> tuple[int | None, int]:
        time.sleep(0.01)
        return ahead, os.getpid()


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("num_tasks", [2, 100])
def test_tasks_that_were_looked_at_are_dealt_out_and_answered_once(jobs, num_tasks, forks):
    answers = list(Pool(Slow, (False,), jobs).run(list(range(num_tasks))))
    assert sorted(number for number, _ in answers) == list(range(num_tasks))
    looked = {number: ahead for number, (ahead, _) in answers if ahead is not None}
    assert looked or not forks  # of processes that are spawned, one may be done before another has begun
    assert not any(number % 5 == 0 for number in looked)
    if jobs > 1 and forks:  # by one, and done by all
        assert len({*looked.values()}) == 1
        assert len({process for number, (_, process) in answers if number in looked}) == min(jobs, len(looked))
    elif jobs > 1:  # each takes no more than one from the others
        assert all(process == looked.get(number, process) for number, (_, process) in answers)
        assert len(looked) <= jobs


def test_what_fails_to_load_fails_every_task(forks):
    with pytest.raises(ValueError, match="not to be loaded"):
        list(Pool(Slow, (True,), 2).run(list(range(9))))


def lonely(given: bytes) -> Callable[[int], tuple[int, int]]:
    """As `remembering`, in a process that may not fork."""

    def refused() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    os.fork = refused
    return lambda task: (task, os.getpid())


@pytest.mark.skipif(not workers.FORKS, reason="no process is forked on this system")
def test_where_no_process_can_be_forked_one_does_it_all():
    answers = dict(Pool(lonely, (b"",), 3).run(list(range(7))))
    assert {number: task for number, (task, _) in answers.items()} == {n: n for n in range(7)}
    assert len({process for _, process in answers.values()}) == 1


def panic() -> None:
    raise Panic("as a library of Rust does")


class Panic(BaseException):
    """No Exception."""


def test_whatever_warming_raises_is_left_to_the_tasks(forks):
    waiting_workers = Workers(2, panic)
    waiting_workers.start()
    assert len(dict(Pool(remembering, (b"a",), 2).run([0, 1, 2], workers=waiting_workers))) == 3


def test_one_that_is_not_needed_may_have_gone(monkeypatch):
    monkeypatch.setattr(workers, "FORKS", False)
    waiting_workers = Workers(3)
    waiting_workers.start()
    waiting_workers._processes[2].kill()
    waiting_workers._processes[2].join()
    assert len(dict(Pool(remembering, (b"a",), 2).run([0, 1], workers=waiting_workers))) == 2


@pytest.mark.parametrize("jobs", [2, 7])
def test_every_task_is_answered_once(forks, jobs):
    """Arguments and tasks are larger than a pipe; there may be more workers than tasks."""
    given = bytes(2**18)
    answers = dict(Pool(remembering, (given,), jobs).run(list(range(5))))
    assert {number: result for number, (result, *_) in answers.items()} == {n: n * 2**18 for n in range(5)}
    made = {maker for _, maker, _, _ in answers.values()}
    parents = {process: parent for _, _, process, parent in answers.values()}
    if forks:
        (first,) = made
        assert all(parent == (os.getpid() if process == first else first) for process, parent in parents.items())
    else:
        assert made == parents.keys() and set(parents.values()) == {os.getpid()}
    wait_for_the_end_of(list(parents))


def measuring(_: None) -> Callable[[bytes], int]:
    return len


def test_tasks_may_be_larger_than_a_pipe(forks):
    tasks = [bytes(2**17 + n) for n in range(6)]
    assert dict(Pool(measuring, (None,), 2).run(tasks)) == {n: 2**17 + n for n in range(6)}


def failing(where: str) -> Callable[[int], object]:
    if where == "made":
        raise ValueError("not to be made")

    def work(task: int) -> object:
        if where == "error":
            raise LocalError("of a class that is nowhere") if task < 0 else KeyError(task)
        return threading.Lock()

    return work


class LocalError(Exception):
    """An error that does not pickle."""

    def __reduce__(self):
        raise TypeError("it stays here")


@pytest.mark.parametrize(
    ("where", "task", "error", "told"),
    [
        ("made", 0, ValueError, "not to be made"),
        ("error", 3, KeyError, "3"),
        ("error", -1, RuntimeError, "of a class that is nowhere.*it stays here"),
        ("result", 0, RuntimeError, "cannot pickle"),
    ],
)
def test_errors_come_back_as_they_are(where, task, error, told, forks):
    with pytest.raises(error, match=told) as caught:
        list(Pool(failing, (where,), 2).run([task, task]))
    if error is not RuntimeError:  # where it was raised
        assert "in failing" in caught.value.__notes__[0] or "in work" in caught.value.__notes__[0]


def test_what_does_not_pickle_is_told_before_anything_is_started():
    with pytest.raises(Exception, match="pickle"):
        list(Pool(measuring, (threading.Lock(),), 2).run([b"", b""]))


def waiting(folder: Path) -> Callable[[int], None]:
    def work(task: int) -> None:
        (folder / str(os.getpid())).touch()
        time.sleep(0.01 if task == 0 else 600)

    return work


def is_running(process: int) -> bool:
    """Whether there is such a process that has not ended; one that nobody waited for yet has."""
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return not Path("/proc/self/stat").exists() and _answers(process)


def _answers(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_the_end_of(processes: list[int]) -> None:
    wait_until(lambda: not any(map(is_running, processes)))


def test_whoever_leaves_midway_leaves_nobody_behind(forks, tmp_path):
    running = Pool(waiting, (tmp_path,), 3).run([0, 1, 2, 3])
    assert next(running) == (0, None)
    wait_until(lambda: len(list(tmp_path.iterdir())) == 3)
    processes = [int(path.name) for path in tmp_path.iterdir()]
    assert len(processes) == 3 and all(map(is_running, processes))
    running.close()
    wait_for_the_end_of(processes)


def dying(folder: Path) -> Callable[[int], None]:
    def work(task: int) -> None:
        (folder / f"{task} {os.getpid()}").touch()
        wait_until(lambda: len(list(folder.iterdir())) == 3)
        if task == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)

    return work


def test_one_that_dies_ends_all(forks, tmp_path):
    with pytest.raises(WorkerDiedError, match="killed"):
        list(Pool(dying, (tmp_path,), 3).run([0, 1, 2]))
    processes = [int(path.name.split()[1]) for path in tmp_path.iterdir()]
    assert len(processes) == 3
    wait_for_the_end_of(processes)


SCRIPT = """
import sys
from pathlib import Path

sys.path[:0] = sys.argv[3:]
from packer.build import workers
from packer.build.pool import Pool
from test_workers import waiting

if __name__ == "__main__":
    workers.FORKS = sys.argv[2] == "True"
    list(Pool(waiting, (Path(sys.argv[1]),), 3).run([1, 2, 3]))
"""


def test_they_end_with_a_parent_that_is_killed(forks, tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "seen"
    script.write_text(SCRIPT, "utf-8")
    folder.mkdir()
    here = Path(__file__).parent
    parent = subprocess.Popen([sys.executable, str(script), str(folder), str(forks), str(here), *sys.path[:1]])
    wait_until(lambda: len(list(folder.iterdir())) == 3)
    processes = [int(path.name) for path in folder.iterdir()]
    parent.kill()
    parent.wait()
    assert len(processes) == 3
    wait_for_the_end_of(processes)


LOADING = """
import os
import sys
import threading
import time
from pathlib import Path

from packer.build.stages import Stages
from packer.model import load_model
from packer.recipe import load_recipe, make_recipe, to_json

starter = Path(sys.argv[1])
recipe = make_recipe({**to_json(load_recipe(starter / "recipe.yaml")), "engine": "fast"})
model = load_model(starter / "tokenizer")
before = len(os.listdir("/proc/self/task"))
stages = Stages(recipe, model)
python = threading.active_count() - 1  # the one that watches templates; a copy makes its own
until = time.monotonic() + 60
while len(os.listdir("/proc/self/task")) > before + python and time.monotonic() < until:
    time.sleep(0.01)  # one that was waited for may take a moment to be gone
assert len(os.listdir("/proc/self/task")) <= before + python, threading.enumerate()
child = os.fork()
if child == 0:
    os._exit(len(stages.tokenizing._encoder.encode(["some text"])[0]))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) > 0
"""


@pytest.mark.skipif(not workers.FORKS, reason="no process is forked on this system")
def test_what_is_loaded_before_a_fork_has_no_threads_of_its_own(starter):
    """Threads of an encoder would be missing in the copy, which would wait for them for ever."""
    pytest.importorskip("fastokens")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", LOADING, str(starter)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (found.returncode, found.stderr) == (0, "")
