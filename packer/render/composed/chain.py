"""The messages of a conversation, composed one by one, and kept for the next rendering as far as they still hold."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, NamedTuple

from packer.render.composed.recording import Recording
from packer.render.composed.states import State


class Step(NamedTuple):
    """A message of a conversation, composed."""

    recording: Recording
    text: str
    behind: State | None
    """What namespaces hold afterwards, if the message changes that."""

    least_size: int | None
    """Least number of messages from which on it is the same, however many follow; None if it depends on the end."""

    reads_back: bool
    """Whether its calls can be read back, and nothing in its text may become an escape by what follows."""


@dataclass(slots=True, eq=False)
class Chain:
    """Steps that do not depend on where the conversation ends, from the first message that the loop runs over on.

    Many templates look for the last question first, and then compare its index with that of each message. With every
    question that index is another. The steps that get another answer are found by bisection, and all others are kept.
    """

    outer: int
    start: int
    state: State
    """What namespaces hold before the first step."""

    messages: list[Any]
    """The messages up to the last that a step is about, or reads: all that the steps depend on."""

    steps: list[Step] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Number of messages that each step and those before it need to be the same: never less than the one before."""

    flips: list[tuple[int, int, int]] = field(default_factory=list)
    """Where steps get another answer: number of an integer of the state, its least value that does, and the step."""

    unsure: list[int] = field(default_factory=list)
    """Steps of which that is not known."""

    num_movable: int | None = None
    """Number of steps in front of the first that changes what namespaces hold; None if there is no such."""

    def append(self, step: Step, messages: Sequence[Any]) -> None:
        """Append the step of the next message; `messages` are the conversation."""
        place = len(self.steps)
        number = self.start + place
        read = max(number + 1, step.least_size or 0)
        if read > len(self.messages):
            self.messages += messages[len(self.messages) : read]
        self.steps.append(step)
        self.sizes.append(max(read, self.sizes[-1]) if place else read)
        if step.behind is not None and self.num_movable is None:
            self.num_movable = place
        elif step.recording.flips is None:
            self.unsure.append(place)
        else:
            for integer, value, is_relative in step.recording.flips:
                insort(self.flips, (integer, value + number if is_relative else value, place))

    def num_same_in(self, size: int) -> int:
        """Return how many of the steps are the same in a conversation of so many of these messages."""
        return bisect_right(self.sizes, size)

    def num_shared(self, messages: Sequence[Any]) -> int:
        """Return how many messages this chain and a conversation begin with in common."""
        same = [*map(is_, self.messages, messages)]
        return same.index(False) if False in same else len(same)

    def changed(self, state: State) -> Collection[int]:
        """Return the steps that get another answer if namespaces hold other integers."""
        if state is self.state:
            return ()
        places = set(self.unsure)
        for integer, (before, now) in enumerate(zip(self.state.numbers, state.numbers, strict=True)):
            low, high = (before, now) if before < now else (now, before)
            first, end = bisect_left(self.flips, (integer, low + 1)), bisect_left(self.flips, (integer, high + 1))
            places.update([place for _, _, place in self.flips[first:end]])
        return places

    def head(self, number: int, state: State) -> "Chain":
        """Return the first steps, for a state in which they are the same."""
        return Chain(
            self.outer,
            self.start,
            state,
            self.messages[: self.sizes[number - 1] if number else self.start],
            self.steps[:number],
            self.sizes[:number],
            [each for each in self.flips if each[2] < number],
            [place for place in self.unsure if place < number],
            None if self.num_movable is None or self.num_movable >= number else self.num_movable,
        )
