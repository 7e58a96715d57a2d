"""Silent loss: what a row says and its rendering does not.

A text counts as rendered when it stands in the rendering, as it is or escaped as JSON. Where that proves nothing (a
short text may stand there by chance, a longer one because another message says it too) or fails (the template may have
reshaped it), the template is asked directly: the item is replaced by a word that occurs nowhere else, and the word must
come out. What a template does to a shape of conversation is asked once and remembered.
"""

import functools
import hashlib
import itertools
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from packer.batches import REASONING_FIELDS
from packer.render.chat import Conversation, RenderedTurn
from packer.render.environment import RenderError
from packer.render.reasoning import ANY_TAG

_SHORT = 12
"""A text of fewer characters may stand in a rendering by chance."""

_MAX_ANSWERS = 4096
"""Answers remembered; an answer is small, but conversations of agents come in endless shapes."""

_FIRST_NUMBER = 9_182_730_000
"""Numbers are replaced by this one and those after it."""

_KINDS = {"system": "system", "developer": "system", "tool": "tool_result"}

Message = Mapping[str, Any]


class Loss(NamedTuple):
    """What is missing: its kind, as in `supervision.allow_dropped`, and its message; the tools belong to none."""

    kind: str
    message: int = -1


@dataclass(frozen=True, slots=True)
class _Item:
    """Something a message says that must be rendered."""

    loss: Loss
    texts: tuple[tuple[str, ...], ...]
    """All must show; each in one of its spellings."""

    rescued: bool = True
    """False where only the text itself counts, not what the template does with a stand-in word."""

    own: bool = False
    """It must show in the completion: what is learned."""

    def shows(self, text: str) -> bool:
        return all(any(_stands_in(spelling, text) for spelling in spellings) for spellings in self.texts)

    def doubtful(self, said: Callable[[str], int]) -> bool:
        """Whether its text may stand in the rendering for another reason; `said` counts how often the row says one."""
        texts = [spellings[0] for spellings in self.texts]
        return self.rescued and any(len(text) < _SHORT or said(text) > 1 for text in texts)


class LossCheck:
    """Finds what templates drop; remembers what they answered for each shape of conversation."""

    def __init__(
        self, allowed: frozenset[str], stops: re.Pattern[str] | None = None, *, thorough: bool = False
    ) -> None:
        """`allowed`: kinds that may be lost; `stops`: matches any stop token; `thorough`: ask about every item."""
        self.allowed = allowed
        self.thorough = thorough
        """For :attr:`found_any` to be complete; made-up words are long and stand alone, and none would be doubtful."""

        self.stops = stops
        self._answers: OrderedDict[tuple[Any, ...], frozenset[Loss]] = OrderedDict()

    @property
    def found_any(self) -> bool:
        """Whether the template was seen to drop something."""
        return any(self._answers.values())

    def of(self, conversation: Conversation) -> "ConversationLosses":
        """The check of one conversation."""
        return ConversationLosses(self, conversation)

    def answer(self, shape: tuple[Any, ...], probe: Callable[[], frozenset[Loss] | None]) -> frozenset[Loss]:
        """The remembered answer for a shape, else the probe's; where the template raises on it, nothing is lost."""
        known = self._answers.get(shape)
        if known is not None:
            self._answers.move_to_end(shape)
            return known
        lost = probe()
        if lost is None:
            return frozenset()  # says something about this row, not about its shape
        self._answers[shape] = lost
        if len(self._answers) > _MAX_ANSWERS:
            self._answers.popitem(last=False)
        return lost


