"""Probes a template with changed conversations, most of which have unique words in place of what a row says.

A word that does not show is a dropped item. Closing tags behind words in place of a call's values are the template's
own: if the rendering of the row itself has more of them, the values contain some.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from packer.batches import tool_parameters
from packer.render.call_ids import NAMED, named_id
from packer.render.conversation import Conversation
from packer.render.readback import arguments_of, function_of, keys, tags_in
from packer.render.reasoning import Message, reasoning_fields
from packer.render.turns import RenderedTurn

_FIRST_NUMBER = 9_182_730_000
"""Numbers are replaced by this one and its successors."""

_OF_PARAMETERS = re.compile(r"param|args|argument|input|propert|\Aschema\Z", re.IGNORECASE)
"""In names of keys under which tools have parameters; what a tool returns, under `returns`, may be left out."""

KINDS = {"system": "system", "developer": "system", "tool": "tool_result"}
"""Role → kind of what is lost of its content; `content` of an assistant's, `user` of any other."""


class Loss(NamedTuple):
    """Something missing: its kind, as in `supervision.allow_dropped`, and the number of its message; -1 for tools."""

    kind: str
    message: int = -1
    how: str = ""
    """What the template does with it, if it does not just leave it out."""


def texts_of(message: Message) -> list[str]:
    """Return the texts of a message: one, or those between its images, if it has any."""
    content = message.get("content")
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return [content] if isinstance(content, str) else []


def text_of(message: Message) -> str:
    return "".join(texts_of(message))


def is_constant(leaf: Any) -> bool:
    """Whether no placeholder can replace a value: true, false and null."""
    return leaf is None or isinstance(leaf, bool)


class _Words:
    """Issues words and numbers that occur nowhere else, and records the item each one replaces."""

    def __init__(self) -> None:
        self.given: list[tuple[Loss, str]] = []

    def word(self, loss: Loss, text: str = "") -> str:
        """Return a new word, as long as the text it replaces: a template that truncates texts truncates it, too."""
        word = f"Zq{len(self.given)}x"
        self.given.append((loss, f"{word}{'x' * (len(text) - len(word) - 1)}W"))
        return self.given[-1][1]

    def number(self, loss: Loss) -> int:
        number = _FIRST_NUMBER + len(self.given)
        self.given.append((loss, str(number)))
        return number

    def value(self, value: Any, loss: Loss) -> Any:
        """Return a copy of a value in which words and numbers are replaced."""
        if isinstance(value, dict):
            return {key: self.value(item, loss) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, loss) for item in value]
        if isinstance(value, str):
            return self.word(loss, value.strip())
        if is_constant(value):
            return value
        return self.number(loss) if isinstance(value, int) else self.number(loss) + 0.5

    def lost(self, text: str, first: int = 0, end: int | None = None) -> frozenset[Loss]:
        """Return the items whose words (all, or those from `first` to `end`) are missing from a text."""
        lost: set[Loss] = set()
        place = 0
        for loss, stand_in in self.given[first:end]:
            found = text.find(stand_in, place)  # nearly always in order
            place = text.find(stand_in) if found < 0 else found
            if place < 0:
                lost.add(loss)
                place = 0
        return frozenset(lost)


class Placeholders:
    """A copy of a conversation with placeholders for all items, made message by message on demand."""

    def __init__(self) -> None:
        self._words = _Words()
        self._messages: list[Message] = []
        self._ends: list[int] = []
        """Number of words issued up to and including each message."""

    def probe(
        self, conversation: Conversation, turn: RenderedTurn, stops: re.Pattern[str] | None, *, first: int
    ) -> frozenset[Loss] | None:
        """Return the items that the rendering lacks, from message `first` to the turn's; None if the template raises.

        Text after the turn's terminator does not count. The terminator is found by counting: as many stop tokens
        precede it as the turn's own prompt contains.
        """
        for number in range(len(self._messages), turn.message + 1):
            self._messages.append(_replace(conversation.messages[number], number, self._words))
            self._ends.append(len(self._words.given))
        whole = conversation.attempt(self._messages[: turn.message + 1], turn.mode)
        prompt = _own_prompt(conversation, self._messages, turn)
        if whole is None or (prompt is None and turn.continued):
            return None
        begin = self._ends[first - 1] if first else 0
        context = self._ends[turn.message - 1] if turn.message else 0
        own = begin if prompt is None else max(begin, context)  # words before it are sought in the prompt
        lost = self._words.lost(prompt, begin, own) if prompt is not None else frozenset()
        if stops is not None:
            num_before = sum(1 for _ in stops.finditer(turn.text, 0, turn.prompt_end))
            terminator = next(itertools.islice(stops.finditer(whole), num_before, None), None)
            whole = whole[: terminator.end()] if terminator else whole
        return lost | self._words.lost(whole, own, self._ends[turn.message])


def _replace(message: Message, number: int, words: _Words) -> dict[str, Any]:
    role = message.get("role")
    changed = dict(message)
    if text_of(message).strip():
        kind = "content" if role == "assistant" else KINDS.get(str(role), "user")
        word = words.word(Loss(kind, number), text_of(message).strip())
        changed["content"] = word if isinstance(message["content"], str) else [{"type": "text", "text": word}]
    if reasoning := reasoning_fields(message):
        changed |= dict.fromkeys(reasoning, words.word(Loss("reasoning", number), message[reasoning[0]].strip()))
    if message.get("tool_calls"):
        loss = Loss("tool_call", number)
        changed["tool_calls"] = [_replace_call(call, loss, words) for call in message["tool_calls"]]
    return changed


