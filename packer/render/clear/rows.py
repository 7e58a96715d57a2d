"""The door of the fast way: decides whether a row is clear, and renders it if it is.

A row is clear if all of the following can be read off its rendering (:mod:`packer.render.clear.places`) or the row:

- Each text stands in the place of its own message. So none is lost, however often a text occurs, and however short it
  is.
- Each call stands there: its name, and its arguments as JSON, or key by key as the template was seen to write them. So
  none is lost or garbled, and none is written as a string within JSON. The tools stand in the rendering as JSON; if a
  template writes them in another way, the definition's own check of tools is made.
- A turn begins with a header that a prompt was seen to add, the longest that fits, and contains a stop token.
- Nothing that the row says looks like a token, a tag of reasoning, the end of a turn under another model, or an escape,
  and no text is one that the template itself may write. So nothing needs to be hidden, refused or excused.

Worked example: `user Hi, assistant Hello, user Bye, assistant Ciao` is rendered once under ChatML, with marks `·`:
`·<|im_start|>user⏎Hi<|im_end|>⏎·<|im_start|>assistant⏎Hello<|im_end|>⏎·…`. `Hello` stands between the second and the
third mark, behind the header `<|im_start|>assistant⏎`, with which the prompt ends; the turn ends with the first stop
token behind that.
"""

import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from packer.batches import REASONING_FIELDS
from packer.literals import longest_of
from packer.render.clear.extension import (
    MARK,
    Extension,
    Kind,
    MarkedTemplate,
    Message,
    ends_of_questions,
    form_of,
    neighbors,
    size_of,
)
from packer.render.clear.places import Places, Row, arguments_form
from packer.render.clear.trial import rounds_of, tried
from packer.render.control import FOREIGN_ENDS
from packer.render.conversation import Conversation, RenderedTurn, TurnRules
from packer.render.dropped import LossCheck
from packer.render.environment import ChatTemplate, RenderError
from packer.render.readback import ESCAPE, function_of
from packer.render.reasoning import TAGS, reasoning_fields
from packer.render.rewritten_history import HistoryRewrite, RenderedRow, TurnAssigner, encoded
from packer.render.tagged_calls import tags_in

WORTH_A_TRIAL = 4
"""Number of chats that take about as long to render as the trial of their kind."""

_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", *REASONING_FIELDS})
"""Fields of clear messages; a template may do anything with others."""

_REASONING = frozenset(REASONING_FIELDS)
_PRIVATE = "\ue0f0\ue0f1\ue0f2\ue0f3\ue0f4" + MARK
_LONG = 1000
"""Texts of this many characters are not part of a template."""

_MOST_KEPT = 1000