@dataclass
class ConversationLosses:
    """Takes the learned turns of one conversation, in the order of their messages."""

    check: LossCheck
    conversation: Conversation
    _first: int = 0
    _shapes: list[bytes] = field(default_factory=list)
    _replaced: "_Replaced" = field(default_factory=lambda: _Replaced())  # noqa: PLW0108 - defined below

    def find(self, turn: RenderedTurn) -> Loss | None:
        """The first thing that the rendering of `turn` lacks, of the messages since the turn before, and of the tools.

        The tools must show in the first learned turn.
        """
        messages, allowed = self.conversation.messages, self.check.allowed
        opening, first, self._first = self._first == 0, self._first, turn.message + 1
        items = [item for k in range(first, turn.message) for item in _items(messages[k], k, own=None)]
        items += _items(messages[turn.message], turn.message, own=turn)
        lost = self._messages(turn, [item for item in items if item.loss.kind not in allowed], first)
        if lost is None:
            lost = next(
                (part for part in _inline_losses(messages[turn.message], turn) if part.kind not in allowed), None
            )
        if lost is None and opening and self.conversation.tools and "tools" not in allowed:
            lost = self._tools(turn)
        return lost

    def _messages(self, turn: RenderedTurn, items: Sequence[_Item], first: int) -> Loss | None:
        # What stands behind the terminator is not learned: some templates write a call after the stop token of a text.
        probed = functools.cache(lambda: self._replaced.probe(self.conversation, turn, self.check.stops, first=first))
        completion = turn.text[turn.prompt_end :]
        missing = [item for item in items if not item.shows(completion if item.own else turn.text)]
        if missing:
            asked = probed()
            really = [item for item in missing if not item.rescued or asked is None or item.loss in asked]
            if really:
                return really[0].loss
        # Only what is doubtful was ever refused for what the template answers, so of the rest it need not be asked.
        items = [item for item in items if item.rescued and (self.check.thorough or item.doubtful(self._said))]
        if not items:
            return None
        key = ("messages", self._shape(turn.num_messages - 1), first, turn.message, *sorted(turn.mode.items()))
        answer = self.check.answer(key, probed)
        if not any(item.loss in answer for item in items):
            return None
        # A row is refused for what the template does with that row, not for what it did with another of its shape.
        answer = probed() or frozenset()
        lost = [item for item in items if item.loss in answer and item.doubtful(self._said)]
        return lost[0].loss if lost else None

    def _said(self, text: str) -> int:
        """How many values of the messages and the tools hold a text; not less than one."""
        values, together = self._values
        if "\0" not in text and together.count(text) <= 1:
            return 1
        return sum(text in value for value in values)

    @functools.cached_property
    def _values(self) -> tuple[list[str], str]:
        """What the messages and the tools say, and all of it together; reasoning under two names is said once."""
        own = [
            {name: value for name, value in message.items() if name != "thinking" or "reasoning_content" not in message}
            for message in self.conversation.messages
        ]
        values = list(_strings([*own, self.conversation.tools]))
        return values, "\0".join(values)

    def _tools(self, turn: RenderedTurn) -> Loss | None:
        """Names alone prove little: the calls of a conversation hold them too. So the template is always asked."""
        tools = self.conversation.tools or ()
        missing = not all(_stands_in(name, turn.whole) for name in map(_tool_name, tools) if name)
        if missing:
            asked = _probe_tools(self.conversation, turn)
            return Loss("tools") if asked is None or asked else None
        key = ("tools", self._shape(turn.num_messages - 1), *sorted(turn.mode.items()))
        if not self.check.answer(key, lambda: _probe_tools(self.conversation, turn)):
            return None
        return Loss("tools") if _probe_tools(self.conversation, turn) else None

    def _shape(self, k: int) -> bytes:
        """Digest of everything but the words of the conversation up to message k."""
        if not self._shapes:
            tools = [
                sorted(tool) if isinstance(tool, dict) else str(type(tool)) for tool in self.conversation.tools or ()
            ]
            around = repr((tools, self.conversation.kwargs))
            self._shapes.append(hashlib.blake2b(around.encode("utf-8", "surrogatepass"), digest_size=16).digest())
        for number in range(len(self._shapes) - 1, k + 1):
            own = repr(_shape(self.conversation.messages[number])).encode("utf-8", "surrogatepass")
            self._shapes.append(hashlib.blake2b(self._shapes[-1] + own, digest_size=16).digest())
        return self._shapes[k + 1]


