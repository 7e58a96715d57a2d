"""Composed rendering: what a template writes for a message is recorded once, and filled in for all others like it.

By definition every prompt and every turn of a conversation is rendered from the first message. But most templates write
the same for each message of a shape, around its texts: only few of their iterations ask where the message stands, what
comes before or behind it, or what a namespace holds. :mod:`packer.render.message_recorder` runs a template for one
message, and records what it writes together with everything that it asked. Whenever a message of the same shape gives
the same answers, the template would do the same again. So a conversation is composed of recordings, message by message.

A template that looks into texts, or does something else that cannot be recorded, is run from the first message.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, NamedTuple

import jinja2

from packer.batches import REASONING_FIELDS
from packer.render.incremental import FirstHalf, opened
from packer.render.message_recorder import AT, Leaf, MessageRecorder, OpeningRecorder, Placed, Written, is_unknown_text
from packer.render.readback import ESCAPE
from packer.render.stoppable import Halves, Stoppable
from packer.render.symbolic import OpaqueError
from packer.render.tojson import ToJson
from packer.render.unknowns import ITEM, SIZE, ZERO
from packer.watchdog import TemplateOverrunError

_LONGEST_WORD = 64
"""Texts in namespaces and variables of up to this many characters are part of what a recording is found by."""

_MAX_KNOWN = 4096
"""Maximum number of recordings that are kept of one template."""

_MAX_OUTER = 256
"""Maximum number of different values of the variables that iterations may read."""

_MAX_FAILURES = 32
"""Number of conversations in a row that cannot be composed after which no more are tried."""

ContextOf = Callable[[jinja2.Template, Mapping[str, Any]], Any]


@dataclass(slots=True, eq=False)
class _State:
    """What namespaces hold before an iteration; equal states are one object."""

    key: int
    """Number of what they hold, except for the values of integers."""

    layout: tuple[dict[str, Any], ...]
    """Attributes of each namespace; in place of an integer, its index in the numbers of an iteration."""

    numbers: tuple[int, ...]
    """Values of the integers; they follow the index of the message and the number of messages."""


class _Known(NamedTuple):
    """A recording."""

    written: Written
    is_complete: bool
    """Whether it writes all content of the message, as the message has it."""

    is_local: bool
    """Whether all texts that it writes are found by the index of the message, or by a constant one."""

    ignores_namespaces: bool
    """Whether it asks for no integer that a namespace holds, and changes no namespace."""

    def answers(self, numbers: Sequence[int], messages: Sequence[Any], shape_of: Callable[[Any], int]) -> bool:
        """Whether the template would get the same answers about numbers and other messages."""
        for condition in self.written.conditions:
            if not condition.holds(numbers):
                return False
        for base, shift, shape in self.written.neighbors:
            place = shift if base == ZERO else numbers[base] + shift
            if place < 0 or (shape_of(messages[place]) if place < len(messages) else None) != shape:
                return False
        return True

    def least_size(self, numbers: Sequence[int]) -> int | None:
        """Return the least number of messages from which on it gets the same answers, however many follow.

        None if it depends on where the conversation ends.
        """
        least = 1
        for condition in self.written.conditions:
            size = condition.least_size(numbers)
            if size is None:
                return None
            least = max(least, size)
        for base, shift, shape in self.written.neighbors:
            if base == SIZE or shape is None:
                return None
            least = max(least, (shift if base == ZERO else numbers[base] + shift) + 1)
        return least

    def suits(self, numbers: Sequence[int], messages: Sequence[Any]) -> bool:
        """Whether the texts meet the conditions."""
        return all(
            condition.met(condition.slot.value(_value(leaf, numbers, messages)))
            for leaf, condition in self.written.texts
        )

    def text(self, numbers: Sequence[int], messages: Sequence[Any]) -> str:
        parts = self.written.parts
        assert parts is not None
        return "".join(
            [part if type(part) is str else part[1].value(_value(part[0], numbers, messages)) for part in parts]
        )


class _Step(NamedTuple):
    """A message of a conversation, composed."""

    known: _Known
    text: str
    before: _State
    state: _State
    least_size: int | None
    """Least number of messages from which on it is the same, however many follow; None if it depends on the end."""


class ComposedText(str):
    """A rendering that knows what it is composed of."""

    __slots__ = ("_opening", "_steps")

    def __new__(cls, opening: "_Opened", steps: Sequence[_Step], ending: str) -> "ComposedText":
        self = super().__new__(cls, "".join([opening.text, *[step.text for step in steps], ending]))
        self._opening, self._steps = opening, steps
        return self

    def shows(self, number: int) -> bool:
        """Whether all content of this message is written as the message has it."""
        place = number - self._opening.start
        return 0 <= place < len(self._steps) and self._steps[place].known.is_complete

    def shows_within(self, message: Any, number: int, start: int, end: int) -> bool:
        """Whether all content of message `number` is written in this range of characters."""
        if not self.shows(number):
            return False
        own = number - self._opening.start
        step = self._steps[own]
        place = len(self._opening.text) + sum([len(each.text) for each in self._steps[:own]])
        numbers, messages = (number,), {number: message}
        for part in step.known.written.parts or ():
            if isinstance(part, str):
                place += len(part)
            elif part.leaf.base != ITEM or part.leaf.shift:
                return False
            else:
                length = len(part.slot.value(_value(part.leaf, numbers, messages)))
                if place < start or place + length > end:
                    return False
                place += length
        return True

    def is_unchanged(self, number: int) -> bool:
        """Whether all content up to this message is written as the messages have it, without an escape."""
        steps = self._steps[: number + 1 - self._opening.start]
        return all([step.known.is_complete for step in steps]) and self._opening.is_plain


class _KnownOpening(NamedTuple):
    """A recording of the second half of what comes before the loop."""

    known: _Known
    variables: Mapping[str, tuple[Any, ...]]
    """Those that it sets, as far as later parts of the template may read them, in comparable form."""

    num_namespaces: int
    start: int


class Composer:
    """The recordings of one template.

    Args:
        plain: the template, rewritten to run up to its loop.
        recorded: the template, rewritten for a :class:`MessageRecorder`.
        context_of: creates the Jinja context of a template and its variables.
    """

    def __init__(self, plain: Stoppable, recorded: Stoppable, context_of: ContextOf) -> None:
        self.plain = plain
        self.context_of = context_of
        self._recorded = recorded
        self._shapes: dict[Any, int] = {}
        self._shape_of: dict[int, tuple[Any, int]] = {}
        self._keys: dict[Any, int] = {}
        self._states: dict[Any, _State] = {}
        self._outer: dict[Any, int] = {}
        self._openings: dict[int, list[_KnownOpening]] = {}
        self._known: dict[Any, list[_Known]] = {}
        self._num_known = 0
        self._recorders: dict[int, MessageRecorder] = {}
        self.num_failures = 0

    @property
    def is_worth_trying(self) -> bool:
        return self.num_failures < _MAX_FAILURES

    def shape_of(self, message: Any) -> int:
        """Return the number of a message's shape: everything except its texts and the arguments of its calls.

        Raises:
            OpaqueError: the message holds something that is not JSON.
        """
        found = self._shape_of.get(id(message))
        if found is not None and found[0] is message:
            return found[1]
        number = self._shapes.setdefault(_shape(message, None), len(self._shapes))
        if len(self._shape_of) >= _MAX_KNOWN:
            self._shape_of.clear()
        self._shape_of[id(message)] = message, number
        return number

    def state_of(self, held: Sequence[Mapping[str, Any]]) -> _State:
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
        kinds = tuple(tuple((name, type(value), value) for name, value in each.items()) for each in layout)
        key = self._keys.setdefault(kinds, len(self._keys))
        return self._states.setdefault((key, *numbers), _State(key, tuple(layout), tuple(numbers)))

    def state_behind(self, state: _State, known: _Known, numbers: Sequence[int]) -> _State:
        """Return the state after an iteration."""
        changes = known.written.namespaces
        if not changes:
            return state
        held = [
            {name: numbers[value] if type(value) is int else value for name, value in attributes.items()}
            for attributes in state.layout
        ]
        for space, name, value in changes:
            held[space][name] = numbers[value[0]] + value[1] if type(value) is tuple else value
        return self.state_of(held)

    def outer_of(self, names: Sequence[str], found: Mapping[str, tuple[Any, ...]], variables: Mapping[str, Any]) -> int:
        """Return the number of what the template may read of variables, except for messages and namespaces.

        Args:
            names: names that occur in the part of the template.
            found: variables that the template set before, in comparable form.
            variables: those that it was given.

        Raises:
            OpaqueError: it may read something else than words, numbers and macros.
        """
        read = []
        for name in names:
            known = found.get(name)
            if known is None and name in variables:
                known = (type(variables[name]), variables[name])
            if known is None:
                continue
            if known[0] in (list, tuple, dict) or (known[0] is str and len(known[1]) > _LONGEST_WORD):
                raise OpaqueError(f"the variable {name}")
            read.append((name, known))
        if len(self._outer) >= _MAX_OUTER:
            raise OpaqueError("variables that differ from row to row")
        return self._outer.setdefault(tuple(read), len(self._outer))

    def opening(
        self, half: FirstHalf, messages: Sequence[Any], variables: Mapping[str, Any]
    ) -> tuple[_KnownOpening, Sequence[int]]:
        """Return what the template does between the first half of its opening and its loop.

        Raises:
            OpaqueError: that cannot be recorded.
        """
        halves, recorded = self.plain.halves, self._recorded.halves
        assert halves is not None and recorded is not None
        size = len(messages)
        numbers = (size, size)
        found = self._openings.setdefault(self.outer_of(halves.names, half.comparable, variables), [])
        for opening in found:
            if opening.known.answers(numbers, messages, self.shape_of):
                break
        else:
            opening = self._recorded_opening(recorded, messages, {**variables, **half.found})
            found.append(opening)
        if opening.known.written.parts is None or not opening.known.suits(numbers, messages):
            raise OpaqueError("not composed")
        return opening, numbers

    def _recorded_opening(
        self, recorded: Halves, messages: Sequence[Any], variables: Mapping[str, Any]
    ) -> _KnownOpening:
        recorder = OpeningRecorder(self.shape_of)
        names = self.plain.names
        try:
            written = recorder.record(recorded.second, self.context_of, messages, variables, names)
        except TemplateOverrunError:
            raise
        except Exception:  # noqa: BLE001 - a template may raise anything; rendering it tells
            return _KnownOpening(_known(recorder.failed()), {}, 0, 0)
        found = {name: recorder.found[name] for name in names if name in recorder.found}
        return _KnownOpening(_known(written), found, recorder.num_namespaces, recorder.start)

    def known(
        self,
        outer: int,
        state: _State,
        numbers: Sequence[int],
        messages: Sequence[Any],
        variables: Mapping[str, Any],
        ending: tuple[Any, ...] | None = None,
    ) -> _Known:
        """Return what the template writes for message `numbers[0]`, or as its ending.

        Raises:
            OpaqueError: that cannot be recorded.
        """
        key: Any = self.shape_of(messages[numbers[ITEM]]) if ending is None else (*map(type, ending), *ending)
        found = self._known.setdefault((outer, state.key, key), [])
        for known in found:
            if known.answers(numbers, messages, self.shape_of):
                break
        else:
            known = self._recording(outer, state, numbers, messages, variables, ending)
            if self._num_known >= _MAX_KNOWN:
                self._known.clear()
                self._num_known, found = 0, []
            found.append(known)
            self._num_known += 1
        if known.written.parts is None or not known.suits(numbers, messages):
            raise OpaqueError("not composed")
        return known

    def _recording(
        self,
        outer: int,
        state: _State,
        numbers: Sequence[int],
        messages: Sequence[Any],
        variables: Mapping[str, Any],
        ending: tuple[Any, ...] | None,
    ) -> _Known:
        recorder = self._recorders.pop(outer, None)
        if recorder is None:
            recorder = MessageRecorder(self._recorded.template, self.context_of, self.shape_of, messages, variables)
        try:
            written = recorder.record(messages, numbers, state.layout, ending)
        except TemplateOverrunError:
            raise
        except Exception:  # noqa: BLE001 - a template may raise anything; rendering it tells
            written = recorder.failed()
        else:
            self._recorders[outer] = recorder
        is_complete = (
            ending is None and written.parts is not None and _shows_all(messages[numbers[ITEM]], written.parts)
        )
        return _known(written, is_complete=is_complete)


def _known(written: Written, *, is_complete: bool = False) -> _Known:
    placed = [part for part in written.parts or () if isinstance(part, Placed)]
    bases = {base for each in written.conditions for base in (each.base, getattr(each, "other", ZERO))}
    return _Known(
        written,
        is_complete,
        is_local=all(part.leaf.base in (ITEM, ZERO) for part in placed),
        ignores_namespaces=not written.namespaces and bases <= {ZERO, ITEM, SIZE},
    )


class Composition:
    """The renderings of one conversation."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self._openings: list[_Opened] = []
        self._half: tuple[Sequence[int], FirstHalf] | None = None
        self._outer: dict[int, tuple[int, bool]] = {}
        """What the first half contributes, by recordings of the second: see `_Opened`."""

        self._chains: list[_Chain] = []

    def text(self, messages: Sequence[Any], variables: Mapping[str, Any]) -> ComposedText:
        """Return what the template writes for the conversation, or a prefix of it.

        Equal values of other variables must be the same objects in every call.

        Raises:
            OpaqueError: it cannot be composed.
        """
        composer = self._composer
        late = composer.plain.late
        undefined = composer.plain.template.environment.undefined
        ending = tuple([variables[name] if name in variables else undefined(name=name) for name in late])
        early = {name: value for name, value in variables.items() if name not in late}
        opening = self._opening(messages, early)
        steps = self._steps(opening, messages, early)
        state = steps[-1].state if steps else opening.state
        size = len(messages)
        numbers = (size, size, *state.numbers)
        last = composer.known(opening.outer, state, numbers, messages, early, ending)
        return ComposedText(opening, steps, last.text(numbers, messages))

    def _opening(self, messages: Sequence[Any], variables: Mapping[str, Any]) -> "_Opened":
        same = [*map(id, variables.values())]
        for known in self._openings:
            if known.same == same and known.holds_for(messages):
                return known
        composer = self._composer
        made = (self._recorded_opening(same, messages, variables) if self._openings else None) or self._run_opening(
            same, messages, variables
        )
        self._openings = [made, *self._openings[:3]]
        return made

    def _run_opening(self, same: Sequence[int], messages: Sequence[Any], variables: Mapping[str, Any]) -> "_Opened":
        composer = self._composer
        opening = opened(composer.plain, composer.context_of, messages, variables)
        if AT in opening.state.text:
            raise OpaqueError("it may write an address")
        return _Opened(
            same=same,
            variables=variables,
            messages=messages,
            depends_on_end=opening.depends_on_end,
            text=opening.state.text,
            is_plain=_is_plain(opening.state.text),
            start=opening.start,
            outer=composer.outer_of(composer.plain.names, opening.state.variables, variables),
            state=composer.state_of([{name: value[1] for name, value in each.items()} for each in opening.state.held]),
        )

    def _recorded_opening(
        self, same: Sequence[int], messages: Sequence[Any], variables: Mapping[str, Any]
    ) -> "_Opened | None":
        """Return the opening if only its first half has to be run, once for all renderings of the conversation."""
        composer = self._composer
        half = self._first_half(same, messages, variables)
        if half is None:
            return None
        try:
            known, numbers = composer.opening(half, messages, variables)
        except OpaqueError:
            return None
        held: list[dict[str, Any]] = [{} for _ in range(known.num_namespaces)]
        for space, name, value in known.known.written.namespaces:
            held[space][name] = numbers[value[0]] + value[1] if type(value) is tuple else value
        outer, is_plain = self._outer.get(id(known)) or (
            composer.outer_of(composer.plain.names, {**half.comparable, **known.variables}, variables),
            _is_plain(half.text),
        )
        self._outer[id(known)] = outer, is_plain
        text = known.known.text(numbers, messages)
        return _Opened(
            same=same,
            variables=variables,
            messages=messages,
            depends_on_end=True,
            text=half.text + text,
            is_plain=is_plain and _is_plain(text),
            start=known.start,
            outer=outer,
            state=composer.state_of(held),
        )

    def _first_half(
        self, same: Sequence[int], messages: Sequence[Any], variables: Mapping[str, Any]
    ) -> FirstHalf | None:
        halves = self._composer.plain.halves
        if halves is None or len(messages) < halves.num_read:
            return None
        if self._half is None or self._half[0] != same or not all(map(is_, self._half[1].read, messages)):
            self._half = same, FirstHalf(halves, self._composer.context_of, messages, variables)
            self._outer = {}
        half = self._half[1]
        return half if half.has_no_namespaces and AT not in half.text else None

    def _steps(self, opening: "_Opened", messages: Sequence[Any], variables: Mapping[str, Any]) -> list[_Step]:
        """Return the steps of all messages that the loop runs over."""
        chain = self._chain(opening, messages)
        steps = chain.steps
        size = len(messages)
        found = steps[: size - opening.start]
        for place, step in enumerate(found):
            if (step.least_size or 0) > size:  # composed in a longer conversation
                del found[place:]
                break
        is_kept = len(found) == len(steps)
        state = found[-1].state if found else opening.state
        for number in range(opening.start + len(found), size):
            step = self._step(opening, number, state, chain, messages, variables)
            found.append(step)
            state = step.state
            is_kept = is_kept and step.least_size is not None
            if is_kept:
                steps.append(step)
                chain.messages.append(messages[number])
        return found

    def _step(
        self,
        opening: "_Opened",
        number: int,
        state: _State,
        chain: "_Chain",
        messages: Sequence[Any],
        variables: Mapping[str, Any],
    ) -> _Step:
        composer, size = self._composer, len(messages)
        numbers = (number, size, *state.numbers)
        hint, most = chain.hint(number - opening.start, messages[number]), opening.start + len(chain.hints)
        if hint is not None and (
            hint.before.key != state.key or not hint.known.is_local or hint.least_size is None or hint.least_size > most
        ):
            hint = None
        if hint is not None and hint.known.ignores_namespaces and hint.least_size <= size:
            return _Step(hint.known, hint.text, state, state, hint.least_size)
        if hint is not None and hint.known.answers(numbers, messages, composer.shape_of):
            known, text = hint.known, hint.text
        else:
            known = composer.known(opening.outer, state, numbers, messages, variables)
            text = known.text(numbers, messages)
        return _Step(known, text, state, composer.state_behind(state, known, numbers), known.least_size(numbers))

    def _chain(self, opening: "_Opened", messages: Sequence[Any]) -> "_Chain":
        """Return the chain that shares most messages, cut to what it shares."""
        best, most = None, -1
        like = None
        for chain in self._chains:
            if chain.outer != opening.outer or chain.start != opening.start:
                continue
            if chain.state is not opening.state:
                if like is None and chain.state.key == opening.state.key:
                    like = chain
                continue
            shared = _num_shared(chain.messages, messages[opening.start :])
            if shared > most:
                best, most = chain, shared
        if best is not None and most in (len(best.messages), len(messages) - opening.start):
            return best
        made = _Chain(opening.outer, opening.start, opening.state)
        if best is not None:  # another conversation: one with words in place of texts, say
            steps = best.steps[:most]
            while steps and max(step.least_size or 0 for step in steps) > opening.start + most:
                steps.pop()
            made.steps, made.messages = steps, best.messages[: len(steps)]
        elif like is not None:
            most = _num_shared(like.messages, messages[opening.start :])
            made.hints, made.hinted = like.steps[:most], like.messages
        self._chains = [made, *self._chains[:3]]
        return made


