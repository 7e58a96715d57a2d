"""One build, alone in its process: prints a line of JSON with seconds, tokens, size, peak of memory and where the time went.

The clock runs from the recipe to the commit; what is imported before it, as TRL is for the peer.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from packer.pipeline import build
from packer.recipe import make_recipe

_LOOK_S = 0.05


def own_bytes(process: str) -> int:
    """Memory of a process that is its own; 0 where the system does not say, or the process is gone.

    Pages of files that are mapped do not count: they are the system's cache, which has them with or without a process.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text("ascii", "replace")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)


def family(process: int) -> list[str]:
    """Numbers of a process and of all that it started, and so on; the process alone where the system does not say."""
    found = [str(process)]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += children.read_text("ascii").split()
            except OSError:
                continue
    return found


class _Watch(threading.Thread):
    """Looks at this process and those it starts."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(_LOOK_S):
            self.peak_bytes = max([self.peak_bytes, *map(own_bytes, family(os.getpid()))])


def main() -> None:
    """Arguments: the recipe as JSON, the folder, processes."""
    watch = _Watch()
    watch.start()
    recipe = make_recipe(json.loads(sys.argv[1]))
    start = time.perf_counter()
    result = build(recipe, sys.argv[2], jobs=int(sys.argv[3]))
    seconds = time.perf_counter() - start
    watch.done.set()
    assert result.manifest is not None
    told = {
        "seconds": seconds,
        "tokens": result.manifest.totals.tokens,
        "bytes": sum(path.stat().st_size for path in Path(sys.argv[2]).rglob("*") if path.is_file()),
        "peak_bytes": watch.peak_bytes,
        "parts": dict(result.profile.parts),
        "stages": dict(result.profile.stages),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
