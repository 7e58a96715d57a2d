"""A conversation with every item replaced by a word of its own: what a template writes of it shows what it drops."""

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from packer.batches import REASONING_FIELDS
from packer.render.conversation import Conversation, RenderedTurn
from packer.render.environment import RenderError
from packer.render.readback import arguments_of, function_of

_FIRST_NUMBER = 9_182_730_000
"""Numbers are replaced by this one and those after it."""

KINDS = {"system": "system", "developer": "system", "tool": "tool_result"}

Message = Mapping[str, Any]


class Loss(NamedTuple):
    """What is missing: its kind, as in `supervision.allow_dropped`, and its message; the tools belong to none."""

    kind: str
    message: int = -1


def text_of(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):  # one part, where the template wants it so
        content = content[0].get("text") if len(content) == 1 and isinstance(content[0], dict) else ""
    return content if isinstance(content, str) else ""


def is_constant(leaf: Any) -> bool:
    """Whether no word can stand in for a value: true, false and null."""
    return leaf is None or isinstance(leaf, bool)


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
        if is_constant(value):
            return value
        return self.number(loss) if isinstance(value, int) else self.number(loss) + 0.5

    @property
    def num_given(self) -> int:
        return len(self._given)

    def lost(self, text: str, first: int = 0, end: int | None = None) -> frozenset[Loss]:
        """What of some words, or of all, is not in a text."""
        lost: set[Loss] = set()
        place = 0
        for loss, stand_in in self._given[first:end]:
            found = text.find(stand_in, place)  # they nearly always follow each other
            place = text.find(stand_in) if found < 0 else found
            if place < 0:
                lost.add(loss)
                place = 0
        return frozenset(lost)


class Placeholders:
    """The messages of a conversation with every item replaced by a word of its own, as far as they were asked for."""

    def __init__(self) -> None:
        self._words = _Words()
        self._messages: list[Message] = []
        self._ends: list[int] = []
        """Words given up to each message."""

    def probe(
        self, conversation: Conversation, turn: RenderedTurn, stops: re.Pattern[str] | None, *, first: int
    ) -> frozenset[Loss] | None:
        """The items of the messages from `first` to a turn that the rendering lacks; None if the template raises.

        Text after the turn's terminator does not count. The terminator is the stop token after as many others as the
        turn's prompt holds.
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
    if text_of(message).strip():
        kind = "content" if role == "assistant" else KINDS.get(str(role), "user")
        word = words.word(Loss(kind, number), text_of(message).strip())
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
    function = {**function_of(call), "name": words.word(loss)}
    if "arguments" in function:
        values = words.value(arguments_of(call), loss)
        is_text = isinstance(function["arguments"], str)
        function["arguments"] = json.dumps(values, ensure_ascii=False) if is_text else values
    return {**call, "function": function} if "function" in call else function


def tool_name(tool: Any) -> str:
    name = function_of(tool).get("name")
    return name if isinstance(name, str) else ""


def probe_tools(conversation: Conversation, turn: RenderedTurn) -> frozenset[Loss] | None:
    """As :meth:`Placeholders.probe`, for the names of the tools."""
    words = _Words()
    renamed = []
    for tool in conversation.tools or ():
        if not tool_name(tool):
            renamed.append(tool)
            continue
        function = {**function_of(tool), "name": words.word(Loss("tools"))}
        renamed.append({**tool, "function": function} if "function" in tool else function)
    probed = Conversation(conversation.template, conversation.messages, tools=renamed, kwargs=conversation.kwargs)
    try:
        return words.lost(probed.render(probed.messages[: turn.num_messages], turn.mode))
    except RenderError:
        return None
