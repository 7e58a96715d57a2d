"""Which characters of turns are trained, if not all of them.

A recipe may train parts of turns (reasoning, text, calls), and a row spans of a text. Then the row is rendered a second
time, with marks at both ends of every reasoning and text, in front of the name of every call, and where spans that the
row names begin and end. Marks stand inside of white space and tags, so that a template strips and splits what it did
before. Without its marks the rendering must be the turn, letter for letter: then the marks are the places, however
often a text occurs. Else the row is rejected.

Each character of a turn belongs to exactly one part. Of what stands between two parts, a marker that closes the first
one and follows it at once belongs to it, and the rest, white space too, to the second. What stands before the first
part, such as an empty block of reasoning, belongs to it, and what follows the last one, with the stop token, to that.
Worked example, with `|` where parts meet:
`<think>⏎I look.⏎</think>|⏎⏎Let me see.|⏎<tool_call>⏎{"name": …}⏎</tool_call><|im_end|>`.
"""

import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from packer.batches import Message, Sample
from packer.recipe.groups import PARTS, Part
from packer.render.conversation import Conversation
from packer.render.environment import RenderError
from packer.render.placeholders import text_of
from packer.render.readback import function_of, strings
from packer.render.reasoning import CLOSING, reasoning_fields, reasoning_of, split_inline
from packer.render.rewritten_history import Range
from packer.render.turns import RenderedTurn, TurnRules, turn_of


def having_parts(trained: Sequence[int], sample: Sample, parts: Collection[Part]) -> list[int]:
    """Return those of the messages that have one of the parts.

    One with spans, which are of its text, has no other.
    """
    own = {k: {"text"} if sample.messages[k].spans else parts_of(sample.messages[k].fields) for k in trained}
    return [k for k, each in own.items() if not each.isdisjoint(parts)]


Mark = Part | Literal["span"]
_NAMES: tuple[Mark, ...] = (*PARTS, "span")
_FIRST_MARK = 0xF1D01
"""Of those for private use, of which few rows have any."""

_CLOSES = re.compile(
    r"\s*(?:<\|close\|>\w+<\|sep\|>|<[|\uff5c](?i:end)[^<>\s]*[|\uff5c]>|</[^<>\s]{1,60}>|\[/[A-Z_]{1,60}\]|"
    rf"{CLOSING.pattern})"
)
"""Matches a marker that closes the part that it follows."""

_ESCAPE = re.compile(r"\\[uU][0-9a-fA-F]+")

Marked = tuple[str, Mapping[Mark, Sequence[int]]]
"""A rendering without its marks, and where each stood in it."""


def parts_of(fields: Mapping[str, Any]) -> set[Part]:
    """Return the parts that a message has."""
    says = reasoning_of(fields), _places(text_of(fields), fields)[1], fields.get("tool_calls")
    return {part for part, said in zip(PARTS, says, strict=True) if said}


def _places(text: str, fields: Mapping[str, Any]) -> tuple[Range | None, Range | None]:
    """Return where the reasoning that a text begins with stands in it, and where the answer, without white space.

    What an unopened tag ends is no reasoning of a message that has some in a field.
    """
    inline = split_inline(text)
    inline = None if inline is not None and not inline.opening and reasoning_fields(fields) else inline
    start, end = len(text) - len((text if inline is None else inline.answer).lstrip()), len(text.rstrip())
    answer = (start, end) if start < end else None
    if inline is None or not inline.reasoning:
        return None, answer
    opened = len(text) - len(text.lstrip()) + len(inline.opening)
    begin = len(text) - len(text[opened:].lstrip())
    return (begin, begin + len(inline.reasoning)), answer


@functools.lru_cache(maxsize=8)
def _escaped(source: str) -> str:
    """Return the characters that the source of a template has as escapes."""
    return "".join(_ESCAPE.findall(source)).encode().decode("unicode_escape", "ignore")


def _marks_of(sample: Sample, source: str) -> dict[Mark, str]:
    """Return a character for each mark, none of which the row has, nor the source of its template."""
    given = [*(each.fields for each in sample.messages), sample.tools or [], sample.template_kwargs]
    said = "".join([*strings(given), source, _escaped(source)])
    free = (chr(each) for each in itertools.count(_FIRST_MARK) if chr(each) not in said)
    return dict(zip(_NAMES, free, strict=False))


def marked(sample: Sample, source: str) -> Sample:
    """Return a sample with marks in the messages of the assistant; `source`: of its template."""
    marks = _marks_of(sample, source)
    messages = [_marked(each, marks) if each.role == "assistant" else each for each in sample.messages]
    return msgspec.structs.replace(sample, messages=tuple(messages))


def _marked(message: Message, marks: Mapping[Mark, str]) -> Message:
    fields = dict(message.fields)
    for name in reasoning_fields(fields):
        inline, value = split_inline(fields[name]), fields[name]
        is_block = inline is not None and not inline.answer
        place = _places(value, {})[0] if is_block else (len(value) - len(value.lstrip()), len(value.rstrip()))
        fields[name] = _with(value, [(each, marks["reasoning"]) for each in place or ()])
    if isinstance(content := fields.get("content"), str):
        reasoning, text = _places(content, fields)
        first, last = text or (0, 0)
        placed = [(each, marks["reasoning"]) for each in reasoning or ()] + [
            (each, marks["text"]) for each in text or ()
        ]
        bounds = [*itertools.chain(*(message.spans or ()))]  # moved out of white space around the text
        bounds = [min(each if content[each:first].strip() else max(each, first), last) for each in bounds]
        fields["content"] = _with(content, [*placed, *((each, marks["span"]) for each in bounds)])
    if fields.get("tool_calls"):
        fields["tool_calls"] = [_marked_call(call, marks["calls"]) for call in fields["tool_calls"]]
    return msgspec.structs.replace(message, fields=fields)