def _items(message: Message, number: int, *, own: RenderedTurn | None) -> list[_Item]:
    """What message `number` says. `own`: the rendering ends with this turn, so that its text must show."""
    role, text = message.get("role"), _text(message).strip()
    if role != "assistant":
        return [_Item(Loss(_KINDS.get(str(role), "user"), number), ((text,),))] if text else []
    items = []
    if own and text and not ANY_TAG.search(text):
        items.append(_Item(Loss("content", number), ((text,),), own=True))
    reasoning = next((message[name] for name in REASONING_FIELDS if isinstance(message.get(name), str)), "").strip()
    if own and reasoning:
        # Where packer went on from the prompt, the template was not asked to write the reasoning.
        items.append(_Item(Loss("reasoning", number), ((reasoning,),), rescued=not own.continued, own=True))
    for call in message.get("tool_calls") or ():
        items += _call_items(call, Loss("tool_call", number), own=own is not None)
    return items


def _inline_losses(message: Message, turn: RenderedTurn) -> Iterator[Loss]:
    """Parts of a text with tags of reasoning that do not follow each other in the completion.

    Tags may go and white space around them may; a word in place of a part would say nothing, since templates cut a text
    at its tags.
    """
    text, completion, at = _text(message), turn.text[turn.prompt_end :], 0
    if not ANY_TAG.search(text):
        return
    parts = [part.strip() for part in ANY_TAG.split(text)]
    for i, part in enumerate(parts):
        place = completion.find(part, at)
        if place < 0:
            yield Loss("reasoning" if i < len(parts) - 1 else "content", turn.message)
        else:
            at = place + len(part)


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):  # one part, where the template wants it so
        content = content[0].get("text") if len(content) == 1 and isinstance(content[0], dict) else ""
    return content if isinstance(content, str) else ""


def _call_items(call: Any, loss: Loss, *, own: bool) -> list[_Item]:
    """The name and every value of a call. No word can stand in for true, false or null: their text must show."""
    function = _function(call)
    leaves = list(_leaves(function.get("arguments") or {}))
    worded = [_spellings(leaf) for leaf in leaves if not _is_constant(leaf)]
    constants = tuple(_spellings(leaf) for leaf in leaves if _is_constant(leaf))
    items = [_Item(loss, ((str(function.get("name", "")),), *worded), own=own)]
    return [*items, _Item(loss, constants, rescued=False, own=own)] if constants else items


def _function(call: Any) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, dict) else None
    return function if isinstance(function, dict) else {}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _is_constant(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, bool)


def _spellings(leaf: Any) -> tuple[str, ...]:
    """How templates write a value: as JSON or as Python; a whole number with and without its `.0`."""
    if isinstance(leaf, str):
        return (leaf.strip(),)
    if isinstance(leaf, float) and leaf.is_integer():
        return (json.dumps(leaf), str(int(leaf)))
    return tuple(dict.fromkeys((json.dumps(leaf), str(leaf))))


def _strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _stands_in(part: str, text: str) -> bool:
    if part in text:
        return True
    return json.dumps(part, ensure_ascii=False)[1:-1] in text or json.dumps(part)[1:-1] in text


def _shape(message: Message) -> tuple[Any, ...]:
    calls = message.get("tool_calls") or ()
    return (
        message.get("role"),
        type(message.get("content")).__name__,
        bool(message.get("content")),
        tuple(tuple(type(leaf).__name__ for leaf in _leaves(_function(call).get("arguments") or {})) for call in calls),
        *(bool(message.get(name)) for name in REASONING_FIELDS),
    )


_MANY_WORDS = 64
_STAND_IN = re.compile(r"Zq\d+x+W|\d{6,}")


