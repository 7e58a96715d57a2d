"""Tells texts from labels, ids, addresses, numbers and dates: the one measure of what is asked about. And walks over
values: all texts in one, whether all are read, and the texts that are read from a row.
"""

import re
import string
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from packer.batches import REASONING_FIELDS, Sample
from packer.source.decode import decoded_json

MESSAGE_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", *REASONING_FIELDS})
"""Fields of messages that templates have in common. Any other one is asked about unless the template reads it."""

_OF_CALLS = ("id", "type", "name", "arguments")
"""What is read of a call, and of its `function`."""

_LABEL_WORDS = 3
_LABEL_COLUMNS = 32
_LONGEST_ID = 256
"""Characters without a blank that may be an id, a digest, a path or an address."""

_BEGINNING = 256
"""Characters of a long text that are looked at first: most are told by four words."""

_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")
"""Letters of scripts without blanks between words. Two of the first are about a word, and four of the second."""

_SENTENCE = re.compile(r"(?:\s\S*[^\W\d]{2}[.!?…]|[。！？])[\"'”’)]*\Z")
"""Matches the end of a sentence of two words, or of letters without blanks; no initials, and no version."""

_OF_IDS = re.compile(r"[\d/_@\\:]")
"""Characters that ids, paths, addresses and times have, and a word that stands alone has not."""


def is_text(*texts: str) -> bool:
    """Whether a text, or several in a list, are longer than a label, and no ids, addresses, numbers or dates.

    A sentence is no label: a few words are a text if a mark ends them as it ends a sentence.

    Example:
        >>> is_text("Always answer in Gaelic."), is_text("CC BY-NC-SA 4.0"), is_text("https://example.org/" + "a" * 40)
        (True, False, False)
        >>> is_text("maths", "word problem"), is_text("Oban", "Mull", "early", "Mallaig", "Skye", "late", "Ullapool")
        (False, True)
        >>> is_text("Be brief."), is_text("J. Smith"), is_text("version 4.1.")
        (True, False, False)
    """
    num_columns = -1
    for text in texts:
        if len(text) > _BEGINNING and is_text(text[:_BEGINNING]):
            return True
        num_words, num_more = _measured(text)
        num_columns += num_more
        if (
            num_words > _LABEL_WORDS
            or num_columns > _LABEL_COLUMNS
            or _SENTENCE.search(text[-_LABEL_COLUMNS:].rstrip())
        ):
            return True
    return False


@lru_cache(maxsize=4096)
def is_text_key(key: str) -> bool:
    """Whether a key of an object is a text, as an answer is that has its score as value."""
    return is_text(key)


def is_phrase(*texts: str) -> bool:
    """Whether a text, or several in a list, are two words or more, without a number."""
    return sum(_measured(text)[0] for text in texts if not any(map(str.isdigit, text))) > 1


def has_word(text: str) -> bool:
    """Whether a text has a word that is no id, address, number or date."""
    return _measured(text)[0] > 0


def _measured(text: str) -> tuple[float, int]:
    """Return how many words a text has, and how many columns they take."""
    spaced, num_han = _HAN.subn("", text)
    spaced, num_others = _UNSPACED.subn("", spaced)
    words = [] if " " not in text and _OF_IDS.search(spaced) else [word for word in spaced.split() if _is_word(word)]
    return len(words) + num_han / 2 + num_others / 4, 2 * num_han + num_others + sum(len(word) + 1 for word in words)


def _is_word(word: str) -> bool:
    word = word.strip(string.punctuation)
    if len(word) > _LABEL_COLUMNS and word.isascii():
        return len(word) > _LONGEST_ID
    return any(map(str.isalpha, word))


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