class ClearRows:
    """Renders clear rows with one template under one recipe."""

    def __init__(
        self,
        template: ChatTemplate,
        *,
        rules: TurnRules,
        control: Iterable[str],
        history_rewrite: HistoryRewrite,
        max_bytes: int,
        marks: str,
    ) -> None:
        """`control`: control tokens, and other texts that no clear row says; `marks`: as in :class:`LossCheck`."""
        self._marked = MarkedTemplate(template)
        self._rules = rules
        self._history_rewrite = history_rewrite
        self.max_bytes = max_bytes
        self._marks = marks
        self.odd = tuple({*control, *FOREIGN_ENDS, *(tag for pair in TAGS for tag in pair), *_PRIVATE})
        """What no text of a clear row contains."""

        self._odd = re.compile(longest_of(self.odd))
        self._openings = tuple({odd[:2] for odd in self.odd})
        self._num_rows = 0
        self._num_seen: dict[Any, int] = {}
        self.last_sought: set[str] = set()
        """What the template looked for in the texts of the last row."""

        self._extensions: dict[Any, Extension | None] = {}
        self._tools: dict[tuple[str, Kind], tuple[tuple[str, ...], ...] | bool | None] = {}

    @functools.cached_property
    def are_possible(self) -> bool:
        """Whether any row may be clear."""
        marked = self._marked
        return self._rules.stops is not None and marked.constants is not None and not marked.plain.takes_only_parts

    def rendered(
        self, conversation: Conversation, weights: Mapping[int, float], *, at_once: bool = False
    ) -> RenderedRow | None:
        """Return a row as the definition renders it, all messages in `weights` trained; None if it is not clear.

        Nor are the first few rows, for which compiling and trying the template would take longer, unless `at_once`.
        """
        self._num_rows += 1
        if not (at_once or self._num_rows >= WORTH_A_TRIAL) or not self.are_possible:
            return None
        row = self._read(conversation, max(weights))
        extension = self._extension(row.kind, conversation.kwargs, at_once=at_once) if row else None
        if row is None or extension is None or not self._is_known(row, extension):
            return None
        places = Places(self._marked, conversation, row, extension, self._rules)
        try:
            return self._cut(places, row, extension, weights)
        except RenderError:
            return None
        finally:
            self.last_sought = places.sought | extension.sought

    def _extension(self, kind: Kind, kwargs: Mapping[str, Any], *, at_once: bool) -> Extension | None:
        key = (kind, repr(kwargs)) if kwargs else kind
        if key not in self._extensions:
            num_seen = self._num_seen[key] = self._num_seen.get(key, 0) + 1
            # A trial renders a conversation for each pair of rounds.
            if not (at_once or num_seen >= WORTH_A_TRIAL * max(1, len(rounds_of(kind)) ** 2 // 8)):
                return None
            self._extensions[key] = tried(self._marked, kind, kwargs)
        return self._extensions[key]

    def _is_known(self, row: Row, extension: Extension) -> bool:
        """Whether a row is built as those of the trial, and its texts have nothing that is sought in them."""
        if any(each in row.said for each in extension.sought):
            return False
        return neighbors([form_of(message) for message in row.messages]) <= extension.neighbors

    def is_odd(self, said: str) -> bool:
        """Whether a text contains a token, a tag or the like."""
        return any(opening in said for opening in self._openings) and self._odd.search(said) is not None

    def is_own(self, text: str) -> bool:
        """Whether the template neither asks for a text nor says it; there is no white space around the text."""
        constants = self._marked.constants
        assert constants is not None
        return text not in constants and (len(text) >= _LONG or text not in self._marks)

    def _read(self, conversation: Conversation, last: int) -> Row | None:
        """Return the messages of a row up to the last that is trained; None if one of them is not clear."""
        messages = conversation.messages[: last + 1]
        texts: list[str] = []
        said: list[str] = []
        calls: list[Any] = []
        reasoning: dict[str, None] = {}
        blanks: set[str | None] = set()
        num_calls = 0
        for message in messages:
            text = message.get("content")
            own = message.get("tool_calls")
            if own and not text:
                blanks.add(text)
                text = text or ""
            if type(text) is not str:
                return None
            said.append(text)
            text = text.strip()
            texts.append(text)
            if (len(message) > 2 or not text) and not self._is_clear(message, text):
                return None
            if own:
                calls += own
                num_calls = max(num_calls, len(own))
            for name in () if _REASONING.isdisjoint(message) else reasoning_fields(message):
                reasoning[name] = None
                said.append(message[name])
            if text and (text == message["role"] or text == message.get("name") or not self.is_own(text)):
                return None
        forms = [arguments_form(call) for call in calls]
        form = forms[0] if forms else ""
        if form is None or any(each != form for each in forms) or len(blanks) > 1:
            return None
        joined = "\0".join(said)
        kind = Kind(
            tools=bool(conversation.tools),
            system="" if messages[0]["role"] in ("user", "assistant") else messages[0]["role"],
            calls=form,
            several=num_calls > 1,
            nulls=None in blanks,
            reasoning=tuple(reasoning),
            size=size_of(len(messages)),
        )
        others = [calls, conversation.kwargs, conversation.messages[last + 1 :]]
        if calls and tags_in(calls, self._marks):
            return None
        is_odd = self.is_odd(joined) or (any(others) and self._is_odd_data(others))
        return None if is_odd else Row(messages, texts, joined, kind)

    def _is_clear(self, message: Message, text: str) -> bool:
        """Whether a message has fields with a known meaning alone, and says something."""
        says = bool(text or message.get("tool_calls") or message["role"] == "tool")
        return says and _FIELDS.issuperset(message)

    def _is_odd_data(self, data: Any) -> bool:
        try:
            return self.is_odd(json.dumps(data, ensure_ascii=False))
        except (TypeError, ValueError):
            return True

    def _cut(self, places: Places, row: Row, extension: Extension, weights: Mapping[int, float]) -> RenderedRow | None:
        """Cut the texts of a row from its renderings."""
        wanted = sorted(weights)
        last = wanted[-1]
        ends = wanted if extension.reach == "turn" else [last]
        if extension.reach == "question":
            ends = ends_of_questions(row.messages, wanted)
        assigner = TurnAssigner(
            history_rewrite=self._history_rewrite, stops=self._rules.stops, max_bytes=self.max_bytes
        )
        whole = places.render_all()
        if len(whole.text) * 8 > self.max_bytes:
            return None
        begin = first = 0
        for end in ends:
            pieces = whole if end == last else places.render(end)
            for k in wanted[begin : wanted.index(end, begin) + 1]:
                if not all(places.shows(number, pieces) for number in range(first, k)):
                    return None
                turn = places.turn(k, weights[k], pieces, is_last=k == end)
                if turn is None or turn.is_blank(self._rules.stops):
                    return None
                if not first and not self._shows_tools(places.conversation, row, turn):
                    return None
                assigner.add(turn)
                first = k + 1
                begin += 1
        documents = assigner.documents()
        if any(("&" in each.text or "\ufffd" in each.text) and ESCAPE.search(each.text) for each in documents):
            return None
        return RenderedRow(tuple([encoded(each.text, each.turns) for each in documents]), 0)

    def _shows_tools(self, conversation: Conversation, row: Row, turn: RenderedTurn) -> bool:
        """Whether a turn shows the tools: as JSON, which no text of the row is, or to the definition's own check.

        That check is made once for the same tools in rows of a kind.
        """
        if not conversation.tools:
            return True
        kind = row.kind._replace(size=0)
        try:
            key = json.dumps(conversation.tools, ensure_ascii=False), kind
        except (TypeError, ValueError):
            return False
        if key not in self._tools:
            if len(self._tools) >= _MOST_KEPT:
                self._tools.clear()
            self._tools[key] = None if self.is_odd(key[0]) else tuple([_spellings(tool) for tool in conversation.tools])
        known = self._tools[key]
        if isinstance(known, tuple):
            if all(any(each in turn.text and each not in row.said for each in spellings) for spellings in known):
                return True
            losses = LossCheck(frozenset(), self._rules.stops, marks=self._marks).of(conversation)
            known = self._tools[key] = losses.tools(turn) is None
        return bool(known)


def _spellings(tool: Any) -> tuple[str, ...]:
    """Return a tool as JSON in the ways in which templates write it."""
    return tuple(
        json.dumps(part, ensure_ascii=False, indent=indent)
        for part in (tool, function_of(tool))
        for indent in (None, 4)
    )
