"""The content of a message: a string, or parts that become one.

Templates disagree about lists of parts, and many render them wrongly or not at all; a string renders everywhere. So
texts are joined as they stand, and reasoning and calls go where a message keeps them.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from packer.source.decode import Refused
from packer.source.row import one_of
from packer.source.tool_calls import read_calls
from packer.source.unsupported_rows import is_media_part, refuse_media_tags


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a content list. OpenAI keeps its text under `text` or `refusal`, LLaMA-Factory under `value`."""

    type: str
    text: str | None = None
    value: Any = None
    thinking: Any = None
    refusal: Any = None
    train: bool | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    text: str | None
    reasoning: str | None = None
    calls: tuple[dict[str, Any], ...] = ()
    trained: frozenset[bool] = frozenset()
    """What its parts say of being trained; parts without a word of their own say nothing if none has one."""


_TEXT_FIELDS = ("text", "value", "thinking", "refusal")

_ORDER = {"thinking": 0, "reasoning": 0, "text": 1, "refusal": 1, "tool_call": 2}
"""A message has its reasoning first, then its text, then its calls; no other order can be kept."""


def read_content(content: str | list[Part] | None, *, where: str) -> Content:
    """Take a content apart.

    Raises:
        Refused: `multimodal`, `wrong_type`, `bad_tools`.

    """
    if not isinstance(content, list):
        if content:
            refuse_media_tags(content)
        return Content(text=content)
    rank = 0
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    for i, part in enumerate(content):
        at = f"{where}[{i}]"
        if is_media_part(part.type):
            raise Refused("multimodal", f"a part of type `{part.type}` at {at}")
        if part.type not in _ORDER:
            raise Refused("wrong_type", f"a part of a type packer does not know at {at}.type")
        if _ORDER[part.type] < rank:
            raise Refused("wrong_type", f"a part out of order at {at}: reasoning, then text, then calls")
        rank = _ORDER[part.type]
        if rank == _ORDER["tool_call"]:
            if part.value is None:
                raise Refused("bad_tools", f"no call under `value` at {at}")
            calls += read_calls(part.value, where=f"{at}.value")
        else:
            (texts if rank else reasoning).append(_part_text(part, where=at))
    refuse_media_tags("".join(texts))
    return Content(
        text="".join(texts) if texts or not calls else None,
        reasoning="".join(reasoning) if reasoning else None,
        calls=tuple(calls),
        trained=_trained(content, where=where),
    )


def _trained(parts: list[Part], *, where: str) -> frozenset[bool]:
    if any(part.weight not in (None, 0, 1) for part in parts):
        raise Refused("wrong_type", f"a part with a weight of its own at {where}; give the message one weight")
    words = [part.train if part.train is not None else part.weight for part in parts]
    if all(word is None for word in words):
        return frozenset()
    return frozenset(word is None or bool(word) for word in words)


def _part_text(part: Part, *, where: str) -> str:
    given = {name: getattr(part, name) for name in _TEXT_FIELDS if getattr(part, name) is not None}
    for name, value in given.items():
        if not isinstance(value, str):
            raise Refused("wrong_type", f"expected `str` at {where}.{name}")
    text: str | None = one_of(given, where=where)
    if text is None:
        raise Refused("wrong_type", f"no field `text` at {where}")
    return text
