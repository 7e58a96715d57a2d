"""What the namespaces of a template hold before an iteration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packer.render.composed.message_content import Numbers
from packer.render.composed.recording import Recording
from packer.render.composed.unknowns import SIZE, ZERO
from packer.render.symbolic import OpaqueError

_LONGEST_WORD = 64
"""Texts in namespaces of up to this many characters are part of what a recording is found by."""

_MAX_STATES = 2**16


@dataclass(slots=True, eq=False)
class State:
    """What namespaces hold before an iteration; equal states are one object."""

    key: int
    """Number of what they hold, except for the values of integers."""

    layout: tuple[dict[str, Any], ...]
    """Attributes of each namespace; in place of an integer, its index in the numbers of an iteration."""

    numbers: tuple[int, ...]
    """Values of the integers; they follow the index of the message and the number of messages."""


class States:
    """The states of one template that were seen."""

    def __init__(self) -> None:
        self._keys = Numbers(_MAX_STATES)
        self._states: dict[Any, State] = {}

    def of(self, held: Sequence[Mapping[str, Any]]) -> State:
        """Return the state of namespaces that hold these attributes.

        Raises:
            OpaqueError: one holds something else than numbers, truth values and words.
        """
        layout: list[dict[str, Any]] = []
        numbers: list[int] = []
        for attributes in held:
            layout.append({})
            for name, value in attributes.items():
                if type(value) is int:
                    layout[-1][name] = SIZE + 1 + len(numbers)
                    numbers.append(value)
                elif value is None or type(value) is bool or (type(value) is str and len(value) <= _LONGEST_WORD):
                    layout[-1][name] = value
                else:
                    raise OpaqueError("a namespace holds something else")
        kinds = tuple([tuple([(name, type(value), value) for name, value in each.items()]) for each in layout])
        key = self._keys.of(kinds)
        found = self._states.get((key, *numbers))
        if found is None:
            if len(self._states) >= _MAX_STATES:
                raise OpaqueError("too many states")
            found = self._states[key, *numbers] = State(key, tuple(layout), tuple(numbers))
        return found

    def moved(self, state: State, forms: Sequence[tuple[int, int]], numbers: Sequence[int]) -> State:
        """Return a state with other integers: those of these bases and shifts."""
        integers = tuple([shift if base == ZERO else numbers[base] + shift for base, shift in forms])
        found = self._states.get((state.key, *integers))
        if found is None:
            found = self._states[state.key, *integers] = State(state.key, state.layout, integers)
        return found

    def behind(self, state: State, recording: Recording, numbers: Sequence[int]) -> State:
        """Return the state after an iteration."""
        if not recording.written.namespaces:
            return state
        held = [
            {name: numbers[value] if type(value) is int else value for name, value in attributes.items()}
            for attributes in state.layout
        ]
        return self.of(changed(held, recording, numbers))


def changed(held: list[dict[str, Any]], recording: Recording, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Change attributes of namespaces as a recording does; return them."""
    for space, name, value in recording.written.namespaces:
        if type(value) is tuple:
            base, shift = value
            held[space][name] = shift if base == ZERO else numbers[base] + shift
        else:
            held[space][name] = value
    return held
