"""Reads off a marked rendering, by place, what the definition asks of it: what is lost, where turns begin and end.

A message's *place* is the part of a rendering between its mark and the next. What stands there was written for this
message, so nothing needs to be asked of the template with placeholder words, as the definition does for texts that are
short or occur twice.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from packer.render.clear.extension import (
    Extension,
    Form,
    Headers,
    Kind,
    MarkedTemplate,
    NotClearError,
    Pieces,
    Spelling,
)
from packer.render.conversation import Conversation, changed, changes_of, prints_none
from packer.render.dropped import ConversationLosses
from packer.render.environment import RenderError
from packer.render.readback import ESCAPE, function_of, keys, leaves, spellings
from packer.render.reasoning import LONGEST_TAG, Message, goes_on, reasoning_of
from packer.render.rewritten_history import Mask, RenderedRow, TurnAssigner, encoded
from packer.render.turns import RenderedTurn, TurnRules, terminated

_written = json.JSONEncoder(ensure_ascii=False).encode
"""Writes a value as `tojson` does."""


class Row(NamedTuple):
    """The messages of a row up to the last that is trained. Nothing in them looks like a token or a tag."""

    messages: Sequence[Message]
    texts: Sequence[str]
    """What they say, without white space around it."""

    said: str
    """All texts, and whatever else stands in texts."""

    kind: Kind
    forms: Sequence[Form]
    asked: Sequence[int]
    """As :func:`questions` returns it."""


class Places:
    """The marked rendering of one row, in the form in which the template accepts it."""

    def __init__(
        self,
        marked: MarkedTemplate,
        conversation: Conversation,
        row: Row,
        extension: Extension,
        rules: TurnRules,
    ) -> None:
        self._marked = marked
        self._row = row
        self._extension = extension
        self._rules = rules
        self.conversation = conversation

    def cut(self, trained: Sequence[int], tools: "Tools | None", mask: Mask | None) -> RenderedRow | None:
        """Cut the texts of the row from its rendering; None if anything is not clear.

        Raises:
            RenderError: the template does not take the row, or anything is not clear.
        """
        row, assigner, pieces = self._row, TurnAssigner(self._rules), self.render()
        first = 0
        for k in trained:
            if not all(self.shows(number, pieces) for number in range(first, k)):
                return None
            turn = self.turn(k, pieces, is_last=k == len(row.messages) - 1)
            if turn is None or (len(row.texts[k]) <= LONGEST_TAG and turn.is_blank(self._rules.stops)):
                return None
            if not first and tools is not None and not tools.show(self.conversation, row, turn, self._rules):
                return None
            assigner.add(mask(turn) if mask else turn)
            first = k + 1
        documents = assigner.documents()
        if any(("&" in each.text or "\ufffd" in each.text) and ESCAPE.search(each.text) for each in documents):
            return None
        return RenderedRow(tuple([encoded(each.text, each.turns, masked=each.masked) for each in documents]), 0)

    def render(self) -> Pieces:
        """Render all messages, in the first form that the template accepts, as :func:`renderable` chooses it.

        That function also looks for calls that cannot be read back; those of a clear row can.
        """
        kind, original, end = self._row.kind, self.conversation, len(self._row.messages) - 1
        failure: RenderError | None = None
        for change in changes_of(nulls=kind.nulls, calls=kind.calls):
            tried = self.conversation = changed(original, change)
            try:
                pieces = self._marked.pieces(tried.messages[: end + 1], tried.tools, tried.kwargs)
            except NotClearError:
                raise
            except RenderError as error:
                failure = error
                continue
            if not pieces.notes.words.isdisjoint(self._row.texts):
                raise NotClearError("the template asks for a word that a message says")
            if not kind.nulls or not prints_none(tried, pieces.text, end):
                return pieces
        raise failure or RenderError("the template prints nulls")

    def shows(self, k: int, pieces: Pieces) -> bool:
        """Whether the text and the calls of a message that is context stand in its place."""
        start, end = pieces.places[k] if k else 0, pieces.places[k + 1]
        text = self._row.texts[k]
        if pieces.text.find(text, start, end) < 0 and (
            self._row.messages[k]["role"] != "tool" or pieces.text.find(_written(text)[1:-1], start, end) < 0
        ):
            return False
        return not self._row.forms[k][1] or self._shows_calls(k, pieces.text, start, end)

    def turn(self, k: int, pieces: Pieces, *, is_last: bool) -> RenderedTurn | None:
        """Return the turn of a message; None if anything is not clear, or its text and calls do not stand in it.

        `is_last`: whether the rendering ends with this message.
        """
        headers = self._extension.headers.get(self._row.messages[k - 1]["role"])
        if headers is None:
            return None
        if is_last or self._extension.are_same:
            start, end = pieces.places[k], pieces.places[k + 1]
            whole = pieces.text if is_last else pieces.text[:end] + pieces.ending
        else:
            parts = self._parts(k, pieces)
            if parts is None:
                return None
            whole = "".join(parts)
            end = len(whole)
            start = end - len(parts[-1])
            whole += pieces.ending
        if not whole.startswith(headers.closing, start):
            return None  # the definition has a rule for such turns
        header = self._header(k, headers, whole, start)
        if header is None:
            return None
        prompt_end = start + len(header)
        text = terminated(self.conversation, k, prompt_end, whole, {}, rules=self._rules)
        if not self._shows_own(k, text, (prompt_end, end)):
            return None
        return RenderedTurn(
            message=k,
            text=text,
            prompt_end=prompt_end,
            prompt_ends=tuple([start + len(each) for each in headers.added if text.startswith(each, start)]),
            whole=whole,
            mode={},
        )

    def _parts(self, k: int, pieces: Pieces) -> list[str] | None:
        """Return what stands before the question of a message, and what is written for each message since, up to it."""
        row, openings = self._row, self._extension.openings
        asked = row.asked[k]
        is_current = asked == row.asked[pieces.num_messages - 1]
        parts = [pieces.text[: pieces.places[asked]]]
        for number in range(asked, k + 1):
            part, message = pieces.of(number), row.messages[number]
            if message["role"] == "assistant":
                key = row.messages[number - 1]["role"], row.forms[number], is_current, number == k
                opening = openings.get(key)
                if opening is None or not part.startswith(opening.longer):
                    return None
                if opening.longer != opening.own:
                    if row.texts[number] != (message["content"] or ""):
                        return None  # the white space around it may be cut in one of both only
                    part = opening.own + part[len(opening.longer) :]
            parts.append(part)
        return parts

    def _header(self, k: int, headers: Headers, whole: str, start: int) -> str | None:
        """Return the header of the prompt that a turn continues: the longest, as in the definition.

        That also prefers prompts behind which the turn shows its reasoning as such. But what stands before the
        reasoning is the same for all of them, as long as the template does not say it itself.
        """
        for header in headers.added:
            if not whole.startswith(header, start):
                continue
            if header in headers.asking and not self._row.forms[k][3]:
                return None  # the definition continues the prompt of another mode
            if header not in headers.opening or goes_on(header, whole[start + len(header) :]):
                if self._row.forms[k][3] and self._rules.on_prompt_mismatch == "continue":
                    return None  # the definition may continue another prompt, which opens the reasoning
                return header
        return None

    def _shows_own(self, k: int, turn: str, place: tuple[int, int]) -> bool:
        """Whether text, reasoning and calls of a message stand in what is trained of it: in a place of its turn.

        If the text contains the reasoning, or the other way round, both must stand there.
        """
        text, form = self._row.texts[k], self._row.forms[k]
        reasoning = reasoning_of(self._row.messages[k]) if form[3] else ""
        if text and (turn.find(text, *place) < 0 or (reasoning and turn.count(text, *place) <= reasoning.count(text))):
            return False
        if reasoning and turn.count(reasoning, *place) <= text.count(reasoning):
            return False
        return not form[1] or self._shows_calls(k, turn, *place)

    def _shows_calls(self, k: int, text: str, start: int, end: int) -> bool:
        message, spelling = self._row.messages[k], self._extension.spelling
        reasoning = reasoning_of(message) if self._row.forms[k][3] else ""
        place = _Place(text, start, min(end, len(text)), f"{self._row.texts[k]}\0{reasoning}")
        return all(_shows(call, place, spelling) for call in message["tool_calls"])


class Tools(NamedTuple):
    """The tools of some rows."""

    tools: Sequence[Any]
    are_odd: bool
    are_shown: dict[Kind, bool]
    """Whether rows of a kind show them."""

    def show(self, conversation: Conversation, row: Row, turn: RenderedTurn, rules: TurnRules) -> bool:
        """Whether tools show as JSON that no text of the row holds, or to the definition's check, or may be lost.

        This is found out once for the same tools in rows of a kind.
        """
        if row.kind not in self.are_shown:
            is_shown = all(
                any(each in turn.text and each not in row.said for each in _spellings(tool)) for tool in self.tools
            )
            lost = None if is_shown else ConversationLosses(rules, conversation).tools(turn)
            self.are_shown[row.kind] = lost is None or lost.kind in rules.may_drop
        return self.are_shown[row.kind]


def _spellings(tool: Any) -> Iterator[str]:
    """Yield a tool as JSON in the ways in which templates write it; indented JSON takes ten times as long."""
    for indent in (None, 4):
        for part in (tool, function_of(tool)):
            yield json.dumps(part, ensure_ascii=False, indent=indent)


class _Place(NamedTuple):
    """A part of a rendering in which a call should stand."""

    text: str
    start: int
    end: int
    said: str
    """What else the message says there."""

    def shows(self, part: str) -> bool:
        """Whether a part of a call stands there, beside what else is said."""
        num_said = self.said.count(part)
        if not num_said:
            return self.text.find(part, self.start, self.end) >= 0
        return self.text.count(part, self.start, self.end) > num_said

    def contains(self, part: str) -> bool:
        return self.text.find(part, self.start, self.end) >= 0


def _shows(call: Any, place: _Place, spelling: Spelling | None) -> bool:
    """Whether a call stands in a place: its name, and its arguments."""
    name, values = call["function"]["name"], call["function"]["arguments"]
    if not place.shows(name) or place.contains(f"{name}("):  # it may be written as Python
        return False
    if place.shows(_written(values)):
        return True
    own = None if spelling is None else _spelled(values, place, spelling)
    # What the definition might object to in calls that are written in another way is not clear.
    return (
        own is not None
        and '\\"' not in place.text
        and not any(f"{key}=" in place.text or f"{key} =" in place.text for key in keys(values))
        and all(any(each in own for each in spellings(leaf)) for leaf in (*keys(values), *leaves(values)))
        and all(_written(leaf)[1:-1] == leaf for leaf in leaves(values) if type(leaf) is str)
    )


def _spelled(values: Mapping[str, Any], place: _Place, spelling: Spelling) -> str | None:
    """Return where arguments are written key by key, in their order; None if they are not, or there are none.

    Of a call without arguments only the name is left to look for, which may be part of the name of another call.
    """
    at = place.start
    for key, value in values.items():
        written = (value,) if type(value) is str else (_written(value), "null" if value is None else str(value))
        ends = [_end(f"{key}{spelling.between}{each}{spelling.behind}", place, at) for each in written]
        at = max(ends)
        if at < 0:
            return None
    return place.text[place.start : at] if values else None


def _end(part: str, place: _Place, start: int) -> int:
    """Return where a part ends that stands behind `start` in a place; -1 if it does not."""
    found = place.text.find(part, start, place.end)
    return found if found < 0 else found + len(part)
