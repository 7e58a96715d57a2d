"""How long a function takes."""

import time
from collections.abc import Callable

ROUNDS = 3


def best(function: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds of the fastest of a few rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)