class _Words:
    """Words and numbers that occur nowhere else, and what each stands for."""

    def __init__(self) -> None:
        self._given: list[tuple[Loss, str]] = []

    def word(self, loss: Loss, text: str = "") -> str:
        """A word for a text, as long as it: a template that cuts texts cuts the word."""
        word = f"Zq{len(self._given)}x"
        self._given.append((loss, f"{word}{'x' * (len(text) - len(word) - 1)}W"))
        return self._given[-1][1]

    def number(self, loss: Loss) -> int:
        number = _FIRST_NUMBER + len(self._given)
        self._given.append((loss, str(number)))
        return number

    def value(self, value: Any, loss: Loss) -> Any:
        """A value of the same form with words and numbers of its own."""
        if isinstance(value, dict):
            return {key: self.value(item, loss) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, loss) for item in value]
        if isinstance(value, str):
            return self.word(loss, value.strip())
        if _is_constant(value):
            return value
        return self.number(loss) if isinstance(value, int) else self.number(loss) + 0.5

    @property
    def num_given(self) -> int:
        return len(self._given)

    def lost(self, text: str, first: int = 0, end: int | None = None) -> frozenset[Loss]:
        """What of some words, or of all, is not in a text."""
        given = self._given[first:end]
        # Of many words one look at a text tells of nearly all.
        shown = set(_STAND_IN.findall(text)) if len(given) > _MANY_WORDS else ()
        return frozenset(loss for loss, stand_in in given if stand_in not in shown and stand_in not in text)


class _Replaced:
    """The messages of a conversation with every item replaced by a word of its own, as far as they were asked for."""

    def __init__(self) -> None:
        self._words = _Words()
        self._messages: list[Message] = []
        self._ends: list[int] = []
        """Words given up to each message."""

    def probe(
        self, conversation: Conversation, turn: RenderedTurn, stops: re.Pattern[str] | None, *, first: int
    ) -> frozenset[Loss] | None:
        """Which items of the messages from `first` to a turn do not come out so; None where the template raises.

        Only what comes out before the terminator counts: as many stop tokens stand before it as before the turn's own.
        """
        for number in range(len(self._messages), turn.num_messages):
            self._messages.append(_replace(conversation.messages[number], number, self._words))
            self._ends.append(self._words.num_given)
        try:
            whole = conversation.render(self._messages[: turn.num_messages], turn.mode)
        except RenderError:
            return None
        words = self._ends[first - 1] if first else 0, self._ends[turn.num_messages - 1]
        if stops is None:
            return self._words.lost(whole, *words)
        num_before = sum(1 for _ in stops.finditer(turn.text, 0, turn.prompt_end))
        terminator = next(itertools.islice(stops.finditer(whole), num_before, None), None)
        return self._words.lost(whole[: terminator.end()] if terminator else whole, *words)


def _replace(message: Message, number: int, words: _Words) -> dict[str, Any]:
    role = message.get("role")
    changed = dict(message)
    if _text(message).strip():
        kind = "content" if role == "assistant" else _KINDS.get(str(role), "user")
        word = words.word(Loss(kind, number), _text(message).strip())
        changed["content"] = word if isinstance(message["content"], str) else [{"type": "text", "text": word}]
    reasoning = [name for name in REASONING_FIELDS if isinstance(message.get(name), str) and message[name].strip()]
    if reasoning:
        changed |= dict.fromkeys(reasoning, words.word(Loss("reasoning", number), message[reasoning[0]].strip()))
    if message.get("tool_calls"):
        loss = Loss("tool_call", number)
        changed["tool_calls"] = [_replace_call(call, loss, words) for call in message["tool_calls"]]
    return changed


def _replace_call(call: Any, loss: Loss, words: _Words) -> Any:
    if not isinstance(call, dict):
        return call
    function = {**_function(call), "name": words.word(loss)}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        function["arguments"] = json.dumps({"value": words.word(loss)})
    elif arguments is not None:
        function["arguments"] = words.value(arguments, loss)
    return {**call, "function": function} if "function" in call else function


def _tool_name(tool: Any) -> str:
    name = _function(tool).get("name")
    return name if isinstance(name, str) else ""


def _probe_tools(conversation: Conversation, turn: RenderedTurn) -> frozenset[Loss] | None:
    """As :meth:`_Replaced.probe`, for the names of the tools."""
    words = _Words()
    renamed = []
    for tool in conversation.tools or ():
        if not _tool_name(tool):
            renamed.append(tool)
            continue
        function = {**_function(tool), "name": words.word(Loss("tools"))}
        renamed.append({**tool, "function": function} if "function" in tool else function)
    probed = Conversation(conversation.template, conversation.messages, tools=renamed, kwargs=conversation.kwargs)
    try:
        return words.lost(probed.render(probed.messages[: turn.num_messages], turn.mode))
    except RenderError:
        return None
