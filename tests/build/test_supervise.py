"""A worker whose template holds the interpreter is ended by its parent; nothing else could end it."""

import re
import time
from collections.abc import Callable

import pytest

from packer.build.pool import Pool, WorkerDiedError
from packer.render.watchdog import ROW, TemplateOverrunError, place, watched


def stubborn() -> Callable[[int], int]:
    """A function whose second task is one step that takes hours, in which Python lets nobody else run."""

    def work(task: int) -> int:
        place()[ROW] = 10 * task
        return watched(lambda: bool(re.match(r"(a+)+$", "a" * 60 + "b")) if task == 1 else task)

    return work


def dying() -> Callable[[int], int]:
    import os

    return lambda _: os._exit(9)


def idle() -> Callable[[int], int]:
    """A function that works longer than a template may, but renders nothing."""

    def work(task: int) -> int:
        until = time.process_time() + 4
        while time.process_time() < until:
            pass
        return task

    return work


def test_a_step_that_takes_the_interpreter_is_ended_from_outside_and_named() -> None:
    pool: Pool[int, int] = Pool(stubborn, (), 2, where=lambda task, row: f"task {task}, row {row}")
    done = []
    with pytest.raises(TemplateOverrunError, match=r"^task 1, row 10: the chat template takes more than 2 s"):
        done.extend(pool.run([0, 1]))
    assert done in ([], [(0, 0)])


def test_a_worker_that_dies_by_itself_is_no_templates_fault() -> None:
    with pytest.raises(WorkerDiedError):
        list(Pool(dying, (), 2, where=lambda *_: "").run([0, 1]))


@pytest.mark.slow
def test_work_that_renders_nothing_may_take_its_time() -> None:
    assert sorted(Pool(idle, (), 2).run([0, 1])) == [(0, 0), (1, 1)]
