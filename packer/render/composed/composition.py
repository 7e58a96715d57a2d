"""The renderings of one conversation, composed of recordings."""

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, Self

from packer.render.composed.chain import Chain, Step
from packer.render.composed.message_content import BEGINS_ESCAPE, value_of
from packer.render.composed.openings import ComposedOpening, Openings, Setting
from packer.render.composed.recordings import Iteration, Recordings
from packer.render.composed.states import State
from packer.render.composed.unknowns import ITEM
from packer.render.symbolic import OpaqueError
from packer.watchdog import TemplateOverrunError

_MAX_KEPT = 4
"""Maximum number of beginnings of messages that are kept of one conversation."""


class ComposedText(str):
    """A rendering that knows what it is composed of."""

    __slots__ = ("_opening", "_steps")
    _opening: ComposedOpening
    _steps: Sequence[Step]

    def __new__(cls, text: str, opening: ComposedOpening, steps: Sequence[Step]) -> Self:
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
        self._settings: dict[tuple[int, int, bool], tuple[Any, Any, Setting]] = {}
        self._numbers: dict[Any, int] = {}
        self._openings = Openings(recordings)
        self._chains: list[Chain] = []
        self._last: tuple[ComposedOpening, Sequence[Any], list[Step], State, str] | None = None
        """The last rendering without its ending."""

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
                opening = self._openings.of(messages, setting)
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

    def _setting(self, tools: Any, kwargs: Mapping[str, Any], *, add_generation_prompt: bool) -> Setting:
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
        before = {name: value for name, value in early.items() if name in plain.before}
        setting = Setting(early, self._number_of(early), self._number_of(before), ending)
        self._settings[key] = tools, kwargs, setting  # so that no other objects get these ids
        return setting

    def _number_of(self, values: Mapping[str, Any]) -> int:
        """Return a number that is equal for the same objects; settings are kept, and with them these values."""
        return self._numbers.setdefault((*values, *map(id, values.values())), len(self._numbers))

    def _steps(self, opening: ComposedOpening, messages: Sequence[Any]) -> tuple[list[Step], State]:
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

    def _step(self, opening: ComposedOpening, number: int, state: State, messages: Sequence[Any]) -> Step:
        recordings = self._recordings
        numbers = (number, len(messages), *state.numbers)
        recording = recordings.recording(Iteration(opening.outer, state, numbers, messages, opening.setting.variables))
        text = recording.text(numbers, messages)
        behind = recordings.states.behind(state, recording, numbers) if recording.written.namespaces else None
        reads_back = recording.reads_back and ("&" not in text or not BEGINS_ESCAPE.search(text))
        return Step(recording, text, behind, recording.least_size(numbers), reads_back)

    def _chain(self, opening: ComposedOpening, messages: Sequence[Any]) -> Chain:
        """Return a chain that can be extended to these messages: one that is there, or one made of that most alike."""
        best: Chain | None = None
        most, goes_on = -1, False
        for chain in self._chains:
            if chain.outer == opening.outer and chain.start == opening.start and chain.state.key == opening.state.key:
                number = chain.num_shared(messages)
                goes_on = chain.state is opening.state and number in {len(chain.messages), len(messages)}
                if goes_on or number > most:
                    best, most = chain, number
                if goes_on:
                    break
        if best is not None and goes_on:
            made = best
        elif best is not None and most >= opening.start:
            made = self._moved(best, most, opening, messages)
        else:
            made = Chain(opening.outer, opening.start, opening.state, list(messages[: opening.start]))
        others = [chain for chain in self._chains if chain is not made and chain is not best]
        kept = [made, *others] if best is None or best is made else [made, best, *others]
        self._chains = kept[:_MAX_KEPT]
        return made

    def _moved(self, chain: Chain, shared: int, opening: ComposedOpening, messages: Sequence[Any]) -> Chain:
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
