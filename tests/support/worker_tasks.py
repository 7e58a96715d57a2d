"""Work for worker processes. They import this module to run it, so it imports little."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from processes import wait_until


def measuring(given: bytes) -> Callable[[bytes], tuple[int, int]]:
    return lambda task: (len(given) + len(task), os.getpid())


def naming(folder: Path) -> Callable[[int], tuple[str, int]]:
    from packer.names import shown

    return lambda _: (shown(folder), os.getpid())


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


def waiting(folder: Path) -> Callable[[int], None]:
    def work(task: int) -> None:
        (folder / str(os.getpid())).touch()
        time.sleep(0.01 if task == 0 else 600)

    return work


def dying(folder: Path, end: int) -> Callable[[int], None]:
    def work(task: int) -> None:
        (folder / f"{task} {os.getpid()}").touch()
        wait_until(lambda: len(list(folder.iterdir())) == 3)
        if task == 1:
            os.kill(os.getpid(), end) if end else os._exit(9)
        time.sleep(600)

    return work


def aborting() -> Callable[[int], None]:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return lambda _: signal.raise_signal(signal.SIGABRT)


def dying_midway(_: str) -> Callable[[int], bytes]:
    """The last of three workers is killed when half of its answer is sent."""
    send = Connection._send

    def half_sent(pipe: Connection, content: bytes) -> None:
        send(pipe, content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    def work(task: int) -> bytes:
        if task == 2:
            Connection._send = half_sent
        return bytes(2**20)

    return work
