"""What every script here reports of a preparation: a line of JSON, the last of its output.

The scripts run where packer may not be: they import nothing of it.
"""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path


class Report:
    """Counts the seconds that are not the trainer's own: rows brought into the form it reads, tokens counted for the table."""

    def __init__(self) -> None:
        self._not_counted_s = 0.0

    @contextmanager
    def not_counted(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._not_counted_s += time.perf_counter() - start

    def print(self, *, tokens: int, folder: Path, libraries: Iterable[str]) -> None:
        """Print the result.

        Args:
            tokens: Of all documents, padding left out.
            folder: What training reads.
            libraries: Whose versions say what was measured.

        """
        result = {
            "not_counted_s": self._not_counted_s,
            "tokens": tokens,
            "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
            "versions": {name: version(name) for name in libraries},
        }
        print(json.dumps(result))
