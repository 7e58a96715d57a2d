"""The door of the fast way: decides whether a row is clear, and renders it if it is.

A row is clear if all of the following can be read off its rendering (:mod:`packer.render.clear.places`) or the row:

- Each text stands in the place of its own message, beside what else that message says there. So none is lost, however
  often a text occurs, and however short it is.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from packer.batches import REASONING_FIELDS, Rejection, Sample
from packer.literals import finder
from packer.render.clear.extension import (
    MARK,
    Extension,
    Kind,
    MarkedTemplate,
    form_of,
    neighbors,
    questions,
    size_of,
)
from packer.render.clear.places import Places, Row, Tools
from packer.render.clear.trial import tried
from packer.render.control import FOREIGN_ENDS, FOREIGN_MARKS
from packer.render.conversation import Conversation
from packer.render.environment import ChatTemplate, RenderError
from packer.render.readback import function_of, tags_in
from packer.render.reasoning import Message, has_tag, reasoning_fields
from packer.render.rewritten_history import Mask, RenderedRow
from packer.render.turns import TurnRules

COMPARE_EVERY = 128
"""One row in this many, including the first of each batch, is compared."""

_NOBODY = -1
_NONE: frozenset[Any] = frozenset()

Define: TypeAlias = Callable[[Sample], RenderedRow | Rejection]
FastWay: TypeAlias = Callable[[Sample], RenderedRow | Rejection | None]


WORTH_A_TRIAL = 50
"""A trial takes so many times its pairs of rounds; a row, the square of its messages."""

_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", *REASONING_FIELDS})
"""Fields of clear messages; a template may do anything with others."""

_REASONING = frozenset(REASONING_FIELDS)
_SAID = frozenset({"content", *REASONING_FIELDS})
_PRIVATE = "\ue0f0\ue0f1\ue0f2\ue0f3" + MARK
_LONG = 1000
"""Texts of this many characters are not part of a template."""

_MOST_BYTES = 2**20
"""Of tools that are kept, as JSON."""


class ClearRows:
    """Renders clear rows with one template under one recipe."""

    def __init__(
        self,
        template: ChatTemplate,
        *,
        rules: TurnRules,
        control: Iterable[str],
    ) -> None:
        """`control`: control tokens, and other texts that no clear row says."""
        self.marked = MarkedTemplate(template)
        self.rules = rules
        self.odd = tuple({*control, *FOREIGN_ENDS, *FOREIGN_MARKS, *_PRIVATE})
        """What no text of a clear row contains, beside tags of reasoning."""

        self._contains_odd = finder(self.odd)
        self._seen: dict[Any, int] = {}
        self._extensions: dict[Any, Extension | None] = {}
        self._tools: dict[bytes, Tools] = {}

    @functools.cached_property
    def are_possible(self) -> bool:
        """Whether any row may be clear."""
        marked = self.marked
        return self.rules.stops is not None and marked.constants is not None and not marked.plain.takes_only_parts

    @functools.cached_property
    def _is_usual(self) -> bool:
        """Whether the template takes reasoning in fields, and knows no word for an answer without."""
        return self.marked.plain.reasoning.change is None and not self.marked.plain.switches.none

    def rendered(
        self,
        conversation: Conversation,
        trained: Sequence[int],
        *,
        mask: Mask | None = None,
    ) -> RenderedRow | None:
        """Return a row as the definition renders it, all messages in `trained` trained; None if it is not clear.

        No row is that the template does not write whole. Nor are the first few, for which a trial would take longer.
        """
        if not self.are_possible:
            return None
        tools = self._shared(conversation)
        row = self._read(conversation, trained[-1])
        if row is None or (tools is not None and tools.are_odd):
            return None
        extension = self._extension(row.kind, conversation.kwargs, len(row.messages) ** 2)
        if extension is None or not neighbors(row.forms) <= extension.neighbors:
            return None
        if any(each in row.said for each in extension.sought):
            return None
        try:
            return Places(self.marked, conversation, row, extension, self.rules).cut(trained, tools, mask)
        except RenderError:
            return None

    def _extension(self, kind: Kind, kwargs: Mapping[str, Any], worth: int) -> Extension | None:
        """Return what a trial of a kind finds, once rows worth one were seen; `worth`: that of this row."""
        key = (kind, repr(kwargs)) if kwargs else kind
        if key not in self._extensions:
            seen = self._seen[key] = self._seen.get(key, 0) + worth
            if seen < WORTH_A_TRIAL * len(kind.rounds) ** 2:
                return None
            self._extensions[key] = tried(self.marked, kind, kwargs)
        return self._extensions[key]

    def includes_constant(self, said: str) -> bool:
        """Whether any of several texts, joined by null characters, is one that the template compares texts with.

        White space around texts, and their case, make no difference.
        """
        assert self.marked.constants is not None
        return not self.marked.constants.isdisjoint(map(str.strip, said.casefold().split("\0")))

    def _is_distinct(self, message: Message, text: str) -> bool:
        """Whether what a message says, without white space around it, is no part of the template or of other fields."""
        if len(text) < _LONG and text in self.rules.marks:
            return False
        for name, value in message.items():
            if name not in _SAID and text in (value if type(value) is str else json.dumps(value, ensure_ascii=False)):
                return False
        return True

    def _read(self, conversation: Conversation, last: int) -> Row | None:
        """Return the messages of a row up to the last that is trained; None if one of them is not clear."""
        messages = conversation.messages[: last + 1]
        texts: list[str] = []
        said: list[str] = []
        reasoning: dict[str, None] = {}
        blanks: set[str | None] = set()
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
            if len(message) > 2 and not _FIELDS.issuperset(message):
                return None
            for name in () if _REASONING.isdisjoint(message) else reasoning_fields(message):
                if not self._is_usual:
                    return None
                reasoning[name] = None
                said.append(message[name])
                if not self._is_distinct(message, message[name].strip()):
                    return None
            if text and not self._is_distinct(message, text):
                return None
        joined = "\0".join(said)
        calls = [call for message in messages for call in message.get("tool_calls") or ()]
        if len(blanks) > 1 or self._are_odd(joined, calls, conversation.messages[last + 1 :]):
            return None
        forms_of = [form_of(message) for message in messages]
        roles = [role for role, *_ in forms_of]
        kind = Kind(
            tools=bool(conversation.tools),
            system="" if roles[0] in ("user", "assistant") else roles[0],
            calls=bool(calls),
            several=any(num_calls > 1 for _, num_calls, *_ in forms_of),
            nulls=None in blanks,
            reasoning=tuple(reasoning),
            is_single="user" not in roles[roles.index("assistant") :],
            size=size_of(len(messages)),
        )
        return Row(messages, texts, joined, kind, forms_of, questions(messages))

    def is_odd(self, said: str) -> bool:
        """Whether a text contains a token, a tag or the like."""
        return self._contains_odd(said) or has_tag(said)

    def _are_odd(self, said: str, calls: Sequence[Any], others: Sequence[Any]) -> bool:
        """Whether texts of a row, its calls or other messages contain a token or the like, or what is compared."""
        if self.includes_constant(said) or self.is_odd(said) or not all(map(is_usual, calls)):
            return True
        try:
            written = msgspec.json.encode((calls, others)).decode() if calls or others else ""
        except (TypeError, ValueError):
            return True
        return self.is_odd(written) or ("</" in written and bool(tags_in(calls, self.rules.marks)))

    def _shared(self, conversation: Conversation) -> Tools | None:
        """Give a conversation the tools of an earlier one that has the same: what is known of them is known of it."""
        tools = conversation.tools
        if tools is None:
            return None
        try:
            key = msgspec.json.encode(tools)
            known = self._tools.get(key)
            if known is None or (b"null" in key and known.tools != tools):  # to JSON, a NaN is a null
                known = Tools(tools, self.is_odd(key.decode()), {})
        except (TypeError, ValueError):
            return Tools(tools, True, {})
        if key not in self._tools and len(key) < _MOST_BYTES:
            if sum(map(len, self._tools)) > _MOST_BYTES:
                self._tools.clear()
            self._tools[key] = known
        conversation.tools = known.tools
        return known


def is_usual(call: Any) -> bool:
    """Whether a call has a name, and arguments as values, as those of rows that were read have."""
    function = call.get("function") if type(call) is dict else None
    if type(function) is not dict or type(function.get("name")) is not str or not function["name"]:
        return False
    return type(function.get("arguments")) is dict


class DifferenceError(Exception):
    """The fast way and the definition render a row differently."""


class ComparedRows:
    """Renders the rows of one batch, by the fast way where it is known to be right."""

    def __init__(self, fill: FastWay, cut: FastWay, define: Define) -> None:
        """`fill` and `cut`: the two fast ways; `define`: the definition."""
        self._fill = fill
        self._cut = cut
        self._define = define
        self._trusted: set[Any] = set()
        self._refused: set[Any] = set()
        self._numbers: dict[tuple[Any, ...], int] = {}

    def rendered(self, number: int, sample: Sample) -> RenderedRow | Rejection:
        """Render a sample of the batch.

        Raises:
            DifferenceError: the row differs, although all its neighbors were trusted.
        """
        if sample.kind != "chat":
            return self._define(sample)
        row: RenderedRow | Rejection | None = self._fill(sample)
        neighbors = _NONE
        if row is None:
            neighbors = self._neighbors(sample)
            row = self._cut(sample) if self._refused.isdisjoint(neighbors) else None
            if row is None:
                return self._define(sample)
        is_known = neighbors <= self._trusted
        if is_known and number % COMPARE_EVERY:
            return row
        defined = self._define(sample)
        if row == defined:
            self._trusted |= neighbors
        elif is_known:
            raise DifferenceError
        else:
            self._refused |= neighbors - self._trusted
        return defined

    def _neighbors(self, sample: Sample) -> frozenset[Any]:
        """Return what the messages are, each with those before and behind it, and what else may matter of the row."""
        numbers = self._numbers
        found = [_kind(each.fields, trained=each.trained) for each in sample.messages]
        kinds = [numbers.setdefault(kind, len(numbers)) for kind in found]
        around = zip([_NOBODY, *kinds[:-1]], kinds, [*kinds[1:], _NOBODY], strict=True)
        return frozenset([bool(sample.tools), *sample.template_kwargs, *around])


def _kind(fields: Message, *, trained: bool | None) -> tuple[Any, ...]:
    plain = fields["role"], bool(fields.get("content")), trained
    if len(fields) == 2:  # nearly always
        return plain
    calls = fields.get("tool_calls") or ()
    return *plain, min(len(calls), 2), bool(calls and function_of(calls[0]).get("arguments")), *fields
