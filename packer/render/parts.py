"""Which characters of a turn are its reasoning, its text and its calls: by their places in the rendering.

A second conversation says the same, with a mark at each end of every reasoning and text, in front of the name of every
call, and where spans that a row names begin and end. Marks stand inside of white space and tags, so that a template
strips and splits what it did before. It is rendered as the first one was. Without its marks the rendering must be the
turn, letter for letter: then the marks are the places, however often a text occurs. Else the row is rejected.

All characters of a turn belong to one part. What stands between two parts belongs to the first up to a marker that
closes it, and the rest, white space too, to the second. What stands before the first part, such as an empty block of
reasoning, belongs to it, and what follows the last one, with the stop token, to that. Worked example, with `|` where
parts meet: `<think>⏎I look.⏎</think>|⏎⏎Let me see.|⏎<tool_call>⏎{"name": …}⏎</tool_call><|im_end|>`.
"""

import functools
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from packer.batches import Message, Sample
from packer.recipe.supervision import Part
from packer.render.conversation import Conversation, RenderedTurn, TurnRules
from packer.render.environment import RenderError
from packer.render.placeholders import text_of
from packer.render.readback import function_of
from packer.render.reasoning import CLOSING, reasoning_fields, reasoning_of, split_inline
from packer.render.rewritten_history import Range

PARTS: tuple[Part, ...] = get_args(Part)

_BEGINS: dict[str, Part] = {"\U000f1d01": "reasoning", "\U000f1d02": "text", "\U000f1d03": "calls"}
_ENDS: dict[str, Part] = {"\U000f1d04": "reasoning", "\U000f1d05": "text"}
_OPEN = {part: mark for mark, part in _BEGINS.items()}
_CLOSE = {part: mark for mark, part in _ENDS.items()}
_SPAN = "\U000f1d06"
_MARKS = re.compile(f"([{''.join((*_BEGINS, *_ENDS, _SPAN))}])")

_DROPPED: dict[Part, str] = {"reasoning": "reasoning", "text": "content", "calls": "tool_call"}
"""What `supervision.allow_dropped` calls them."""

_CLOSES = re.compile(
    r"<\|close\|>\w+<\|sep\|>|<[|\uff5c](?i:end)[^<>\s]*[|\uff5c]>|</[^<>\s]{1,60}>|\[/[A-Z_]{1,60}\]|"
    + CLOSING.pattern
)
"""Matches a marker that closes a part."""


def having_parts(weights: dict[int, float], sample: Sample, trained: Collection[Part] | None) -> dict[int, float]:
    """Return the weights of the messages that have a part that is trained, or spans, which say it themselves."""
    if trained is None:
        return weights
    messages = sample.messages
    return {
        k: weight
        for k, weight in weights.items()
        if messages[k].spans is not None or not parts_of(messages[k].fields).isdisjoint(trained)
    }


def parts_of(fields: Mapping[str, Any]) -> set[Part]:
    """Return the parts that a message has."""
    text = _places(text_of(fields), fields)[1]
    found = {"reasoning": reasoning_of(fields), "text": text, "calls": fields.get("tool_calls")}
    return {part for part in PARTS if found[part]}


def _places(text: str, fields: Mapping[str, Any]) -> tuple[Range | None, Range | None]:
    """Return where the reasoning that a text begins with stands in it, and where the answer, without white space.

    What an unopened tag ends is no reasoning of a message that has some in a field.
    """
    inline = split_inline(text)
    inline = None if inline is not None and not inline.opening and reasoning_fields(fields) else inline
    answer = text if inline is None else inline.answer
    end, start = len(text.rstrip()), len(text) - len(answer.lstrip())
    own = (start, end) if start < end else None
    if inline is None or not inline.reasoning:
        return None, own
    before = len(text) - len(text.lstrip()) + len(inline.opening)
    begin = before + len(text[before:]) - len(text[before:].lstrip())
    return (begin, begin + len(inline.reasoning)), own


def marked(sample: Sample) -> Sample:
    """Return a sample with marks in the messages of the assistant."""
    messages = [_marked(each) if each.role == "assistant" else each for each in sample.messages]
    return msgspec.structs.replace(sample, messages=tuple(messages))


def _marked(message: Message) -> Message:
    fields = dict(message.fields)
    for name in reasoning_fields(fields):
        value = fields[name]
        inline = split_inline(value)
        own = _places(value, {})[0] if inline is not None and not inline.answer else _places_of_all(value)
        fields[name] = _with(value, _around(own, "reasoning"))
    if isinstance(content := fields.get("content"), str):
        reasoning, text = _places(content, fields)
        first, last = text or (0, 0)
        spans = [(min(max(place, first), last), _SPAN) for span in message.spans or () for place in span]
        fields["content"] = _with(content, [*_around(reasoning, "reasoning"), *_around(text, "text"), *spans])
    if fields.get("tool_calls"):
        fields["tool_calls"] = [_marked_call(call) for call in fields["tool_calls"]]
    return msgspec.structs.replace(message, fields=fields)


def _places_of_all(text: str) -> Range:
    return len(text) - len(text.lstrip()), len(text.rstrip())


def _around(place: Range | None, part: Part) -> list[tuple[int, str]]:
    return [] if place is None else [(place[0], _OPEN[part]), (place[1], _CLOSE[part])]


def _with(text: str, marks: Iterable[tuple[int, str]]) -> str:
    for place, mark in sorted(marks, reverse=True):
        text = text[:place] + mark + text[place:]
    return text


