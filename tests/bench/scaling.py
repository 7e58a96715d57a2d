"""How builds scale to more cores than this machine has: computed from what one process was measured to need.

Each part of a build takes some seconds whatever the input, and some for every byte of it; two sizes of one input tell both.
Documents are shared out among the cores in partitions, blocks in shards. The plan of one file, the commit, and what every
process loads, take as long on many cores as on one. Left out is what cores take from each other, of memory and disk.
"""

import math
from collections.abc import Mapping
from typing import Any

from rich.table import Table

_INPUT_BYTES = 10**10
_CORES = (1, 2, 8, 32, 64)
_PARTITION_BYTES = 8 * 2**20
_BLOCK_SHARD_BYTES = 512 * 2**20

Line = tuple[float, float]
"""Seconds whatever the input, and for each of its bytes."""


def cores_table(small: Mapping[str, Any], large: Mapping[str, Any]) -> Table:
    """Seconds of a build of 10 GB in one file.

    Args:
        small: what a build by one process reported with its profile, and `input_bytes`.
        large: the same of a larger input of the same kind.

    """
    table = Table("cores, 10 GB in one file", "time", "times one core's speed", box=None, pad_edge=False)
    lines = {part: _line(part, small, large) for part in ("start", "plan", "documents", "blocks", "commit")}
    block_bytes = large["bytes"] / large["input_bytes"] * _INPUT_BYTES / 2  # documents and blocks are about as large
    num_shards = math.ceil(block_bytes / _BLOCK_SHARD_BYTES)
    alone = _seconds(lines, 1, num_shards)
    for cores in _CORES:
        seconds = _seconds(lines, cores, num_shards)
        table.add_row(f"{cores}, computed", f"{seconds:,.0f} s", f"{alone / seconds:.1f}")
    return table


def _line(part: str, small: Mapping[str, Any], large: Mapping[str, Any]) -> Line:
    before, after = (_part(part, each) for each in (small, large))
    slope = max(0.0, (after - before) / (large["input_bytes"] - small["input_bytes"]))
    return max(0.0, before - slope * small["input_bytes"]), slope


def _part(part: str, measured: Mapping[str, Any]) -> float:
    parts = measured["profile"]
    return float(measured["seconds"] - sum(parts.values()) if part == "start" else parts[part])


def _seconds(lines: Mapping[str, Line], cores: int, num_shards: int) -> float:
    whole = {part: fixed + slope * _INPUT_BYTES for part, (fixed, slope) in lines.items()}
    loading, of_a_byte = lines["documents"]
    last_partition = of_a_byte * _PARTITION_BYTES  # others have ended while one is at it
    alone = whole["start"] + loading + whole["plan"] + whole["commit"]
    documents = of_a_byte * _INPUT_BYTES / cores + (last_partition if cores > 1 else 0.0)
    return alone + documents + whole["blocks"] / num_shards * math.ceil(num_shards / min(cores, num_shards))
