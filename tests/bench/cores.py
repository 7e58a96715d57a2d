"""Builds by 1, 2, 4, … processes, up to one for each core: where they stop to scale, and in which part.

The rows are those of building.py, with the fast engine. Parts are seconds of the wall clock; what is missing of the whole is
imports and the start of processes. All builds of a table must give the same content.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from building import REAL, WORKLOADS, Workload, build_rows, write_rows
from rich.table import Table

from packer.pipeline.workers.fork_server import default_jobs

_WORKLOADS = ((WORKLOADS[0], 16), (WORKLOADS[-1], 4))
"""Rows, and how often they are taken as many times as in building.py."""

_PARTS = ("plan", "documents", "blocks", "commit")


def cores_tables() -> Iterator[Table]:
    """One table for short rows, and one for texts."""
    return (_measured_table(workload, times) for workload, times in _WORKLOADS)


def _measured_table(workload: Workload, times: int) -> Table:
    """Seconds of a build by each number of processes."""
    corpus, tokenizer = REAL / "corpora" / workload.corpus, REAL / "tokenizers" / workload.tokenizer
    if not (corpus.exists() and tokenizer.exists()):
        return Table(f"{workload.title}: SKIPPED: real rows and tokenizer not found", box=None, pad_edge=False)
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        num_rows = write_rows(corpus, rows, workload.copies * times, as_text=workload.as_text)
        title = f"{num_rows:,} {workload.title}, {workload.tokenizer}, {rows.stat().st_size / 1e6:,.0f} MB"
        columns = ("time", "times one's speed", *_PARTS, "largest process")
        table = Table(title, *columns, box=None, pad_edge=False)
        alone: dict[str, Any] | None = None
        for jobs in _powers_of_two(default_jobs()):
            measured = build_rows(rows, Path(folder) / "cache", tokenizer, engine="fast", jobs=jobs)
            if isinstance(measured, str):
                table.add_row(measured)
                break
            alone = alone or measured
            assert measured["content_fingerprint"] == alone["content_fingerprint"]
            parts = measured["profile"]
            table.add_row(
                f"-j {jobs}",
                f"{measured['seconds']:.1f} s",
                f"{alone['seconds'] / measured['seconds']:.1f}",
                *(f"{parts[part]:.1f} s" for part in _PARTS),
                f"{measured['peak_bytes'] / 2**20:.0f} MiB",
            )
        return table


def _powers_of_two(most: int) -> list[int]:
    return sorted({*(1 << power for power in range(most.bit_length())), most})
