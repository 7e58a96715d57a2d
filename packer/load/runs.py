"""Runs of tokens that attend to each other: what variable-length attention wants to know of them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.batches import Int32
from packer.layout import offsets_of
from packer.load.form import Form

OF_RUNS = frozenset({"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "document_ids"})


class Bounds(NamedTuple):
    """Of M micro-batches."""

    pieces: dict[str, npt.NDArray[np.int32]]
    """By name, one after another: micro-batch m has the next `sizes[m]` values."""

    sizes: list[int]
    numbers: dict[str, list[int]]
    """By name, one a micro-batch."""


NO_BOUNDS = Bounds({}, [], {})


def bounds_of_runs(runs: Int32, num_runs: list[int], form: Form) -> Bounds:
    """Cumulative lengths of the runs of some micro-batches, each from 0, and the longest run of each.

    Worked example: runs [3, 2, 4], of which the first micro-batch has two: [0, 3, 5, 0, 4], of which it has three.

    Args:
        runs: their lengths, none 0.  # int32[K]
        num_runs: how many each of M micro-batches has, at least one.
        form: says which are asked for.

    """
    firsts = offsets_of(num_runs)[:-1]
    bounds = np.zeros(len(runs) + len(num_runs), np.int32)
    starts = offsets_of(runs)
    behind = np.arange(len(runs)) + np.repeat(np.arange(1, len(num_runs) + 1), num_runs)
    bounds[behind] = starts[1:] - np.repeat(starts[firsts], num_runs)
    longest = np.maximum.reduceat(runs, firsts).tolist()
    pieces = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds.copy()}
    numbers = {"max_length_q": longest, "max_length_k": longest}
    return Bounds(
        {name: values for name, values in pieces.items() if form.wants(name)},
        [number + 1 for number in num_runs],
        {name: values for name, values in numbers.items() if form.wants(name)},
    )


def run_numbers(runs: Int32, num_runs: list[int]) -> Int32:
    """Number of the run each token belongs to, counted in its micro-batch.  # int32[Σ runs]

    Worked example: runs [3, 2, 4], of which the first micro-batch has two: [0, 0, 0, 1, 1, 0, 0, 0, 0].
    """
    of_run = np.arange(len(runs)) - np.repeat(offsets_of(num_runs)[:-1], num_runs)
    return np.repeat(of_run.astype(np.int32), runs)
