"""Finds texts that are only the name of a null, such as `None` or `nan`, as tables written from Python have them.

They are read as texts, so an answer `nan` is trained. Where the others are texts, or there are none, such a name is
most likely no part of a prompt or an answer, and a note says so. Among labels, `None` is one.

Beside the question, where rows may have nothing, any label is one that many rows repeat and whose place the others fill
with texts that differ, such as `<noinput>`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packer.batches import REASONING_FIELDS
from packer.questions.read_places import ITEMS, Note
from packer.source.file_bytes import quoted
from packer.source.prose import is_text

_NAMES = frozenset({"none", "null", "nan", "nat", "<na>", "n/a", "#n/a"})
_OF_MESSAGES = frozenset({"content", "value", *REASONING_FIELDS})
_LONGEST_NAME = 8
"""Characters of a name, and of white space around it."""

_MOST_OTHERS = 32
"""Other texts of a field that are looked at, and characters of one that is counted."""

_FEWEST, _FEWEST_PERCENT = 3, 10
"""Rows in which such a label stands, and of how many that have the field."""


@dataclass(slots=True)
class _Texts:
    """The texts of a field in some rows, or of one speaker in its messages."""

    names: Counter[str] = field(default_factory=Counter)
    rows: set[int] = field(default_factory=set)
    """Numbers of those with a name."""

    others: list[str] = field(default_factory=list)
    num: int = 0
    short: Counter[str] = field(default_factory=Counter)

    def add(self, text: str, row: int) -> None:
        if len(text) <= _LONGEST_NAME and text.strip().lower() in _NAMES:
            self.names[text.strip()] += 1
            self.rows.add(row)
        elif text.strip():
            self.num += 1
            self.short.update([text.strip()] * (len(text) <= _MOST_OTHERS))
            self.others += [text] * (len(self.others) < _MOST_OTHERS)

    def placeholder(self) -> Iterator[tuple[str, int]]:
        """Yield the label that repeats where other rows have texts that hardly ever do, and its rows."""
        for word, count in self.short.most_common(1):
            texts = [text for text in self.others if text.strip() != word]
            are_texts = 2 * len({*filter(is_text, texts)}) > len(texts) > 1
            if are_texts and not is_text(word) and count >= max(_FEWEST, self.num * _FEWEST_PERCENT / 100):
                yield word, count


class NullNames:
    """Counts the names of a null in what is read of some rows."""

    def __init__(self, fields: Collection[str], beside: Collection[str] = ()) -> None:
        """`fields`: names of those that are read; `beside`: those of them that stand beside the question."""
        self._fields = fields
        self._beside = beside
        self._num_rows = 0
        self._texts: defaultdict[tuple[str, ...], _Texts] = defaultdict(_Texts)
        """By the name of a field, or of a field with messages, their key and their speaker."""

    def add(self, row: Mapping[str, Any]) -> None:
        self._num_rows += 1
        for name in self._fields:
            value = row.get(name)
            if type(value) is str:
                self._texts[name,].add(value, self._num_rows)
            for message in value if type(value) is list else ():
                for key in _OF_MESSAGES & message.keys() if type(message) is dict else ():
                    if type(message[key]) is str:
                        place = name, key, str(message.get("role") or message.get("from"))
                        self._texts[place].add(message[key], self._num_rows)

    def notes(self) -> Iterator[Note]:
        """Yield the fields with such names where the others are no labels."""
        for (name, *of_messages), texts in sorted(self._texts.items(), key=lambda each: each[0]):
            num_others = len(texts.others)
            are_texts = 2 * sum(map(is_text, texts.others)) >= num_others
            found = [*texts.placeholder()] if name in self._beside and not of_messages else []
            if texts.names and are_texts and texts.names.total() + num_others > 1:
                found = [(texts.names.most_common(1)[0][0], len(texts.rows))]
            key, speaker = of_messages or ("", "")
            path = f"{quoted(f'{name}{ITEMS}.{key}', 80)} of {quoted(speaker)}" if key else quoted(name)
            for word, num_rows in found:
                says = f"have only {quoted(word)} in {path}, which is read as a text; give null for nothing"
                yield Note(says, num_rows, self._num_rows)
