"""What a micro-batch looks like: its columns, and the sequences that attention keeps apart in it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from packer.batches import Int32
from packer.layout import offsets_of
from packer.load.batching import Batching, Packed, Padded, padded_of

_VARLEN = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFormat:
    """Which columns a micro-batch has, and how they are laid out."""

    flatten: bool
    shifted: bool
    weighted: bool
    columns: frozenset[str]

    def wants(self, *names: str) -> bool:
        """Whether it has one of these columns."""
        return not self.columns.isdisjoint(names)

    @property
    def wants_sequences(self) -> bool:
        """Whether it has a column that is made from the lengths of its sequences."""
        return self.wants("document_ids", *_VARLEN)


def batch_format(
    batching: Batching,
    *,
    flatten: bool,
    labels: Literal["unshifted", "shifted"],
    weighted: bool,
    columns: Collection[str] | None,
) -> BatchFormat:
    """The format that a loader's arguments ask for.

    Raises:
        ValueError: a column that micro-batches of this kind do not have, or labels asked shifted and left out.
        TypeError: what is no names.

    """
    if columns is not None and (
        not isinstance(columns, Collection) or not all(isinstance(name, str) for name in columns)
    ):
        raise TypeError(f"columns is {columns!r}; expected names")
    there = list(_columns(batching, flatten=flatten, weighted=weighted))
    wanted = frozenset(there if columns is None else columns)
    if not wanted or not wanted <= frozenset(there):
        found = ", ".join(sorted(wanted - frozenset(there))) or "none"
        raise ValueError(f"columns {found}: expected some of {', '.join(there)}")
    if labels == "shifted" and "labels" not in wanted:
        raise ValueError("labels='shifted' needs the column labels")
    return BatchFormat(flatten=flatten, shifted=labels == "shifted", weighted=weighted, columns=wanted)


def _columns(batching: Batching, *, flatten: bool, weighted: bool) -> Iterator[str]:
    yield from ("input_ids", "labels", "position_ids")
    if isinstance(padded_of(batching), Padded):
        yield "attention_mask"
    elif isinstance(batching, Packed) and not flatten:
        yield "document_ids"
    else:
        yield from _VARLEN
    if weighted:
        yield "loss_weights"


class SequenceBounds(NamedTuple):
    """Of M micro-batches."""

    pieces: dict[str, Int32]
    """By name, one after another: micro-batch m has the next `sizes[m]` values."""

    sizes: list[int]
    numbers: dict[str, list[int]]
    """By name, one a micro-batch."""


NO_BOUNDS = SequenceBounds({}, [], {})


def sequence_bounds(lengths: Int32, num_sequences: list[int], form: BatchFormat) -> SequenceBounds:
    """Cumulative lengths of the sequences of some micro-batches, each from 0, and the longest sequence of each.

    Worked example: lengths [3, 2, 4], of which the first micro-batch has two: [0, 3, 5, 0, 4], of which it has three.

    Args:
        lengths: of the sequences, none 0.  # int32[K]
        num_sequences: how many each of M micro-batches has, at least one.
        form: says which columns are asked for.

    """
    firsts = offsets_of(num_sequences)[:-1]
    bounds = np.zeros(len(lengths) + len(num_sequences), np.int32)
    starts = offsets_of(lengths)
    behind = np.arange(len(lengths)) + np.repeat(np.arange(1, len(num_sequences) + 1), num_sequences)
    bounds[behind] = starts[1:] - np.repeat(starts[firsts], num_sequences)
    longest = np.maximum.reduceat(lengths, firsts).tolist()
    pieces = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds.copy()}
    numbers = {"max_length_q": longest, "max_length_k": longest}
    return SequenceBounds(
        {name: values for name, values in pieces.items() if form.wants(name)},
        [number + 1 for number in num_sequences],
        {name: values for name, values in numbers.items() if form.wants(name)},
    )


def sequence_ids(lengths: Int32, num_sequences: list[int]) -> Int32:
    """Number of the sequence each token belongs to, counted in its micro-batch.  # int32[Σ lengths]

    Worked example: lengths [3, 2, 4], of which the first micro-batch has two: [0, 0, 0, 1, 1, 0, 0, 0, 0].
    """
    of_sequence = np.arange(len(lengths)) - np.repeat(offsets_of(num_sequences)[:-1], num_sequences)
    return np.repeat(of_sequence.astype(np.int32), lengths)
