"""What a template writes before its loop over the messages, for all renderings of one conversation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from packer.render.composed.message_content import BEGINS_ESCAPE
from packer.render.composed.recordings import Recordings
from packer.render.composed.states import State
from packer.render.composed.unknowns import SIZE, Number
from packer.render.composed.written import AT
from packer.render.opening import SCALARS, FirstHalf, Opening, begins_with
from packer.render.readback import ESCAPE
from packer.render.symbolic import OpaqueError
from packer.watchdog import TemplateOverrunError, watched

_MAX_OPENINGS = 8
"""Maximum number of openings that are kept of one conversation, and of runs."""

_MAX_SIZED = 16
"""Number of openings in a row that depend on the number of messages, after which no other is expected."""


class Setting(NamedTuple):
    """The variables of a rendering."""

    variables: Mapping[str, Any]
    """All but the messages and those that only the ending reads."""

    same: int
    """Equal if all of them are the same objects."""

    same_before: int
    """Equal if all those are that occur before the loop."""

    ending: tuple[Any, ...]
    """Values of those that only the ending reads."""


@dataclass(slots=True, eq=False, kw_only=True)
class ComposedOpening:
    """What a template writes before its loop, and the state in which it enters it."""

    messages: Sequence[Any]
    """Those that it depends on."""

    depends_on_end: bool
    """Whether it depends on where the conversation ends, except for what loops look for."""

    setting: Setting
    text: str
    is_plain: bool
    """Whether the text has no escape."""

    start: int
    """Index of the first message that the loop runs over."""

    outer: int
    state: State

    def holds_for(self, messages: Sequence[Any]) -> bool:
        """Whether it is the same for other messages, if loops may do something up to the same of them."""
        return begins_with(self.messages, messages, exactly=self.depends_on_end)


class _Size:
    """Stands for the number of messages, and records what is asked about it."""

    def __init__(self, size: int) -> None:
        self.numbers: Sequence[int] = (size, size)
        self.conditions: list[Any] = []

    @property
    def number(self) -> Number:
        return Number(self, SIZE)


class Openings:
    """What a template writes before its loop in the renderings of one conversation.

    Where it looks for something in the messages, most of them are found to make no difference. What follows the last
    that does need not be looked at, and the opening is the same as before. Otherwise the opening of a recording is
    tried, and if there is none, the template is run up to its loop.
    """

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings
        self._openings: dict[tuple[int, int], ComposedOpening] = {}
        """By setting, and by number of messages up to the last for which a loop may do something."""

        self._runs: dict[tuple[int, int], Opening] = {}
        """What the openings are of all settings that are the same before the loop."""

        self._halves: dict[int, FirstHalf] = {}
        """Runs of the first half of what comes before the loop, by what is the same before it."""

    def of(self, messages: Sequence[Any], setting: Setting) -> ComposedOpening:
        """Return the opening.

        Raises:
            OpaqueError: it cannot be composed.
        """
        half = self._first_half(messages, setting)
        num_looked_at = half.num_looked_at(messages)
        known = self._openings.get((setting.same, num_looked_at))
        if known is not None and known.holds_for(messages):
            return known
        made = self._recorded_opening(half, messages, setting)
        if made is None:
            run = self._run(half, messages, setting, num_looked_at)
            made, num_looked_at = self._of_run(run, setting), half.num_looked_at(messages)
        _keep(self._openings, (setting.same, num_looked_at), made)
        return made

    def _recorded_opening(self, half: FirstHalf, messages: Sequence[Any], setting: Setting) -> ComposedOpening | None:
        """Return the opening if its second half need not be run."""
        recordings = self._recordings
        is_recorded = half.halves.is_usual and not half.spaces and recordings.opening_depends_on_end
        if not is_recorded or len(messages) < half.halves.num_read:
            return None
        try:
            known = recordings.opening(half, messages, setting.variables)
        except OpaqueError:
            return None
        outer = half.outer.get((id(known), setting.same))
        if outer is None:
            found = {**half.comparable, **known.variables}
            number = recordings.outer_of(recordings.plain.names, found, setting.variables, known.start)
            # They are kept alive, so that no others get their ids.
            outer = half.outer[id(known), setting.same] = known, number
        numbers = (len(messages), len(messages))
        text = known.recording.text(numbers, messages)
        return ComposedOpening(
            messages=messages,
            depends_on_end=True,
            setting=setting,
            text=half.text + text,
            is_plain=half.is_plain and _is_plain(text),
            start=known.start,
            outer=outer[1],
            state=recordings.states.moved(known.state, known.numbers, numbers),
        )

    def _of_run(self, run: Opening, setting: Setting) -> ComposedOpening:
        recordings, read = self._recordings, self._recordings.plain.attributes
        held = [
            {name: _scalar(value) for name, value in each.items() if read is None or name in read} for each in run.held
        ]
        return ComposedOpening(
            messages=run.read,
            depends_on_end=run.depends_on_end,
            setting=setting,
            text=run.text,
            is_plain=_is_plain(run.text),
            start=run.start,
            outer=recordings.outer_of(recordings.plain.names, run.variables, setting.variables, run.start),
            state=recordings.states.of(held),
        )

    def _first_half(self, messages: Sequence[Any], setting: Setting) -> FirstHalf:
        half = self._halves.get(setting.same_before)
        if half is None or not half.is_of(messages):
            recordings = self._recordings
            halves = recordings.plain.halves
            half = watched(lambda: FirstHalf(halves, recordings.context_of, messages, setting.variables))
            if AT in half.text:
                raise OpaqueError("it may write an address")
            half.is_plain = _is_plain(half.text)
            self._halves[setting.same_before] = half
        return half

    def _run(self, half: FirstHalf, messages: Sequence[Any], setting: Setting, num_looked_at: int) -> Opening:
        """Run the second half, or return a run that serves: without the number of messages, if that is possible."""
        recordings = self._recordings
        run = self._runs.get((setting.same_before, num_looked_at))
        if run is not None and run.holds_for(messages):
            return run
        run = None
        if half.halves.is_usual and recordings.num_sized < _MAX_SIZED:
            try:
                run = watched(lambda: Opening(half, messages, _Size(len(messages))))
            except TemplateOverrunError:
                raise
            except Exception:  # noqa: BLE001, S110 - it cannot do without; whatever else is wrong shows again
                pass
            recordings.num_sized = 0 if run is not None else recordings.num_sized + 1
        run = run or watched(lambda: Opening(half, messages))
        if AT in run.text:
            raise OpaqueError("it may write an address")
        recordings.opening_depends_on_end |= run.depends_on_end or half.halves.num_loops > 0
        _keep(self._runs, (setting.same_before, half.num_looked_at(messages)), run)
        return run


def _keep(kept: dict[Any, Any], key: Any, value: Any) -> None:
    """Keep a value, and of the others only the last ones."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _MAX_OPENINGS:
        del kept[next(iter(kept))]


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
