"""Silent loss: what a row says and its rendering does not.

A text counts as rendered when it stands in the rendering, as it is or escaped as JSON. Where that proves nothing (a
short text may stand there by chance) or fails (the template may have reshaped it), the template is asked directly: the
item is replaced by a word that occurs nowhere else, and the word must come out.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packer.render.environment import RenderError

REASONING_TAGS = re.compile(r"</?think(?:ing)?>")
"""Tags that set reasoning apart inside an assistant's content."""

_SHORT = 12
"""A text of fewer characters may stand in a rendering by chance."""

_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Item:
    """Something a message says that must be rendered."""

    kind: str
    message: int
    texts: tuple[str, ...]
    rescued: bool = True
    """False where only the text itself counts, not what the template does with a stand-in word."""


@dataclass(slots=True)
class LossCheck:
    """Finds what a template drops; remembers what it answered for each shape of conversation."""

    allowed: frozenset[str]
    _answers: dict[tuple[Any, ...], frozenset[tuple[str, int]]] = field(default_factory=dict)

    def find(
        self,
        messages: Messages,
        first: int,
        turn: int,
        *,
        text: str,
        tools: bool,
        render: Callable[[Messages], str],
    ) -> tuple[str, int] | None:
        """The first thing of messages `first` … `turn` that `text`, the rendering of messages up to `turn`, lacks.

        Returns:
            Its kind (as in `supervision.allow_dropped`) and the number of its message, or None.

        """
        items = [item for number in range(first, turn + 1) for item in _items(messages[number], number, number == turn)]
        items = [item for item in items if item.kind not in self.allowed]
        missing = [item for item in items if not all(_stands_in(part, text) for part in item.texts)]
        doubtful = any(len(part) < _SHORT for item in items for part in item.texts)
        if missing:
            lost = _probe(messages[: turn + 1], render)
            really = [item for item in missing if not item.rescued or lost is None or (item.kind, item.message) in lost]
            if really:
                return really[0].kind, really[0].message
        if not doubtful:
            return None
        shape = (turn, tools, *map(_shape, messages[: turn + 1]))
        if shape not in self._answers:
            self._answers[shape] = _probe(messages[: turn + 1], render) or frozenset()
        lost = self._answers[shape]
        return next(((item.kind, item.message) for item in items if (item.kind, item.message) in lost), None)


def _items(message: Mapping[str, Any], number: int, own: bool) -> list[_Item]:  # noqa: FBT001 - private
    """What message `number` says. `own`: the rendering ends with this assistant turn, so that its text must show."""
    role, content = message.get("role"), message.get("content")
    text = content.strip() if isinstance(content, str) else ""
    if role != "assistant":
        kind = {"system": "system", "developer": "system", "tool": "tool_result"}.get(str(role), "user")
        return [_Item(kind, number, (text,))] if text else []
    items = []
    if own and text:
        parts = [part.strip() for part in REASONING_TAGS.split(text)]
        inline = len(parts) > 1
        items += [
            _Item("reasoning" if inline and i < len(parts) - 1 else "content", number, (part,), rescued=not inline)
            for i, part in enumerate(parts)
            if part
        ]
    reasoning = next((message[name] for name in _REASONING_FIELDS if isinstance(message.get(name), str)), "").strip()
    if own and reasoning:
        items.append(_Item("reasoning", number, (reasoning,)))
    items += [_Item("tool_call", number, tuple(_call_texts(call))) for call in message.get("tool_calls") or ()]
    return items


def _call_texts(call: Any) -> list[str]:
    function = call.get("function", call) if isinstance(call, dict) else {}
    return [str(function.get("name", "")), *_leaves(function.get("arguments"))]


def _leaves(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value.strip()]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return []


def _stands_in(part: str, text: str) -> bool:
    if part in text:
        return True
    return json.dumps(part, ensure_ascii=False)[1:-1] in text or json.dumps(part)[1:-1] in text


def _shape(message: Mapping[str, Any]) -> tuple[Any, ...]:
    calls = message.get("tool_calls") or ()
    return (
        message.get("role"),
        type(message.get("content")).__name__,
        bool(message.get("content")),
        tuple(len(_call_texts(call)) for call in calls),
        *(bool(message.get(name)) for name in _REASONING_FIELDS),
    )


def _probe(messages: Messages, render: Callable[[Messages], str]) -> frozenset[tuple[str, int]] | None:
    """Which items do not come out when each is replaced by a word of its own; None where the template raises."""
    words: list[tuple[str, int, str]] = []

    def word(kind: str, number: int) -> str:
        words.append((kind, number, f"Zq{len(words)}xW"))
        return words[-1][2]

    probed = [_replace(message, number, word) for number, message in enumerate(messages)]
    try:
        text = render(probed)
    except RenderError:
        return None
    return frozenset((kind, number) for kind, number, stand_in in words if stand_in not in text)


def _replace(message: Mapping[str, Any], number: int, word: Callable[[str, int], str]) -> dict[str, Any]:
    role = message.get("role")
    changed = dict(message)
    kind = {"assistant": "content", "system": "system", "developer": "system", "tool": "tool_result"}
    content = message.get("content")
    if isinstance(content, str) and content.strip():
        changed["content"] = word(kind.get(str(role), "user"), number)
    reasoning = [name for name in _REASONING_FIELDS if isinstance(message.get(name), str) and message[name].strip()]
    if reasoning:
        stand_in = word("reasoning", number)
        changed |= dict.fromkeys(reasoning, stand_in)
    if message.get("tool_calls"):
        changed["tool_calls"] = [_replace_call(call, number, word) for call in message["tool_calls"]]
    return changed


def _replace_call(call: Any, number: int, word: Callable[[str, int], str]) -> Any:
    if not isinstance(call, dict):
        return call
    function = dict(call.get("function", call))
    function["name"] = word("tool_call", number)
    if isinstance(function.get("arguments"), dict):
        function["arguments"] = {
            key: word("tool_call", number) if isinstance(value, str) else value
            for key, value in function["arguments"].items()
        }
    return {**call, "function": function} if "function" in call else function
