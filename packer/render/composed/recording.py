"""A recording: what a template writes for a message, before the loop, or as its ending, and when it serves again."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from packer.render.composed.message_content import reads_back, shows_all, value_of
from packer.render.composed.unknowns import ITEM, SIZE, ZERO
from packer.render.composed.written import Placed, Written


class Recording(NamedTuple):
    """What a template writes, and under which conditions."""

    written: Written
    is_complete: bool
    """Whether it writes all content of the message, as the message has it."""

    reads_back: bool
    """Whether calls that it writes can be read back, too: it writes their arguments as a whole."""

    flips: tuple[tuple[int, int, bool], ...] | None
    """Where the template gets another answer: number of an integer that a namespace holds, its least value that does,
    and whether that value counts from the index of the message. None if that is not known."""

    asks_size: bool
    """Whether it depends on the number of messages, or on other messages."""

    @classmethod
    def of(cls, written: Written, message: Mapping[str, Any] | None = None) -> "Recording":
        placed = [part for part in written.parts or () if isinstance(part, Placed)]
        found = [each.flips() for each in written.conditions]
        is_local = all(part.leaf.base in {ITEM, ZERO} for part in placed) and None not in found
        is_complete = message is not None and shows_all(message, written)
        return cls(
            written,
            is_complete=is_complete,
            reads_back=is_complete and reads_back(written.parts or ()),
            flips=tuple([flip for each in found for flip in each or ()]) if is_local else None,
            asks_size=bool(written.neighbors)
            or any(SIZE in {each.base, getattr(each, "other", ZERO)} for each in written.conditions)
            or any(type(value) is tuple and value[0] == SIZE for _, _, value in written.namespaces),
        )

    def holds(self, numbers: Sequence[int], messages: Sequence[Any], shape_of: Callable[[Any], int]) -> bool:
        """Whether the template would get the same answers about numbers, other messages and texts."""
        written = self.written
        for condition in written.conditions:
            if not condition.holds(numbers):
                return False
        for base, shift, expected in written.neighbors:
            place = shift if base == ZERO else numbers[base] + shift
            if place < 0 or (shape_of(messages[place]) if place < len(messages) else None) != expected:
                return False
        for leaf, asked in written.texts:  # noqa: SIM110 - most recordings ask for no text, and a generator takes longer
            if not asked.met(asked.slot.value(value_of(leaf, numbers, messages))):
                return False
        return True

    def least_size(self, numbers: Sequence[int]) -> int | None:
        """Return the least number of messages from which on it gets the same answers, however many follow.

        None if it depends on where the conversation ends.
        """
        if not self.asks_size:
            return 1
        if any(type(value) is tuple and value[0] == SIZE for _, _, value in self.written.namespaces):
            return None
        least = 1
        for condition in self.written.conditions:
            size = condition.least_size(numbers)
            if size is None:
                return None
            least = max(least, size)
        for base, shift, expected in self.written.neighbors:
            if base == SIZE or expected is None:
                return None
            least = max(least, (shift if base == ZERO else numbers[base] + shift) + 1)
        return least

    def text(self, numbers: Sequence[int], messages: Sequence[Any]) -> str:
        """Return what the template writes."""
        parts = self.written.parts
        assert parts is not None
        return "".join(
            [
                part if isinstance(part, str) else part.slot.value(value_of(part.leaf, numbers, messages))
                for part in parts
            ]
        )
