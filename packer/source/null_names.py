"""Finds texts that are only the name of a null, such as `None` or `nan`, as tables written from Python have them.

They are read as texts, so an answer `nan` is trained. Where the others are texts, or there are none, such a name is
most likely no part of a prompt or an answer, and a note says so. Among labels, `None` is one.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packer.batches import REASONING_FIELDS
from packer.source.file_bytes import quoted
from packer.source.prose import is_text
from packer.source.read_places import ITEMS, Note

_NAMES = frozenset({"none", "null", "nan", "nat", "<na>", "n/a", "#n/a"})
_OF_MESSAGES = frozenset({"content", "value", *REASONING_FIELDS})
_LONGEST_NAME = 8
"""Characters of a name, and of white space around it."""

_MOST_OTHERS = 32
"""Other texts of a field that are looked at."""


@dataclass(slots=True)
class _Texts:
    """The texts of a field in some rows, or of one speaker in its messages."""

    names: Counter[str] = field(default_factory=Counter)
    rows: set[int] = field(default_factory=set)
    """Numbers of those with a name."""

    others: list[str] = field(default_factory=list)

    def add(self, text: str, row: int) -> None:
        if len(text) <= _LONGEST_NAME and text.strip().lower() in _NAMES:
            self.names[text.strip()] += 1
            self.rows.add(row)
        elif len(self.others) < _MOST_OTHERS and text.strip():
            self.others.append(text)


class NullNames:
    """Counts the names of a null in what is read of some rows."""

    def __init__(self, fields: Collection[str]) -> None:
        """`fields`: names of those that are read."""
        self._fields = fields
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
            if texts.names and are_texts and texts.names.total() + num_others > 1:
                word = quoted(texts.names.most_common(1)[0][0])
                key, speaker = of_messages or ("", "")
                path = f"{quoted(f'{name}{ITEMS}.{key}', 80)} of {quoted(speaker)}" if key else quoted(name)
                says = f"have only the word {word} in {path}, which is read as a text; give null for nothing"
                yield Note(says, len(texts.rows), self._num_rows)
