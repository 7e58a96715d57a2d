"""Memory that was freed is given back to the system."""

import sys
import threading
from pathlib import Path

import pytest

from packer.model.backend import return_freed


def _own_bytes() -> int:
    status = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of Linux is asked")
def test_what_a_thread_freed_leaves_the_process() -> None:
    kept: list[bytearray] = []

    def load() -> None:
        pieces = [bytearray(2048) for _ in range(2**15)]
        kept.append(pieces[-1])  # so that what was freed is in the middle of the thread's heap

    loading = threading.Thread(target=load)
    loading.start()
    loading.join()
    before = _own_bytes()
    return_freed()
    assert before - _own_bytes() > 2**25
    assert len(kept[0]) == 2048
