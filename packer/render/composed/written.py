"""What a recording consists of: fixed texts, places for texts of messages, and conditions."""

from typing import Any, NamedTuple

from packer.render import symbolic
from packer.render.composed.unknowns import Condition
from packer.render.symbolic import Slot

AT = " at 0x"
"""Part of what Python writes for an object that has no text of its own."""

_CONSTANT = frozenset({"role", "type"})
"""Fields whose texts templates compare with words, and which have few values: these are known."""

ARGUMENTS = "arguments"
"""The field whose values are unknown, too, if they are no texts."""

JsonSettings = tuple[bool, int | str | None, tuple[str, str] | None, bool]


class Leaf(NamedTuple):
    """A text of a message, or another value of it as a text."""

    base: int
    shift: int
    """Where the message is: so many behind the base (:mod:`packer.render.composed.unknowns`)."""

    path: tuple[str | int, ...]
    """Keys and indices that lead to it."""

    settings: JsonSettings | tuple[()] | None = None
    """Arguments of `tojson`; None for a text as it is, `AS_TEXT` for another value as Python writes it."""

    member: tuple[int, int] | None = None
    """The number of a member of the object there, and 0 for its key or 1 for its value."""

    @property
    def place(self) -> tuple[str | int, ...]:
        return *self.path, *(self.member or ())


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
