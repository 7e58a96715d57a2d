"""What every script here tells of a preparation: a line of JSON, the last of its output.

The scripts run in environments of other trainers, where packer is not: they import nothing of it.
"""

import json
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path


class Clock:
    """Runs from its making; what has to be imported is imported before, as for packer's builds."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def tell(self, *, seconds: float, tokens: int, folder: Path, libraries: Iterable[str]) -> None:
        """Print the result.

        Args:
            seconds: From rows in a file to what training reads.
            tokens: Of all documents, padding left out.
            folder: What training reads.
            libraries: Whose versions say what was measured.

        """
        told = {
            "seconds": seconds,
            "tokens": tokens,
            "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
            "versions": {name: version(name) for name in libraries},
        }
        print(json.dumps(told))
