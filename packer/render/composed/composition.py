"""The renderings of one conversation, composed of recordings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, NamedTuple, Self

from packer.render.composed.chain import Chain, Step
from packer.render.composed.message_content import BEGINS_ESCAPE, value_of
from packer.render.composed.recordings import Iteration, Recordings
from packer.render.composed.states import State
from packer.render.composed.unknowns import ITEM
from packer.render.composed.written import AT
from packer.render.opening import SCALARS, FirstHalf, opened
from packer.render.readback import ESCAPE
from packer.render.symbolic import OpaqueError
from packer.watchdog import TemplateOverrunError, watched

_MAX_KEPT = 4
"""Maximum number of openings, and of beginnings of messages, that are kept of one conversation."""


class _Setting(NamedTuple):
    """The variables of a rendering."""

    variables: Mapping[str, Any]
    """All but the messages and those that only the ending reads."""

    same: int
    """Equal if all of them are the same objects."""

    ending: tuple[Any, ...]
    """Values of those that only the ending reads."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Opening:
    """What a template writes before its loop, and the state in which it enters it."""

    setting: _Setting
    """Keeps the values of its variables alive, so that no others get their ids."""

    messages: Sequence[Any]
    """Those that it depends on."""

    depends_on_end: bool
    text: str
    is_plain: bool
    """Whether the text has no escape."""

    start: int
    """Index of the first message that the loop runs over."""

    outer: int
    state: State

    def holds_for(self, messages: Sequence[Any], setting: _Setting) -> bool:
        more = len(messages) - len(self.messages)
        if more < 0 or (self.depends_on_end and more):
            return False
        return self.setting.same == setting.same and all(map(is_, self.messages, messages))


class ComposedText(str):
    """A rendering that knows what it is composed of."""

    __slots__ = ("_opening", "_steps")
    _opening: _Opening
    _steps: Sequence[Step]

    def __new__(cls, text: str, opening: _Opening, steps: Sequence[Step]) -> Self:
        self = super().__new__(cls, text)
        self._opening, self._steps = opening, steps
        return self

    def shows(self, number: int) -> bool:
        """Whether all content of this message is written as the message has it."""
        place = number - self._opening.start
        return 0 <= place < len(self._steps) and self._steps[place].recording.is_complete

    def shows_within(self, message: Any, number: int, start: int, end: int) -> bool:
        """Whether all content of message `number` is written in this range of characters."""
        if not self.shows(number):
            return False
        own = number - self._opening.start
        place = len(self._opening.text) + sum([len(each.text) for each in self._steps[:own]])
        numbers, messages = (number,), {number: message}
        for part in self._steps[own].recording.written.parts or ():
            if isinstance(part, str):
                place += len(part)
            elif part.leaf.base != ITEM or part.leaf.shift:
                return False
            else:
                length = len(part.slot.value(value_of(part.leaf, numbers, messages)))
                if place < start or place + length > end:
                    return False
                place += length
        return True

    def is_unchanged(self, number: int) -> bool:
        """Whether all content up to this message is written as the messages have it, without an escape.

        What comes before the loop may have written no more than the first message.
        """
        if self._opening.start > 1 or number < self._opening.start:
            return False
        steps = self._steps[: number + 1 - self._opening.start]
        return self._opening.is_plain and False not in [step.reads_back for step in steps]


