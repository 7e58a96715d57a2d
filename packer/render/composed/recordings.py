"""The recordings of one template: what it writes for messages of each shape, before them, and behind them.

:mod:`packer.render.composed.message_recorder` makes a recording. It is found again by the shape of the message and by
what namespaces hold, and serves if numbers, neighbors and texts give the same answers as when it was made.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jinja2

from packer.render.composed.message_content import Numbers, shape
from packer.render.composed.message_recorder import MessageRecorder, OpeningRecorder
from packer.render.composed.recording import Recording
from packer.render.composed.states import State, States, changed
from packer.render.composed.unknowns import ITEM, ZERO, ArgumentsError
from packer.render.composed.written import Written
from packer.render.opening import ContextOf, FirstHalf
from packer.render.symbolic import OpaqueError
from packer.render.template_parts import TemplateParts
from packer.watchdog import TemplateOverrunError, watched

_LONGEST_TEXT = 2**14
"""Texts in variables of up to this many characters are part of what a recording is found by: the same system message
often stands in many rows."""

_MAX_RECORDINGS = 4096
_MAX_SHAPES = 2**16
_MAX_OUTER = 256
"""Maximum number of different values of the variables that iterations may read."""

_FEW_RECORDINGS = 512
"""With more than these, and more than conversations, recordings hardly serve again: each message has a number, say."""

_MAX_FAILURES = 32
"""Number of failures after which no conversation is tried any more, if they are half of all."""


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
        plain: the parts of the template, of which those before the loop are run as they are.
        recorded: its parts again, for a :class:`MessageRecorder`.
        context_of: creates the Jinja context of a template and its variables.
    """

    def __init__(self, plain: TemplateParts, recorded: TemplateParts, context_of: ContextOf) -> None:
        self.plain = plain
        self.context_of = context_of
        self._recorded = recorded
        self._shapes = Numbers(_MAX_SHAPES)
        self._shape_of: dict[tuple[int, bool], tuple[Any, int]] = {}
        self.states = States()
        self._outer = Numbers(_MAX_OUTER)
        self._openings: dict[tuple[int, int], list[RecordedOpening]] = {}
        self._num_openings = 0
        self._kept: dict[Any, list[Recording]] = {}
        self._num_kept = self._num_recorded = 0
        self._recorders: dict[tuple[int, int], MessageRecorder] = {}
        self._walks = False
        """Whether the template walks through the arguments of calls: then they belong to shapes of messages."""

        self.opening_depends_on_end = False
        """Whether what comes before the loop ever depended on where the conversation ends."""

        self.num_sized = 0
        """Number of openings, the last ones in a row, that could not do without the number of messages."""

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
            if known[0] in (list, tuple, dict) or (known[0] is str and len(known[1]) > _LONGEST_TEXT):
                raise OpaqueError(f"the variable {name}")
            read.append((name, known))
        return self._outer.of(tuple(read))

    def opening(self, half: FirstHalf, messages: Sequence[Any], variables: Mapping[str, Any]) -> RecordedOpening:
        """Return what the template does between the first half of its opening and its loop.

        Raises:
            OpaqueError: that cannot be recorded.
        """
        halves, recorded = self.plain.halves, self._recorded.halves
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
            opening = self._record_opening(recorded.second, messages, {**variables, **half.found})
            if self._num_openings >= _MAX_RECORDINGS:
                self._openings, self._num_openings = {key: (found := [])}, 0
            found.append(opening)
            self._num_openings += 1
        if opening.recording.written.parts is None:
            raise OpaqueError("not composed")
        return opening

    def _record_opening(
        self, second: jinja2.Template, messages: Sequence[Any], variables: Mapping[str, Any]
    ) -> RecordedOpening:
        recorder = OpeningRecorder(self.shape_of, self.plain.attributes)
        names = self.plain.names
        try:
            written = watched(lambda: recorder.record(second, self.context_of, messages, variables, names))
        except TemplateOverrunError:
            raise
        except Exception:  # noqa: BLE001 - a template may raise anything; rendering it tells
            return RecordedOpening(Recording.of(recorder.failed()), {}, self.states.of(()), (), 0)
        found = {name: recorder.found[name] for name in names if name in recorder.found}
        recording = Recording.of(written)
        held = changed([{} for _ in range(recorder.num_namespaces)], recording, (len(messages), len(messages)))
        values = [value for _, _, value in written.namespaces if type(value) in (tuple, int)]
        integers = [value if isinstance(value, tuple) else (ZERO, value) for value in values]
        return RecordedOpening(recording, found, self.states.of(held), integers, recorder.start)

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
