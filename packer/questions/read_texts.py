"""What is read from a row, and whether a text stands in it.

A text that is read need not be asked about under another name; neither does one that is made of such texts, as a
rendered copy of a conversation is.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

from packer.batches import REASONING_FIELDS, Sample
from packer.source.decode import decoded_json
from packer.source.prose import is_text, is_text_key

MESSAGE_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", *REASONING_FIELDS})
"""Fields of messages that templates have in common. Any other one is asked about unless the template reads it."""

_OF_CALLS = ("id", "type", "name", "arguments")
"""What is read of a call, and of its `function`."""

WHOLE_CHARACTERS = 12
"""Shorter texts are compared with whole texts: that a message has a B in it does not say that the answer is B."""

_MOST_PARTS = 500
"""Texts that a text may be made of."""

_MOST_MISSES = 8
"""Texts that may be searched in vain in a text that might be made of them."""


class ReadTexts:
    """What is read from a row. Most rows need their texts alone, so what is made of them is made when asked for."""

    def __init__(self, sample: Sample, texts: Collection[str]) -> None:
        """`texts`: those of :func:`texts_read`."""
        self._sample = sample
        self._texts = texts
        last = sample.messages[-1] if sample.messages else None
        self.lacks_answer = last is not None and last.role != "assistant"

    @cached_property
    def answer(self) -> str:
        messages = self._sample.messages
        return spaced((messages[-1].fields.get("content") or "") if messages else self._sample.text)

    @cached_property
    def _spaced(self) -> dict[str, None]:
        return dict.fromkeys(text for each in self._texts if (text := spaced(each)))

    @cached_property
    def whole(self) -> frozenset[str]:
        """The texts, and those in the JSON that some of them are."""
        values = [value for text in self._spaced if (value := decoded_json(text)) is not None]
        return frozenset(self._spaced).union(map(spaced, strings(values)))

    @cached_property
    def joined(self) -> str:
        return "\n".join(self._spaced)

    @cached_property
    def _parts(self) -> list[str]:
        return sorted(self.whole, key=lambda part: (-len(part), part))

    def hold(self, text: str) -> bool:
        """Whether a text stands in one that is read, or is made of such texts with labels between them."""
        if text in self.whole:
            return True
        if len(text) < WHOLE_CHARACTERS and not is_text(text):
            return next(_places(text, self.joined), None) is not None
        if text in self.joined:
            return True
        pieces, num_parts, misses = [text], 0, 0
        for part in self._parts[:_MOST_PARTS]:
            cut = [piece for whole in pieces for piece in _without(part, whole)]
            num_parts += len(cut) - len(pieces)
            misses += len(cut) == len(pieces)
            pieces = [piece for piece in cut if piece.strip()]
            if misses == _MOST_MISSES or not pieces:
                break
        return num_parts > 1 and not any(self._is_more(piece.strip()) for piece in pieces)

    def lack(self, text: str) -> bool:
        """Whether a text, or one in it if it is JSON, is not a whole text that is read."""
        if (text := spaced(text)) in self.whole or not text or text.lower() in self.whole:
            return False  # the types of Gemini's parameters are in capitals
        value = decoded_json(text)
        return value is None or any(map(self.lack, strings(value)))

    def _is_more(self, piece: str) -> bool:
        value = decoded_json(piece)
        texts = [piece] if value is None else map(spaced, strings(value))
        return any(is_text(text) and (value is None or not self.hold(text)) for text in texts)


def _without(part: str, text: str) -> list[str]:
    """Return what is left of a text between the places where a part stands in it as whole words."""
    pieces, start = [], 0
    for at in _places(part, text):
        pieces.append(text[start:at])
        start = at + len(part)
    return [*pieces, text[start:]]


def _places(part: str, text: str) -> Iterator[int]:
    """Yield where a part stands in a text as whole words, not overlapping."""
    at = text.find(part)
    while at >= 0:
        end = at + len(part)
        is_whole = not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum())
        if is_whole:
            yield at
        at = text.find(part, max(end, at + 1) if is_whole else at + 1)  # a part may be empty


def spaced(text: str) -> str:
    return " ".join(text.split())


def strings(value: Any) -> list[str]:
    """Return all texts in a value, at any depth, and the keys that are texts."""
    found, stack = list[str](), [value]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, Mapping):
            found += filter(is_text_key, each)
            stack += each.values()
        elif isinstance(each, list | tuple):
            stack += each
    return found


_WITHOUT_TEXT = frozenset({int, float, bool, type(None)})
"""Of what rows of tokens have thousands each."""


def are_all_in(value: Any, texts: Collection[str]) -> bool:
    """Whether all texts in a value, at any depth, are some that are read as they stand. Of a conversation nearly all
    are, so that it need not be searched for others.
    """
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            if each in texts or not each.strip():
                continue
            if (decoded := decoded_json(each)) is None:
                return False
            stack.append(decoded)
        elif isinstance(each, list | tuple):
            stack += [item for item in each if type(item) not in _WITHOUT_TEXT]
        elif isinstance(each, Mapping):
            stack += [*each.values(), *filter(is_text_key, each)]
    return True


def texts_read(sample: Sample) -> list[str]:
    """Return the texts that are read from a row."""
    read = MESSAGE_FIELDS - {"tool_calls"}
    fields = [value for each in sample.all_messages for key, value in each.fields.items() if key in read]
    calls = [call for each in sample.all_messages for call in each.fields.get("tool_calls") or ()]
    fields += [value for call in calls for each in (call, call["function"]) for value in map(each.get, _OF_CALLS)]
    for side in sample.sides:
        fields += (side.tools, side.template_kwargs, side.prompt, side.text, side.sample_id)
    return strings(fields)
