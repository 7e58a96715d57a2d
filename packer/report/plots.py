"""Where the marks of a plot lie: the templates draw them as SVG, which needs no script and scales with the page."""

from dataclasses import dataclass
from itertools import pairwise

from packer.report.facts import Histogram
from packer.report.items import Item

WIDTH, HEIGHT, BAR_WIDTH = 360, 150, 400
_LEFT, _RIGHT, _TOP, _BASE = 4, 4, 16, HEIGHT - 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a histogram, in units of the plot."""

    x: float
    y: float
    width: float
    height: float
    range: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlot:
    """A histogram, drawn."""

    columns: tuple[Column, ...]
    ticks: tuple[tuple[float, str], ...]
    """Labels of the edges, where they stand."""

    highest: tuple[float, float, int]
    """Where the count of the highest column stands, and the count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockBar:
    """A block as a bar of its documents, :data:`BAR_WIDTH` units wide. What is in none of them is padding.

    The patterns are SVG's ``stroke-dasharray``: lengths that are drawn and left out in turn.
    """

    filled: int
    """Units with tokens."""

    documents: str
    """Draws every other document."""

    trained: str


def draw(histogram: Histogram) -> ColumnPlot:
    """Lay out a histogram; a column that is not empty is seen, however low."""
    most, number = max(histogram.counts), len(histogram.counts)
    step = (WIDTH - _LEFT - _RIGHT) / number
    columns = []
    for place, (count, (low, high)) in enumerate(zip(histogram.counts, pairwise(histogram.edges), strict=True)):
        height = max(1.5, (_BASE - _TOP) * count / most) if count else 0.0
        columns.append(
            Column(
                x=round(_LEFT + place * step + 0.5, 2),
                y=round(_BASE - height, 2),
                width=round(step - 1, 2),
                height=round(height, 2),
                range=f"{low} to {high}",
                count=count,
            )
        )
    every = -(-number // 5)
    ticks = tuple((round(_LEFT + place * step, 2), histogram.edges[place]) for place in range(0, number + 1, every))
    top = max(columns, key=lambda column: column.count)
    return ColumnPlot(columns=tuple(columns), ticks=ticks, highest=(top.x + top.width / 2, top.y - 4, top.count))


def block_bar(item: Item, block_len: int) -> BlockBar:
    """Draw a block. A mark takes a unit at least, and those within one unit are joined, so that patterns stay short.

    Worked example: of 400 units for 10 tokens, documents of 3 and 5 tokens are ``120 200``; the trained tokens [2, 3)
    and [5, 8) are ``0 80 40 80 120 400``: nothing, a gap of two tokens, and so on up to beyond the end.
    """
    borders, marks, at = [0], [0, 0], 0
    for document in item.documents:
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
    return BlockBar(filled=borders[-1], documents=_lengths(borders), trained=f"{_lengths(marks)} {BAR_WIDTH}")


def _lengths(edges: list[int]) -> str:
    return " ".join(str(end - start) for start, end in pairwise(edges))