def _is_plain(text: str) -> bool:
    """Whether a text has no escape."""
    return ("&" not in text and "\ufffd" not in text) or not ESCAPE.search(text)


def _num_shared(known: Sequence[Any], messages: Sequence[Any]) -> int:
    """Return how many messages two conversations begin with in common."""
    same = [*map(is_, known, messages)]
    return same.index(False) if False in same else len(same)


@dataclass(slots=True)
class _Chain:
    """Steps that last, from the first message that the loop runs over on."""

    outer: int
    start: int
    state: _State
    steps: list[_Step] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    hints: Sequence[_Step] = ()
    """Steps from another state, which are probably the same."""

    hinted: Sequence[Any] = ()

    def hint(self, place: int, message: Any) -> _Step | None:
        return self.hints[place] if place < len(self.hints) and self.hinted[place] is message else None


@dataclass(slots=True, eq=False, kw_only=True)
class _Opened:
    """What a template writes before its loop, and the state in which it enters it."""

    same: Sequence[int]
    variables: Mapping[str, Any]
    """Kept alive, so that no other value gets the same id."""

    messages: Sequence[Any]
    depends_on_end: bool
    text: str
    start: int
    """Index of the first message that the loop runs over."""

    outer: int
    state: _State
    is_plain: bool
    """Whether the text has no escape."""

    def holds_for(self, messages: Sequence[Any]) -> bool:
        if self.depends_on_end and len(messages) != len(self.messages):
            return False
        return len(messages) >= len(self.messages) and all(map(is_, self.messages, messages))


