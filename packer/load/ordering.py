"""Which order rows come in, as a loader is told: a name, or a value that says more.

Every order is a function from an epoch and a place in it to a row. None has a table that is shuffled, none remembers
what it gave, so all are resumed in constant time, on any number of ranks.
"""

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy.typing as npt

from packer.load.arguments import MOST, whole

OrderName: TypeAlias = Literal["random", "sequential", "length_bucketed", "weighted", "curriculum"]
Column: TypeAlias = Literal["length", "num_trained"]
"""Numbers that are stored of every row."""

WINDOW = 8192
"""Documents that ``length_bucketed`` sorts together."""


@dataclass(frozen=True, slots=True)
class LengthBucketed:
    """A random order, sorted by length within windows; see :mod:`packer.load.order`."""

    window: int = WINDOW
    """Documents sorted together: the more, the less padding and the less random."""


@dataclass(frozen=True, slots=True, eq=False)
class Weighted:
    """Rows as often as they weigh: one of twice the weight comes twice as often, one of weight 0 never.

    An epoch has as many rows as the split, and each of them as often as its share of the weights says, rounded up or
    down. With equal weights it is the random order.
    """

    by: Mapping[str, float] | npt.ArrayLike | Column
    """A weight for each row, numbered as in ``step.block_ids``; a column; or for documents a weight for each input, by
    the manifest's name of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Curriculum:
    """Rows in an order of your own."""

    by: Callable[[int], npt.ArrayLike] | npt.ArrayLike | Column
    """From an epoch to the numbers of its rows, which need not be all of them, nor as many in every epoch: a pure
    function. Or the numbers, the same in every epoch; or a column to sort by, least first."""


Ordering: TypeAlias = LengthBucketed | Weighted | Curriculum
OrderKind: TypeAlias = Literal["random", "sequential", "length_bucketed"] | Ordering

_NAMES: dict[type, OrderName] = {LengthBucketed: "length_bucketed", Weighted: "weighted", Curriculum: "curriculum"}


def ordering_of(order: Any) -> Ordering | Literal["random", "sequential"]:
    """What a name stands for, or the value itself.

    Raises:
        ValueError: no such order.

    """
    if isinstance(order, LengthBucketed):
        whole("window", order.window, least=1, most=MOST)
    if isinstance(order, str) and order == "length_bucketed":
        return LengthBucketed()
    if isinstance(order, str) and order in ("random", "sequential"):
        return order  # type: ignore[return-value]
    if not isinstance(order, Weighted | Curriculum | LengthBucketed) or (
        isinstance(getattr(order, "by", None), str) and order.by not in get_args(Column)  # type: ignore[union-attr]
    ):
        raise ValueError(
            f"order is {reprlib.repr(order)}; expected random, sequential, length_bucketed, or a value like "
            "Weighted(weights) or Curriculum('length')"
        )
    return order


def order_name(order: Ordering | str) -> OrderName:
    """The name of its kind."""
    return order if isinstance(order, str) else _NAMES[type(order)]  # type: ignore[return-value]
