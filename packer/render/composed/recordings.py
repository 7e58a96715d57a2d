"""The recordings of one template: what it writes for messages of each shape, before them, and behind them.

:mod:`packer.render.composed.message_recorder` makes a recording. It is found again by the shape of the message and by
what namespaces hold, and serves if numbers, neighbors and texts give the same answers as when it was made.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from packer.render.composed.message_content import Numbers, reads_back, shape, shows_all, value_of
from packer.render.composed.message_recorder import ContextOf, MessageRecorder, OpeningRecorder
from packer.render.composed.unknowns import ITEM, SIZE, ZERO, ArgumentsError
from packer.render.composed.written import Placed, Written
from packer.render.opening import FirstHalf
from packer.render.symbolic import OpaqueError
from packer.render.template_parts import Halves, TemplateParts
from packer.watchdog import TemplateOverrunError, watched

_LONGEST_WORD = 64
"""Texts in namespaces and variables of up to this many characters are part of what a recording is found by."""

_MAX_RECORDINGS = 4096
_MAX_SHAPES = 2**16
_MAX_OUTER = 256
"""Maximum number of different values of the variables that iterations may read."""

_FEW_RECORDINGS = 512
"""With more than these, and more than conversations, recordings hardly serve again: each message has a number, say."""

_MAX_FAILURES = 32
"""Number of failures after which no conversation is tried any more, if they are half of all."""


@dataclass(slots=True, eq=False)
class State:
    """What namespaces hold before an iteration; equal states are one object."""

    key: int
    """Number of what they hold, except for the values of integers."""

    layout: tuple[dict[str, Any], ...]
    """Attributes of each namespace; in place of an integer, its index in the numbers of an iteration."""

    numbers: tuple[int, ...]
    """Values of the integers; they follow the index of the message and the number of messages."""


class Recording(NamedTuple):
    """What a template writes, and under which conditions."""

    written: Written
    is_complete: bool
    """Whether it writes all content of the message, as the message has it."""

    reads_back: bool
    """Whether calls that it writes can be read back, too: it writes their arguments as a whole, as JSON."""

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


class RecordedOpening(NamedTuple):
    """A recording of the second half of what comes before the loop."""

    recording: Recording
    variables: Mapping[str, tuple[Any, ...]]
    """Those that it sets, as far as later parts of the template may read them, in comparable form."""

    state: State
    """What namespaces held when it was made."""

    numbers: Sequence[tuple[int, int]]
    """Base and shift of each integer of the state."""

    start: int
    """Index of the first message that the loop runs over."""


class Iteration(NamedTuple):
    """Where a template runs in a conversation."""

    outer: int
    """Number of what it may read of variables, see :meth:`Recordings.outer_of`."""

    state: State
    numbers: Sequence[int]
    """The index of the message, the number of messages, and the integers of the state."""

    messages: Sequence[Any]
    variables: Mapping[str, Any]


class Recordings:
    """The recordings of one template.

    Args:
        plain: the template, rewritten to run up to its loop.
        recorded: the template, rewritten for a :class:`MessageRecorder`.
        context_of: creates the Jinja context of a template and its variables.
    """

    def __init__(self, plain: TemplateParts, recorded: TemplateParts, context_of: ContextOf) -> None:
        self.plain = plain
        self.context_of = context_of
        self._recorded = recorded
        self._shapes = Numbers(_MAX_SHAPES)
        self._shape_of: dict[tuple[int, bool], tuple[Any, int]] = {}
        self._keys = Numbers(_MAX_SHAPES)
        self._states: dict[Any, State] = {}
        self._outer = Numbers(_MAX_OUTER)
        self._openings: dict[tuple[int, int], list[RecordedOpening]] = {}
        self._num_openings = 0
        self._kept: dict[Any, list[Recording]] = {}
        self._num_kept = self._num_recorded = 0
        self._recorders: dict[tuple[int, int], MessageRecorder] = {}
        self._walks = False
        """Whether the template walks through the arguments of calls: then they belong to shapes of messages."""

        self.take_too_long = False
        """Whether a recording took more time or memory than a rendering may, which may take less."""

        self.num_tried = 0
        """Number of conversations that were to be composed."""

        self.num_failed = 0
        """Number of those that could not."""

    @property
    def are_worth_trying(self) -> bool:
        fails_often = self.num_failed >= _MAX_FAILURES and 2 * self.num_failed >= self.num_tried
        serve_once = self._num_recorded >= max(_FEW_RECORDINGS, self.num_tried)
        return not (fails_often or serve_once or self.take_too_long)

    def begin(self) -> None:
        """Begin another conversation: messages of the last one need not be kept."""
        self.num_tried += 1
        self._shape_of.clear()

    def shape_of(self, message: Any, *, walks: bool = False) -> int:
        """Return the number of a message's shape: everything except its texts and the arguments of its calls.

        `walks`: of the arguments, the number and the kinds belong to the shape.

        Raises:
            OpaqueError: the message holds something that is not JSON, or there are too many shapes.
        """
        found = self._shape_of.get((id(message), walks))
        if found is not None and found[0] is message:
            return found[1]
        number = self._shapes.of(shape(message, None, walks=walks))
        self._shape_of[id(message), walks] = message, number
        return number

    def state_of(self, held: Sequence[Mapping[str, Any]]) -> State:
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
            if len(self._states) >= _MAX_SHAPES:
                raise OpaqueError("too many states")
            found = self._states[key, *numbers] = State(key, tuple(layout), tuple(numbers))
        return found

    def state_with(self, state: State, forms: Sequence[tuple[int, int]], numbers: Sequence[int]) -> State:
        """Return a state with other integers: those of these bases and shifts."""
        integers = tuple([shift if base == ZERO else numbers[base] + shift for base, shift in forms])
        found = self._states.get((state.key, *integers))
        if found is None:
            found = self._states[state.key, *integers] = State(state.key, state.layout, integers)
        return found

    def state_behind(self, state: State, recording: Recording, numbers: Sequence[int]) -> State:
        """Return the state after an iteration."""
        if not recording.written.namespaces:
            return state
        held = [
            {name: numbers[value] if type(value) is int else value for name, value in attributes.items()}
            for attributes in state.layout
        ]
        return self.state_of(changed(held, recording, numbers))

    def outer_of(
        self,
        names: Sequence[str],
        found: Mapping[str, tuple[Any, ...]],
        variables: Mapping[str, Any],
        start: int | None = None,
    ) -> int:
        """Return the number of what the template may read of variables, except for messages and namespaces.

        Args:
            names: names that occur in the part of the template.
            found: variables that the template set before, in comparable form.
            variables: those that it was given.
            start: index of the first message that the loop runs over; None for a part before the loop.

        Raises:
            OpaqueError: it may read something else than words, numbers and macros.
        """
        read: list[Any] = [start]
        for name in names:
            known = found.get(name)
            if known is None and name in variables:
                value = variables[name]
                known = type(value), repr(value) if type(value) is float else value  # 0.0 is equal to -0.0
            if known is None:
                continue
            if known[0] in (list, tuple, dict) or (known[0] is str and len(known[1]) > _LONGEST_WORD):
                raise OpaqueError(f"the variable {name}")
            read.append((name, known))
        return self._outer.of(tuple(read))

    def opening(self, half: FirstHalf, messages: Sequence[Any], variables: Mapping[str, Any]) -> RecordedOpening:
        """Return what the template does between the first half of its opening and its loop.

        Raises:
            OpaqueError: that cannot be recorded.
        """
        halves, recorded = self.plain.halves, self._recorded.halves
        assert halves is not None
        assert recorded is not None
        numbers = (len(messages), len(messages))
        if half.number is None:
            half.number = self.outer_of(halves.names, half.comparable, variables)
        key = half.number, self.shape_of(messages[-1])
        found = self._openings.get(key)
        if found is None:
            found = self._openings[key] = []
        for opening in found:
            if opening.recording.holds(numbers, messages, self.shape_of):
                break
        else:
            opening = self._record_opening(recorded, messages, {**variables, **half.found})
            if self._num_openings >= _MAX_RECORDINGS:
                self._openings, self._num_openings = {key: (found := [])}, 0
            found.append(opening)
            self._num_openings += 1
        if opening.recording.written.parts is None:
            raise OpaqueError("not composed")
        return opening

    def _record_opening(
        self, recorded: Halves, messages: Sequence[Any], variables: Mapping[str, Any]
    ) -> RecordedOpening:
        recorder = OpeningRecorder(self.shape_of, self.plain.attributes)
        names = self.plain.names
        try:
            written = watched(lambda: recorder.record(recorded.second, self.context_of, messages, variables, names))
        except TemplateOverrunError:
            raise
        except Exception:  # noqa: BLE001 - a template may raise anything; rendering it tells
            return RecordedOpening(Recording.of(recorder.failed()), {}, self.state_of(()), (), 0)
        found = {name: recorder.found[name] for name in names if name in recorder.found}
        recording = Recording.of(written)
        held = changed([{} for _ in range(recorder.num_namespaces)], recording, (len(messages), len(messages)))
        values = [value for _, _, value in written.namespaces if type(value) in (tuple, int)]
        integers = [value if isinstance(value, tuple) else (ZERO, value) for value in values]
        return RecordedOpening(recording, found, self.state_of(held), integers, recorder.start)

    def recording(self, at: Iteration, ending: tuple[Any, ...] | None = None) -> Recording:
        """Return what the template writes in an iteration, or as its ending.

        Raises:
            OpaqueError: that cannot be recorded.
        """
        numbers, messages, walks = at.numbers, at.messages, self._walks
        message = messages[numbers[ITEM]] if ending is None else None
        what: Any = self.shape_of(message, walks=walks) if ending is None else (*map(type, ending), *ending)
        key = at.outer, at.state.key, what
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = []
        for recording in found:
            if recording.holds(numbers, messages, self.shape_of):
                break
        else:
            written = self._record(at, ending, walks=walks)
            if written.parts is None and walks != self._walks:
                return self.recording(at, ending)  # with the arguments
            recording = Recording.of(written, message)
            if self._num_kept >= _MAX_RECORDINGS:
                self._kept, self._num_kept = {key: (found := [])}, 0
            found.append(recording)
            self._num_kept += 1
        if recording.written.parts is None:
            raise OpaqueError("not composed")
        return recording

    def _record(self, at: Iteration, ending: tuple[Any, ...] | None, *, walks: bool) -> Written:
        self._num_recorded += 1
        of = at.outer, len(at.state.layout)  # some conversations may have more namespaces
        recorder = self._recorders.pop(of, None)  # one that fails is not used again
        if recorder is None:
            recorder = MessageRecorder(self.shape_of, self.plain.attributes)
            run = functools.partial(recorder.run, self._recorded.whole, self.context_of)
            watched(lambda: run(at.messages, at.variables))
        record = functools.partial(recorder.record, at.messages, at.numbers, at.state.layout, ending, walks=walks)
        try:
            written = watched(record)
        except TemplateOverrunError:
            raise
        except Exception as error:  # noqa: BLE001 - a template may raise anything; rendering it tells
            self._walks = self._walks or isinstance(error, ArgumentsError)
            return recorder.failed()
        self._recorders[of] = recorder
        return written


def changed(held: list[dict[str, Any]], recording: Recording, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Change attributes of namespaces as a recording does; return them."""
    for space, name, value in recording.written.namespaces:
        if type(value) is tuple:
            base, shift = value
            held[space][name] = shift if base == ZERO else numbers[base] + shift
        else:
            held[space][name] = value
    return held