_JSON = ToJson()


def _value(leaf: Leaf, numbers: Sequence[int], messages: Any) -> str:
    base, shift, path, settings = leaf
    value = messages[shift if base == ZERO else numbers[base] + shift]
    for name in path:
        value = value[name]
    return value if settings is None else _JSON(value, *settings)


def _shape(value: Any, name: Any) -> Any:
    """Return a value with a constant in place of each text and of the arguments of each call."""
    kind = type(value)
    if kind is str:
        return "text" if is_unknown_text(value, name) else ("", value)
    if kind is dict:
        if name == "arguments":
            return "arguments" if value else "no arguments"
        return (dict, *[(key, _shape(each, key)) for key, each in value.items()])
    if kind is list:
        return (list, *[_shape(each, None) for each in value])
    if value is None or kind is bool:
        return (kind, value)
    if kind is int or kind is float:
        return (kind, repr(value))
    raise OpaqueError("not JSON")


def _shows_all(message: Mapping[str, Any], parts: Sequence[str | Placed]) -> bool:
    """Whether all content of a message is among the parts, as the message has it: texts as they are, arguments as JSON.

    Results of tools may be JSON, too. Nothing else of what the template writes may look like an escape.
    """
    if any(isinstance(part, str) and ESCAPE.search(part) for part in parts):
        return False
    own = [part.leaf for part in parts if isinstance(part, Placed) and part.leaf.base == ITEM and not part.leaf.shift]
    as_it_is = {leaf.path for leaf in own if leaf.settings is None}
    as_json = {leaf.path for leaf in own if leaf.settings is not None}
    content = message.get("content")
    path: tuple[str | int, ...] = ("content",)
    if isinstance(content, list):
        if len(content) != 1 or not isinstance(content[0], dict):
            return False
        content, path = content[0].get("text"), ("content", 0, "text")
    is_result = message.get("role") == "tool"
    if content and not isinstance(content, str):
        return False
    if content and not content.isspace() and path not in (as_it_is | as_json if is_result else as_it_is):
        return False
    reasoning = [(name,) for name in REASONING_FIELDS if message.get(name)]
    if reasoning and not as_it_is.intersection(reasoning):
        return False
    calls = message.get("tool_calls") or ()
    return isinstance(calls, list | tuple) and all(
        _shows_call(call, ("tool_calls", number), as_it_is, as_json) for number, call in enumerate(calls)
    )


def _shows_call(call: Any, path: tuple[str | int, ...], as_it_is: Any, as_json: Any) -> bool:
    if not isinstance(call, dict):
        return False
    if "function" in call:
        call, path = call["function"], (*path, "function")
    if not isinstance(call, dict) or not is_unknown_text(call.get("name"), "name") or (*path, "name") not in as_it_is:
        return False
    arguments = call.get("arguments")
    if not arguments:
        return True
    return (*path, "arguments") in (as_it_is if isinstance(arguments, str) else as_json)