class Composition:
    """The renderings of one conversation.

    Args:
        recordings: of its template.
        variables: those that are the same for all rows.
    """

    def __init__(self, recordings: Recordings, variables: Mapping[str, Any]) -> None:
        self._recordings = recordings
        self._variables = variables
        self._settings: dict[tuple[int, int, bool], tuple[Any, Any, _Setting]] = {}
        self._numbers: dict[Any, int] = {}
        self._openings: list[_Opening] = []
        self._by_size: dict[int, _Opening] = {}
        """Openings that depend on the end, by the number of messages."""
        self._chains: list[Chain] = []
        self._last: tuple[_Opening, Sequence[Any], list[Step], State, str] | None = None
        """The last rendering without its ending."""
        self._half: tuple[int, FirstHalf] | None = None
        recordings.begin()

    def text(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
        *,
        add_generation_prompt: bool,
    ) -> ComposedText:
        """Return what the template writes for the conversation, or a prefix of it.

        Raises:
            OpaqueError: it cannot be composed.
        """
        try:
            setting = self._setting(tools, kwargs, add_generation_prompt=add_generation_prompt)
            last = self._last
            if (
                last is not None
                and last[0].setting.same == setting.same
                and (last[1] is messages or (len(last[1]) == len(messages) and all(map(is_, last[1], messages))))
            ):
                opening, _, steps, state, before = last
            else:
                opening = self._opening(messages, setting)
                steps, state = self._steps(opening, messages)
                before = "".join([opening.text, *[step.text for step in steps]])
                self._last = opening, messages, steps, state, before
            size = len(messages)
            numbers = (size, size, *state.numbers)
            at = Iteration(opening.outer, state, numbers, messages, setting.variables)
            recording = self._recordings.recording(at, setting.ending)
            return ComposedText(before + recording.text(numbers, messages), opening, steps)
        except OpaqueError:
            raise
        except TemplateOverrunError as error:
            self._recordings.take_too_long = True
            raise OpaqueError("recording takes too long") from error
        except Exception as error:  # a template may raise anything; rendering it tells
            raise OpaqueError(str(error)) from error

    def note_failure(self) -> None:
        """Note that the conversation could not be composed."""
        self._recordings.num_failed += 1

    def _setting(self, tools: Any, kwargs: Mapping[str, Any], *, add_generation_prompt: bool) -> _Setting:
        key = id(tools), id(kwargs), add_generation_prompt
        known = self._settings.get(key)
        if known is not None:
            return known[2]
        plain = self._recordings.plain
        late, undefined = plain.late, plain.environment.undefined
        variables = {"documents": None, **self._variables, **kwargs}
        variables |= {"tools": tools, "add_generation_prompt": add_generation_prompt}
        ending = tuple([variables[name] if name in variables else undefined(name=name) for name in late])
        early = {name: value for name, value in variables.items() if name not in late}
        identity = (*early, *map(id, early.values()))  # settings are kept, and with them these values
        setting = _Setting(early, self._numbers.setdefault(identity, len(self._numbers)), ending)
        self._settings[key] = tools, kwargs, setting  # so that no other objects get these ids
        return setting

    def _opening(self, messages: Sequence[Any], setting: _Setting) -> _Opening:
        size = len(messages)
        of_size = self._by_size.get(size)
        for known in self._openings if of_size is None else (of_size, *self._openings):
            if known.holds_for(messages, setting):
                return known
        # If it holds for all renderings, it has to run only once.
        made = self._recorded_opening(messages, setting) if self._recordings.opening_depends_on_end else None
        made = made or self._run_opening(messages, setting)
        if not made.depends_on_end:
            self._openings = [made, *self._openings[: _MAX_KEPT - 1]]
            return made
        self._by_size[size] = made
        if len(self._by_size) > _MAX_KEPT:
            del self._by_size[next(iter(self._by_size))]
        return made

    def _run_opening(self, messages: Sequence[Any], setting: _Setting) -> _Opening:
        recordings, variables = self._recordings, setting.variables
        opening = watched(lambda: opened(recordings.plain, recordings.context_of, messages, variables))
        recordings.opening_depends_on_end = recordings.opening_depends_on_end or opening.depends_on_end
        text = opening.text
        if AT in text:
            raise OpaqueError("it may write an address")
        read = recordings.plain.attributes
        held = [
            {name: _scalar(value) for name, value in each.items() if read is None or name in read}
            for each in opening.held
        ]
        return _Opening(
            setting=setting,
            messages=messages if opening.depends_on_end else messages[: opening.messages.num_read],
            depends_on_end=opening.depends_on_end,
            text=text,
            is_plain=_is_plain(text),
            start=opening.start,
            outer=recordings.outer_of(recordings.plain.names, opening.variables, variables, opening.start),
            state=recordings.states.of(held),
        )

    def _recorded_opening(self, messages: Sequence[Any], setting: _Setting) -> _Opening | None:
        """Return the opening if only its first half has to be run, once for all renderings of the conversation."""
        recordings = self._recordings
        half = self._first_half(messages, setting)
        if half is None:
            return None
        try:
            known = recordings.opening(half, messages, setting.variables)
        except OpaqueError:
            return None
        if id(known) not in half.outer:
            found = {**half.comparable, **known.variables}
            number = recordings.outer_of(recordings.plain.names, found, setting.variables, known.start)
            half.outer[id(known)] = known, number  # kept alive, so that no other gets its id
        numbers = (len(messages), len(messages))
        text = known.recording.text(numbers, messages)
        return _Opening(
            setting=setting,
            messages=messages,
            depends_on_end=True,
            text=half.text + text,
            is_plain=half.is_plain and _is_plain(text),
            start=known.start,
            outer=half.outer[id(known)][1],
            state=recordings.states.moved(known.state, known.numbers, numbers),
        )

    def _first_half(self, messages: Sequence[Any], setting: _Setting) -> FirstHalf | None:
        recordings = self._recordings
        halves = recordings.plain.halves
        if halves is None or len(messages) < halves.num_read:
            return None
        if self._half is None or self._half[0] != setting.same or not all(map(is_, self._half[1].read, messages)):
            half = watched(lambda: FirstHalf(halves, recordings.context_of, messages, setting.variables))
            half.is_plain = _is_plain(half.text)
            self._half = setting.same, half
        half = self._half[1]
        return half if half.has_no_namespaces and AT not in half.text else None

    def _steps(self, opening: _Opening, messages: Sequence[Any]) -> tuple[list[Step], State]:
        """Return the steps of all messages that the loop runs over, and what namespaces hold behind them."""
        chain = self._chain(opening, messages)
        size = len(messages)
        # Those that are the same in a conversation of this size; some were composed in a longer one.
        steps = chain.steps[: chain.num_same_in(size)]
        lasts = len(steps) == len(chain.steps)
        state = opening.state if chain.num_movable is None else _behind(steps, opening.state)
        for number in range(opening.start + len(steps), size):
            step = self._step(opening, number, state, messages)
            if step.behind is not None:
                state = step.behind
            steps.append(step)
            lasts = lasts and step.least_size is not None
            if lasts:
                chain.append(step, messages)
        return steps, state

    def _step(self, opening: _Opening, number: int, state: State, messages: Sequence[Any]) -> Step:
        recordings = self._recordings
        numbers = (number, len(messages), *state.numbers)
        recording = recordings.recording(Iteration(opening.outer, state, numbers, messages, opening.setting.variables))
        text = recording.text(numbers, messages)
        behind = recordings.states.behind(state, recording, numbers) if recording.written.namespaces else None
        reads_back = recording.reads_back and ("&" not in text or not BEGINS_ESCAPE.search(text))
        return Step(recording, text, behind, recording.least_size(numbers), reads_back)

    def _chain(self, opening: _Opening, messages: Sequence[Any]) -> Chain:
        """Return a chain that shares as many messages as possible, and can be extended to all of these."""
        best: Chain | None = None
        most = (False, -1)
        for chain in self._chains:
            if chain.outer == opening.outer and chain.start == opening.start and chain.state.key == opening.state.key:
                number = chain.num_shared(messages)
                goes_on = chain.state is opening.state and number in {len(chain.messages), len(messages)}
                if (goes_on, number) > most:
                    best, most = chain, (goes_on, number)
        goes_on, shared = most
        if best is not None and goes_on:
            made = best
        elif best is not None and shared >= opening.start:
            made = self._moved(best, shared, opening, messages)
        else:
            made = Chain(opening.outer, opening.start, opening.state, list(messages[: opening.start]))
        others = [chain for chain in self._chains if chain is not made and chain is not best]
        kept = [made, *others] if best is None or best is made else [made, best, *others]
        self._chains = kept[:_MAX_KEPT]
        return made

    def _moved(self, chain: Chain, shared: int, opening: _Opening, messages: Sequence[Any]) -> Chain:
        """Return a chain of the steps of shared messages, for what namespaces hold now."""
        end = chain.num_same_in(shared)
        state = opening.state
        if state is not chain.state and chain.num_movable is not None:
            end = min(end, chain.num_movable)
        changed = [place for place in chain.changed(state) if place < end]
        made = chain.head(min(changed, default=end), state)
        for place in range(len(made.steps), end):
            step = chain.steps[place]
            if place in changed:
                step = self._step(opening, opening.start + place, state, messages)
                if step.behind is not None or step.least_size is None:
                    break
            made.append(step, messages)
        return made


def _behind(steps: Sequence[Step], state: State) -> State:
    """Return what namespaces hold after some steps."""
    return next((step.behind for step in reversed(steps) if step.behind is not None), state)


def _scalar(value: tuple[Any, ...]) -> Any:
    """Return the value of an attribute in comparable form.

    Raises:
        OpaqueError: it is something else than a number, a truth value, a word or none.
    """
    if value[0] not in SCALARS:
        raise OpaqueError("a namespace holds something else")
    return value[1]


def _is_plain(text: str) -> bool:
    """Whether a text has no escape, and does not end as one begins."""
    return ("&" not in text and "\ufffd" not in text) or not (ESCAPE.search(text) or BEGINS_ESCAPE.search(text))