def _marked_call(call: Any) -> Any:
    function = {**function_of(call), "name": f"{_OPEN['calls']}{function_of(call).get('name', '')}"}
    return {**call, "function": function} if "function" in call else {**call, **function}


class _Marks(NamedTuple):
    """A rendering without its marks, and where they stood in it."""

    text: str
    places: Sequence[tuple[int, str]]

    @classmethod
    def of(cls, rendered: str) -> "_Marks":
        pieces = _MARKS.split(rendered)
        ends = itertools.accumulate(map(len, pieces[::2]))
        return cls("".join(pieces[::2]), [*zip(ends, pieces[1::2], strict=False)])


class TrainedParts:
    """Masks what is not trained of the turns of one row."""

    def __init__(
        self,
        sample: Sample,
        marked: Conversation,
        rules: TurnRules,
        *,
        last: int,
        trained: Collection[Part],
        may_drop: Collection[str],
    ) -> None:
        """Take a row.

        Args:
            sample: the row.
            marked: the conversation of the :func:`marked` sample, in the form in which the row is rendered.
            rules: for turns.
            last: its last trained message.
            trained: the parts that are trained.
            may_drop: kinds of what templates may leave out.
        """
        self._sample = sample
        self._conversation = marked
        self._rules = rules
        self._last = last
        self._trained = trained
        self._may_drop = may_drop

    @functools.cached_property
    def _whole(self) -> _Marks:
        """The rendering of the row, which most turns are the beginnings of."""
        try:
            return _Marks.of(self._conversation.render(self._conversation.messages[: self._last + 1], {}))
        except RenderError:
            return _Marks("", ())

    def mask(self, turn: RenderedTurn) -> RenderedTurn:
        """Return the turn with the ranges that are not trained, beside those that it has.

        Raises:
            RenderError: `part_not_found`.
        """
        places = self._marks_in(turn)
        own = self._parts(turn, places)
        spans = self._sample.messages[turn.message].spans
        if spans is None:
            masked = [(start, end) for start, end, part in own if part not in self._trained]
        else:
            masked = _beside(own, [place for place, mark in places if mark == _SPAN], places)
        return turn._replace(masked=_joined([*turn.masked, *masked]))

    def _marks_in(self, turn: RenderedTurn) -> list[tuple[int, str]]:
        found = self._whole
        if not found.text.startswith(turn.text):
            try:
                again = self._conversation.turn(turn.message, turn.weight, self._rules)
            except RenderError:
                again = None
            found = _Marks.of(again.text if again else "")
        if not found.text.startswith(turn.text):
            raise _not_found(turn, "writes it in another way when its parts are marked")
        return [(place, mark) for place, mark in found.places if turn.prompt_end <= place <= len(turn.text)]

    def _parts(self, turn: RenderedTurn, places: Sequence[tuple[int, str]]) -> list[tuple[int, int, Part]]:
        """Return where the parts stand that a turn consists of.

        Raises:
            RenderError: one is missing, is written twice, or stands between the calls or behind them.
        """
        at: dict[Part, list[int]] = {}
        for place, mark in places:
            if mark != _SPAN:
                at.setdefault(_BEGINS.get(mark) or _ENDS[mark], []).append(place)
        has = parts_of(self._sample.messages[turn.message].fields)
        for part in PARTS:
            is_there = bool(at.get(part)) if part == "calls" else len(at.get(part, ())) == 2
            if not is_there and (at.get(part) or (part in has and _DROPPED[part] not in self._may_drop)):
                raise _not_found(turn, f"does not write its {part} once")
        order = sorted(at, key=lambda part: (at[part][0], at[part][-1]))
        if any(at[one][-1] > at[other][0] or one == "calls" for one, other in itertools.pairwise(order)):
            raise _not_found(turn, f"writes its parts in another order: {', '.join(order)}")
        cuts = [turn.prompt_end]
        for one, other in itertools.pairwise(order):
            cuts.append(_end(turn.text, at[one][-1], at[other][0]))
        parts: list[Part] = order or ["text"]
        return [*zip(cuts, [*cuts[1:], len(turn.text)], parts, strict=True)]


def _end(text: str, start: int, end: int) -> int:
    """Return where a part ends that ends with a marker between two places, if there is one."""
    closing = _CLOSES.search(text, start, end)
    return closing.end() if closing else start


def _beside(
    parts: Sequence[tuple[int, int, Part]], spans: Sequence[int], places: Sequence[tuple[int, str]]
) -> list[Range]:
    """Return what no span holds. What stands in front of the text and behind it goes with its first and last letter."""
    ends = {place for place, mark in places if mark in (_OPEN["text"], _CLOSE["text"])}
    masked: list[Range] = []
    for start, end, part in parts:
        if part != "text" or not spans:
            masked.append((start, end))
            continue
        bounds = [start if place == min(ends) else end if place == max(ends) else place for place in spans]
        masked += zip([start, *bounds[1::2]], [*bounds[::2], end], strict=True)
    return masked


def _joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return ranges in order, without empty ones, those that touch as one."""
    joined: list[Range] = []
    for start, end in sorted(each for each in ranges if each[0] < each[1]):
        if joined and start <= joined[-1][1]:
            start, end = joined[-1][0], max(end, joined.pop()[1])  # noqa: PLW2901 - grown
        joined.append((start, end))
    return tuple(joined)


def _not_found(turn: RenderedTurn, how: str) -> RenderError:
    reason = f"messages[{turn.message}]: some parts of this turn are trained, but the template {how}"
    return RenderError(reason, code="part_not_found", message=turn.message)