def _with(text: str, marks: Iterable[tuple[int, str]]) -> str:
    for place, mark in sorted(marks, reverse=True):
        text = text[:place] + mark + text[place:]
    return text


def _marked_call(call: Any, mark: str) -> Any:
    function = {**function_of(call), "name": f"{mark}{function_of(call).get('name', '')}"}
    return {**call, "function": function} if "function" in call else {**call, **function}


@dataclass(kw_only=True)
class TrainedParts:
    """Masks what is not trained of the turns of one row, from which nothing is lost but what may be."""

    sample: Sample
    marked: Conversation
    """That of the :func:`marked` sample, in the form in which the row is rendered."""

    rules: TurnRules
    last: int
    """The last trained message."""

    trained: Collection[Part]

    def mask(self, turn: RenderedTurn) -> RenderedTurn:
        """Return the turn with the ranges that are not trained, beside those that it has."""
        if self.sample.messages[turn.message].spans is None and set(self.trained) == set(PARTS):
            return turn  # spans of another message are why the row is here
        places = self._marks_in(turn)
        parts = self._parts(turn, {part: places[part] for part in PARTS if places[part]})
        trained = [(start, end) for start, end, part in parts if part in self.trained]
        if (spans := self.sample.messages[turn.message].spans) is not None:
            if len(places["span"]) != 2 * len(spans):
                raise _not_found(turn, "does not write the ends of its trained spans once")
            # What stands in front of the text and behind it goes with its first and last letter.
            own = [(start, end) for start, end, part in parts if part == "text" and places["span"]]
            ends = dict(zip(places["text"], itertools.chain(*own), strict=False))
            bounds = [ends.get(place, place) for place in places["span"]]
            trained = [*zip(bounds[::2], bounds[1::2], strict=True)]
        bounds = [turn.prompt_end, *itertools.chain(*trained), len(turn.text)]
        masked = [*turn.masked, *zip(bounds[::2], bounds[1::2], strict=True)]
        pairs = itertools.pairwise(sorted({*itertools.chain(*masked)}))
        return turn._replace(
            masked=tuple((a, b) for a, b in pairs if any(start <= a and b <= end for start, end in masked))
        )

    @functools.cached_property
    def _marks(self) -> dict[str, Mark]:
        return {mark: name for name, mark in _marks_of(self.sample, self.marked.template.source).items()}

    @functools.cached_property
    def _whole(self) -> Marked:
        """The rendering of the row, which most turns are the beginnings of."""
        return self._read(lambda: self.marked.render(self.marked.messages[: self.last + 1], {}))

    def _marks_in(self, turn: RenderedTurn) -> Mapping[Mark, Sequence[int]]:
        text, places = self._whole
        if not text.startswith(turn.text):
            text, places = self._read(lambda: getattr(turn_of(self.marked, turn.message, self.rules), "text", ""))
        if not text.startswith(turn.text):
            raise _not_found(turn, "writes it in another way when its parts are marked")
        return {mark: [each for each in at if turn.prompt_end <= each <= len(turn.text)] for mark, at in places.items()}

    def _read(self, render: Callable[[], str]) -> Marked:
        """Return a rendering without its marks; an empty one if the template raises."""
        try:
            pieces = re.split(f"([{''.join(self._marks)}])", render())
        except RenderError:
            pieces = [""]
        places: dict[Mark, list[int]] = {name: [] for name in _NAMES}
        for mark, place in zip(pieces[1::2], itertools.accumulate(map(len, pieces[::2])), strict=False):
            places[self._marks[mark]].append(place)
        return "".join(pieces[::2]), places

    def _parts(self, turn: RenderedTurn, at: Mapping[Part, Sequence[int]]) -> list[tuple[int, int, Part]]:
        """Return where the parts stand that a turn consists of, each up to the next."""
        if lost := [part for part in at if part != "calls" and len(at[part]) != 2]:
            raise _not_found(turn, f"does not write its {lost[0]} once")
        order = sorted(at, key=lambda part: (at[part][0], at[part][-1]))
        if any(at[one][-1] > at[other][0] or one == "calls" for one, other in itertools.pairwise(order)):
            raise _not_found(turn, f"writes its parts in another order: {', '.join(order)}")
        cuts = [turn.prompt_end]
        for one, other in itertools.pairwise(order):
            closing = _CLOSES.match(turn.text, at[one][-1], at[other][0])
            cuts.append(closing.end() if closing else at[one][-1])
        parts: list[Part] = order or ["text"]
        return [*zip(cuts, [*cuts[1:], len(turn.text)], parts, strict=True)]


def _not_found(turn: RenderedTurn, how: str) -> RenderError:
    reason = f"messages[{turn.message}]: some parts of this turn are trained, but the template {how}"
    return RenderError(reason, code="part_not_found", message=turn.message)
