"""One build, alone in its process: prints a line of JSON with seconds, tokens, peaks of memory and where the time went.

The clock runs from the recipe to the commit; what is imported before it, as TRL is for the peer.
"""

import json
import multiprocessing
import sys
import threading
import time
from pathlib import Path

from packer.build import build
from packer.recipe import make_recipe

_LOOK_S = 0.05


def peak_bytes(process: str) -> int:
    """The most memory a process had; 0 where the system does not say, or the process is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text("ascii", "replace")
    except OSError:
        return 0
    # Not ru_maxrss, which begins with what the process that started this one has.
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


class _Children(threading.Thread):
    """Looks at the processes that are started, as long as they are there."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(_LOOK_S):
            peaks = [peak_bytes(str(child.pid)) for child in multiprocessing.active_children()]
            self.peak_bytes = max([self.peak_bytes, *peaks])


def main() -> None:
    """Arguments: the recipe as JSON, the folder, processes."""
    children = _Children()
    children.start()
    recipe = make_recipe(json.loads(sys.argv[1]))
    start = time.perf_counter()
    result = build(recipe, sys.argv[2], jobs=int(sys.argv[3]))
    seconds = time.perf_counter() - start
    children.done.set()
    assert result.manifest is not None
    told = {
        "seconds": seconds,
        "tokens": result.manifest.totals.tokens,
        "peak_bytes": max(children.peak_bytes, peak_bytes("self")),
        "parts": dict(result.profile.parts),
        "stages": dict(result.profile.stages),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
