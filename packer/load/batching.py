"""How a step's rows become micro-batches, and which rank gets which. Arithmetic on row numbers and lengths.

A step is first cut globally, by the order and its size alone. Only then is it divided among the ranks. By rows, each
rank takes a contiguous share and cuts it into micro-batches. By tokens, the rows of the step are spread over as many
micro-batches as the budget requires, rounded up to a multiple of the ranks, so that all ranks have the same number and
none waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import ClassVar, TypeAlias

import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.ordered_rows import OrderedRows
from packer.load.step_plan import PADDING_ROW
from packer.recipe.read_rules import BatchingName, Read, Side, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The cache's blocks, as they were packed. Sizes count blocks."""

    name: ClassVar[BatchingName] = "packed"
    padded: ClassVar[None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Padded:
    """Documents as rows, padded to one length. Sizes count documents."""

    name: ClassVar[BatchingName] = "padded"
    length: Tokens | None = None
    """Tokens to which every micro-batch is padded; None pads to its longest document."""

    multiple_of: Tokens = 1
    """The longest length is rounded up to a multiple of this: 8 or 128 suit matrix units."""

    side: Side = "right"

    @property
    def padded(self) -> "Padded":
        """How documents are padded; None for a batching that does not pad."""
        return self

    def rounded(self, longest: int) -> int:
        """Return the padded row length of a micro-batch whose longest document has `longest` tokens."""
        return self.length or -(-longest // self.multiple_of) * self.multiple_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingFree:
    """Documents concatenated in one row, kept apart by ``cu_seq_lens``. Sizes count documents."""

    name: ClassVar[BatchingName] = "padding_free"
    padded: ClassVar[None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBudget:
    """Micro-batches of as many documents as fit into `micro_batch_size` tokens. Sizes count tokens.

    A step takes documents until `global_batch_size` tokens are full; the number of micro-batches varies.
    """

    name: ClassVar[BatchingName] = "token_budget"
    padded: Padded | None = None
    """None concatenates documents as :class:`PaddingFree` does, and the budget counts their tokens. Otherwise documents
    are padded, and the budget counts rows times padded length."""

    max_pixels: int | None = None
    """Most pixels that the vision tower reads for the images of a micro-batch; None sets no limit."""


Batching: TypeAlias = Packed | Padded | PaddingFree | TokenBudget

BATCHINGS: dict[BatchingName, Batching] = {
    "packed": Packed(),
    "padded": Padded(),
    "padding_free": PaddingFree(),
    "token_budget": TokenBudget(),
}


def batching_from_name(name: BatchingName, padded: Padded | None) -> Batching:
    """Return the batching with this name and padding."""
    if name == "token_budget":
        return TokenBudget(padded=padded)
    return padded if name == "padded" and padded is not None else BATCHINGS[name]


def batching_from_recipe(read: Read) -> Batching:
    """Return the batching that a recipe asks for."""
    padded = Padded(length=read.length, multiple_of=read.multiple_of or 1, side=read.side or "right")
    return batching_from_name(read.batching, padded if read.is_padded else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFormat:
    """The form of a micro-batch, whatever its batching."""

    flatten: bool
    shifted: bool
    weighted: bool


def costs_of(batching: TokenBudget, lengths: Int64, pixels: Int64, *, budget: int) -> Int64:
    """Return what rows take of a token budget: the larger of their shares of tokens and of pixels.  # int64[n]

    Rows whose costs fit into the budget keep both limits. Worked example: with a budget of 100 tokens and 1,000 pixels,
    rows of 30 tokens and 50 pixels, and of 20 tokens and 600 pixels, cost 30 and 60.
    """
    if batching.max_pixels is None:
        return lengths
    return np.maximum(lengths, -(-pixels * budget // batching.max_pixels))


def check_rows_fit(batching: Batching, micro_batch_size: int, rows: OrderedRows) -> None:
    """Refuse rows that fit into no micro-batch.

    Raises:
        UsageError: gives their number and the length of the longest.
    """
    padded, limits = batching.padded, []
    if padded is not None and padded.length is not None:
        limits.append((padded.length, rows.lengths_of_sides.max(1), f"micro-batches are padded to {padded.length}"))
    if isinstance(batching, TokenBudget):
        limits.append((micro_batch_size, rows.lengths, "a micro-batch holds no more"))
    for longest, of_rows, reason in limits:
        lengths = np.delete(of_rows, rows.untrained)
        if too_long := int(np.count_nonzero(lengths > longest)):
            what = "pairs" if rows.num_sides == 2 else "documents"
            raise UsageError(
                f"{too_long} of {len(lengths)} {what} have more than {longest} tokens, the longest {lengths.max()}: "
                f"{reason}",
                hint="make the micro-batch larger, or set cutoff_len, which trains only their beginning",
            )
    if isinstance(batching, TokenBudget) and batching.max_pixels is not None:
        largest = int(rows.pixels.max(initial=0))
        if largest > batching.max_pixels:
            raise UsageError(
                f"max_pixels is {batching.max_pixels:,}, and a row has images of {largest:,} pixels",
                hint="make max_pixels larger, or the images smaller, in preprocessor_config.json",
            )
    if isinstance(batching, TokenBudget) and padded is not None:
        widest = rows.num_sides * padded.rounded(int(np.delete(rows.lengths_of_sides, rows.untrained, 0).max()))
        if widest > micro_batch_size:
            raise UsageError(
                f"a row padded to {widest} tokens does not fit into a micro-batch of {micro_batch_size}",
                hint="make the micro-batch larger, or multiple_of smaller",
            )


def split_by_tokens(lengths: Int64, *, budget: int, multiple: int, padded: Padded | None) -> list[Int64]:
    """Divide a step into micro-batches of at most `budget` tokens, a multiple of the ranks, fullest first.

    Micro-batch ``i * multiple + r`` is the i-th of rank r, so that ranks work on micro-batches of similar size at the
    same time. If there are fewer rows than micro-batches, some get one padding row.

    Args:
        lengths: tokens of the step's rows, none above the budget.  # int64[n]
        budget: tokens of a micro-batch.
        multiple: number of ranks.
        padded: None counts tokens; otherwise rows times padded length.

    Returns:
        for each micro-batch, positions in the step, ascending; PADDING_ROW for a padding row
    """
    if padded is None:
        groups = _balanced_groups(lengths, budget, multiple)
    else:
        groups = _similar_length_groups(lengths, budget, multiple, padded)
    groups += [[] for _ in range(-len(groups) % multiple)]
    return [np.array(sorted(group) or [PADDING_ROW], np.int64) for group in groups]


_MOST_PARTS = 16
"""Parts of a budget up to which lengths are rounded to bound the number of micro-batches."""


def _balanced_groups(lengths: Int64, budget: int, multiple: int) -> list[list[int]]:
    """Put the longest first into the emptiest micro-batch (Graham's LPT rule); retry with more until all rows fit.

    R. L. Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17 (1969).
    """
    sizes = lengths.tolist()
    descending = np.argsort(-lengths, kind="stable").tolist()
    # Without these bounds, rows of just over half a budget would need about as many attempts as there are rows. Counted
    # in (k + 1)-ths of the budget, rounded down and one less if that is exact, the rows of a micro-batch are less than
    # k + 1 in total, so at most k: of k = 1, at most one row longer than half the budget.
    k = np.arange(1, _MOST_PARTS)
    parts = (((k[:, None] + 1) * lengths - 1) // budget).sum(1)
    number = max(-(-sum(sizes) // budget), 1, *(-(-parts // k)).tolist())
    number += -number % multiple
    while (groups := _assign_to_emptiest(sizes, descending, budget, number)) is None:
        number += multiple
    return groups


def _assign_to_emptiest(
    sizes: Sequence[int], descending: Sequence[int], budget: int, number: int
) -> list[list[int]] | None:
    groups: list[list[int]] = [[] for _ in range(number)]
    loads = [(0, i) for i in range(number)]
    heapify(loads)
    for place in descending:
        load, i = loads[0]
        if load + sizes[place] > budget:
            return None  # it does not fit even into the emptiest
        groups[i].append(place)
        heapreplace(loads, (load + sizes[place], i))
    order = sorted(loads, key=lambda pair: (-pair[0], pair[1]))
    return [groups[i] for _, i in order]


def _similar_length_groups(lengths: Int64, budget: int, multiple: int, padded: Padded) -> list[list[int]]:
    """Group rows of similar length, longest first, as many as fit; halve the largest groups to make ranks even."""
    groups: list[list[int]] = []
    width = 0
    for place in np.argsort(-lengths, kind="stable").tolist():
        if not groups or (len(groups[-1]) + 1) * width > budget:
            groups.append([])
            width = padded.rounded(int(lengths[place]))
        groups[-1].append(place)
    while len(groups) % multiple:
        largest = max(range(len(groups)), key=lambda i: len(groups[i]))
        group = groups[largest]
        if len(group) < 2:
            break
        groups[largest : largest + 1] = [group[: len(group) // 2], group[len(group) // 2 :]]
    return groups
