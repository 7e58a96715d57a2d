"""A command in a process of its own: how long it takes, and the most memory that it or a process it started had to itself."""

import json
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_LOOK_S = 0.05


def run_watched(
    command: Sequence[object], *, log: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON that it prints to stdout, with ``peak_bytes`` and ``seconds`` from the start of its interpreter to its exit.

    Of stdout, what stands before the JSON is passed over: libraries print there. ``not_counted_s`` of the JSON is taken off.

    Raises:
        ChildProcessError: it failed; the message ends as its output did.

    """
    printed = log.with_suffix(".out")
    with printed.open("wb") as output, log.open("wb") as errors:
        start = time.perf_counter()
        process = subprocess.Popen([str(part) for part in command], cwd=cwd, env=env, stdout=output, stderr=errors)
        peak, done = [0], threading.Event()

        def look() -> None:
            while not done.wait(_LOOK_S):
                peak.extend(map(_own_bytes, _family(process.pid)))

        watch = threading.Thread(target=look, daemon=True)
        watch.start()
        failed = process.wait()
        seconds = time.perf_counter() - start
        done.set()
        watch.join()
    if failed:
        raise ChildProcessError("\n".join(log.read_text("utf-8", "replace").splitlines()[-20:]))
    lines = printed.read_text("utf-8", "replace").splitlines()
    begin = max(number for number, line in enumerate(lines) if line.startswith("{"))
    result = json.loads("\n".join(lines[begin:]))
    return {**result, "seconds": seconds - result.get("not_counted_s", 0.0), "peak_bytes": max(peak)}


def _own_bytes(process: str) -> int:
    """Memory of a process that is its own; 0 where the system does not say, or the process is gone.

    Pages of files that are mapped do not count: they are the system's cache, which has them with or without a process.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text("ascii", "replace")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)


def _family(process: int) -> list[str]:
    """Numbers of a process and of all that it started, and so on; the process alone where the system does not say."""
    found = [str(process)]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += children.read_text("ascii").split()
            except OSError:
                continue
    return found