def _replace_call(call: Any, loss: Loss, words: _Words) -> Any:
    if not isinstance(call, dict):
        return call
    named = function_of(call)
    function = {**named, "name": words.word(loss)}
    if (found := NAMED.fullmatch(str(call.get("id")))) and found["name"] == named.get("name"):
        call = {**call, "id": named_id(function["name"], int(found["number"]))}  # some templates write it alone
    if "arguments" in function:
        values = words.value(arguments_of(call), loss)
        is_text = isinstance(function["arguments"], str)
        function["arguments"] = json.dumps(values, ensure_ascii=False) if is_text else values
    return {**call, "function": function} if "function" in call else function


def tool_name(tool: Any) -> str:
    name = function_of(tool).get("name")
    return name if isinstance(name, str) else ""


def probe_tools(conversation: Conversation, turn: RenderedTurn) -> frozenset[Loss] | None:
    """Probe for the names of the tools and of their parameters, as :meth:`Placeholders.probe` does for messages.

    Calls keep the names that the row has, so that a call does not pass for the definition of its tool.
    """
    words = _Words()
    renamed = []
    for tool in conversation.tools or ():
        if not tool_name(tool):
            renamed.append(tool)
            continue
        function = {**_parameters_renamed(function_of(tool), words), "name": words.word(Loss("tools"))}
        renamed.append({**tool, "function": function} if "function" in tool else function)
    probed = replace(conversation, tools=renamed)
    if turn.continued:
        shown = _own_prompt(probed, probed.messages, turn)
    else:
        shown = probed.attempt(probed.messages[: turn.message + 1], turn.mode)
    return None if shown is None else words.lost(shown)


def _parameters_renamed(function: Mapping[str, Any], words: _Words) -> Mapping[str, Any]:
    known = tool_parameters(function)
    if known is None:  # they may stand under another key, or in a list
        named = {key: value for key, value in function.items() if _OF_PARAMETERS.search(key)}
        return {**function, **{key: _renamed_elsewhere(value, words) for key, value in named.items()}}
    names = {name: words.word(Loss("tools")) for name in known}
    if not names:
        return function
    schema = dict(function["parameters"])
    properties = {names[name]: value for name, value in schema.get("properties", schema).items()}
    if "properties" not in schema:
        return {**function, "parameters": properties}
    schema["properties"] = properties
    if isinstance(schema.get("required"), list):
        schema["required"] = [names.get(name, name) if isinstance(name, str) else name for name in schema["required"]]
    return {**function, "parameters": schema}


def _renamed_elsewhere(value: Any, words: _Words) -> Any:
    """Return an object of parameters, or a list of named ones, with words for their names; anything else as it is."""
    if isinstance(value, dict) and tool_parameters({"parameters": value}):
        return _parameters_renamed({"parameters": value}, words)["parameters"]
    if isinstance(value, list) and all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in value):
        return [{**each, "name": words.word(Loss("tools"))} for each in value]
    return value


def _own_prompt(conversation: Conversation, messages: Sequence[Message], turn: RenderedTurn) -> str | None:
    """Return the prompt of a turn that was continued from it: the rendering of the turn may have another context."""
    return conversation.attempt(messages[: turn.message], turn.mode, prompt=True) if turn.continued else None


def tag_that_cuts(conversation: Conversation, turn: RenderedTurn, marks: str) -> str | None:
    """Return a tag that values of a turn's calls hold, and with which the template closes them, or None.

    Some templates write the texts of arguments as they are: `<parameter=text>⏎…⏎</parameter>`. A server reads up to the
    first closing tag. A text that holds such a tag itself ends there, and becomes another argument, or no call at all.
    """
    messages, k = conversation.messages[: turn.message + 1], turn.message
    calls = messages[k].get("tool_calls") or ()
    tags = tags_in([arguments_of(call) for call in calls], marks)
    if not tags:
        return None
    own, words = conversation.attempt(messages, turn.mode), _Words()
    messages[k] = {**messages[k], "tool_calls": [_replace_call(call, Loss("tool_call"), words) for call in calls]}
    other = conversation.attempt(messages, turn.mode)
    if own is None or other is None:
        return None
    places = [place for _, word in words.given if (place := other.find(word)) >= 0]
    behind = other[min(places) :] if places else ""
    names = "\0".join(name for call in calls for name in keys(arguments_of(call)))  # which no words replace
    closing = (tag for tag in tags if behind.count(tag) > names.count(tag))
    return next((tag for tag in closing if own.count(tag) > other.count(tag)), None)


def writes_null_as_text(conversation: Conversation, turn: RenderedTurn) -> bool:
    """Whether a turn would be the same if arguments of its calls were the text None in place of nulls.

    A server reads that text: it knows a null by `null`, and the type of another value by the schema of its tool.
    """
    messages, k = conversation.messages[: turn.message + 1], turn.message
    calls = messages[k].get("tool_calls") or ()
    worded = [_with_text(call) for call in calls]
    if "None" not in turn.text[turn.prompt_end :] or worded == [*calls]:  # nearly always
        return False
    messages[k] = {**messages[k], "tool_calls": worded}
    written = conversation.attempt(messages, turn.mode)
    return written is not None and written.endswith(turn.whole[turn.prompt_end :])


def _with_text(call: Any) -> Any:
    function, arguments = function_of(call), arguments_of(call)
    if not isinstance(arguments, Mapping) or None not in arguments.values():
        return call
    texts = {key: "None" if value is None else value for key, value in arguments.items()}
    function = {**function, "arguments": json.dumps(texts) if isinstance(function["arguments"], str) else texts}
    return {**call, "function": function} if "function" in call else function
