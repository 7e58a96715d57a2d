"""Where the marks of a plot lie: the templates draw them as SVG, which needs no script and scales with the page."""

from dataclasses import dataclass
from itertools import pairwise

from packer.report.facts import Histogram
from packer.report.items import Item

WIDTH, HEIGHT = 360, 150
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
    """A block as a bar of its documents, 1000 units wide: SVG paths. What no path covers is padding."""

    even: str
    odd: str
    """Documents in two tones, one after the other."""

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
    """Draw a block. Marks closer together than a unit are joined, so that a path stays short."""
    tones, trained, end = ["", ""], "", 0
    for place, document in enumerate(item.documents):
        first, last = (round(1000 * each / block_len) for each in (document.at, document.at + document.length))
        tones[place % 2] += f"M{first} 0h{last - first}v12h{first - last}z"
        at = document.at
        for span in document.spans:
            first, last = max(end, round(1000 * at / block_len)), round(1000 * (at + span.num_tokens) / block_len)
            if span.is_trained and last > first:
                trained += f"M{first} 14h{last - first}v4h{first - last}z"
                end = last
            at += span.num_tokens
    return BlockBar(even=tones[0], odd=tones[1], trained=trained)
