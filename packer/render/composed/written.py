"""What a recording consists of: fixed texts, places for texts of messages, and conditions."""

from typing import Any, NamedTuple

from packer.render import symbolic
from packer.render.composed.unknowns import Condition
from packer.render.symbolic import Slot

AT = " at 0x"
"""Part of what Python writes for an object that has no text of its own."""

_CONSTANT = frozenset({"role", "type"})
"""Fields whose texts templates compare with words, and which have few values: these are known."""

JsonSettings = tuple[bool, int | str | None, tuple[str, str] | None, bool]


class Leaf(NamedTuple):
    """A text of a message, or a value of it as JSON."""

    base: int
    shift: int
    """Where the message is: so many behind the base (:mod:`packer.render.composed.unknowns`)."""

    path: tuple[str | int, ...]
    """Keys and indices that lead to it."""

    settings: JsonSettings | None = None
    """Arguments of `tojson`; None for a text as it is."""


class Neighbor(NamedTuple):
    """That there is a message of this shape; None: that there is none."""

    base: int
    shift: int
    shape: int | None


class TextCondition(NamedTuple):
    """That a text meets a condition."""

    leaf: Leaf
    condition: symbolic.Condition


class Placed(NamedTuple):
    """A text in the output, and how it is stripped."""

    leaf: Leaf
    slot: Slot


class Written(NamedTuple):
    """What a template writes for a message, or as its ending, under these conditions."""

    conditions: tuple[Condition, ...]
    neighbors: tuple[Neighbor, ...]
    texts: tuple[TextCondition, ...]
    parts: tuple[str | Placed, ...] | None
    """None: the template raises, or looks into what it is not given."""

    namespaces: tuple[tuple[int, str, Any], ...]
    """Attributes that it sets: the number of the namespace, the name, and the value; base and shift of a number."""


def is_unknown_text(value: Any, name: str | int | None) -> bool:
    """Whether templates do not know this value of a message, a text with this name."""
    return type(value) is str and name not in _CONSTANT and bool(value) and not value.isspace()
