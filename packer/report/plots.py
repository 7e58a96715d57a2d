"""Plots: where their marks lie. The templates draw them as SVG, which needs no script and scales with the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from packer.audit.view import DocumentView

WIDTH, HEIGHT, BAR_WIDTH = 360, 150, 400
_LEFT, _RIGHT, _TOP, _BASE = 4, 4, 16, HEIGHT - 20


class Column(NamedTuple):
    """A column of a histogram, in units of the plot."""

    x: float
    y: float
    width: float
    height: float
    range: str
    num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How many documents, or blocks, lie in each of some ranges."""

    title: str
    caption: str
    unit: str
    """The unit of the edges."""

    of: str
    """What is counted."""

    edges: tuple[str, ...]
    """Where the ranges begin, and where the last one ends: one more than there are counts."""

    counts: tuple[int, ...]

    @property
    def columns(self) -> list[Column]:
        """A column that is not empty is seen, however low."""
        most, step = max(self.counts), self._step
        columns = []
        for place, (count, (low, high)) in enumerate(zip(self.counts, pairwise(self.edges), strict=True)):
            height = max(1.5, (_BASE - _TOP) * count / most) if count else 0.0
            x, y = _LEFT + place * step + 0.5, _BASE - height
            x, y, width, height = (round(size, 2) for size in (x, y, step - 1, height))
            columns.append(Column(x, y, width, height, f"{low} to {high}", count))
        return columns

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Labels of the edges, and where they stand."""
        places = range(0, len(self.edges), -(-len(self.counts) // 5))
        return [(round(_LEFT + place * self._step, 2), self.edges[place]) for place in places]

    @property
    def highest(self) -> Column:
        return max(self.columns, key=lambda column: column.num)

    @property
    def _step(self) -> float:
        return (WIDTH - _LEFT - _RIGHT) / len(self.counts)


class BlockBar(NamedTuple):
    """A block as a bar of its documents, :data:`BAR_WIDTH` units wide. What is in none of them is padding.

    The patterns are SVG's ``stroke-dasharray``: lengths that are drawn and left out in turn.
    """

    filled: int
    """Units with tokens."""

    documents: str
    """Draws every other document."""

    trained: str


def block_bar(documents: Sequence[DocumentView], block_len: int) -> BlockBar:
    """Draw a block. A mark takes a unit at least, and those within one unit are joined, so that patterns stay short.

    Worked example: of 400 units for 10 tokens, documents of 3 and 5 tokens are ``120 200``; the trained tokens [2, 3)
    and [5, 8) are ``0 80 40 80 120 400``: nothing, a gap of two tokens, and so on up to beyond the end.
    """
    borders, marks, at = [0], [0, 0], 0
    for document in documents:
        for run in document.slots:
            first, at = at, at + run.num_tokens
            if run.kind == "trained":
                start = round(BAR_WIDTH * first / block_len)
                end = max(start + 1, round(BAR_WIDTH * at / block_len))
                if start <= marks[-1]:
                    marks[-1] = max(end, marks[-1])
                else:
                    marks += [start, end]
        borders.append(round(BAR_WIDTH * at / block_len))
    patterns = (" ".join(str(end - start) for start, end in pairwise(edges)) for edges in (borders, marks))
    return BlockBar(borders[-1], next(patterns), f"{next(patterns)} {BAR_WIDTH}")
