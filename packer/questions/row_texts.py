"""The texts of one row that nothing reads: what makes a text more than a label, and where it stands.

A text is longer than a label, or ends as a sentence does, and is no id and no address. A phrase of a few words may be
a label or not: labels repeat, and what belongs to a row differs from row to row. The items of a list are measured
together, as the cells of a table are. Tools and calls are content too, although their texts may be short, and so are
the answers that a question does not take, and a key of messages that names a tool which nothing calls. All of them
are found at any depth, in objects, lists and JSON text.

A text that is read need not be asked about under another name; neither does one that is made of such texts, as a
rendered copy of a conversation is.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from packer.batches import Sample
from packer.questions.field_names import meant_field
from packer.questions.named_media import names_media
from packer.questions.options import FEWEST, are_lettered, is_one_of, names_one_of, siblings
from packer.questions.read_places import ITEMS, Path
from packer.questions.texts import MESSAGE_FIELDS, is_phrase, is_text, is_text_key, spaced, strings
from packer.source.decode import decoded_json
from packer.source.message_parts import is_setting, reasoning_in
from packer.source.row import LETTERS

_NAMES = ("name", "function", "tool", "api")
"""Last words of the keys under which tools and calls have their name."""

_OPTION_CHARACTERS = 2
"""Of the keys of an object of answers to choose from."""

_READ_KEYS = MESSAGE_FIELDS | {"name", "from", "value"}
"""Keys of messages that may name a tool without calling it."""

_MOST_ITEMS = 1000
"""Items of a list that are measured together."""

_NUMBERS = frozenset({int, float})

_MOST_UNREAD = 250
"""Places of unread texts in a row, after which it is searched no further: rows may have names or dates as keys."""


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


class RowTexts:
    """The unread texts of one row."""

    def __init__(
        self, row: Mapping[str, Any], read: ReadTexts, own: Collection[str], said: Collection[Path], tools: set[str]
    ) -> None:
        self._texts = read
        self._own = own
        self._said = said
        self._uncalled = tools
        self.unread: dict[Path, str] = {}
        self.read: set[Path] = set()
        self.phrases: dict[Path, list[str]] = {}
        """Short texts, which are labels if they repeat."""

        self.choices: dict[Path, str | None] = {}
        """Lists and fields with numbers or short texts, of which the answer is or names one; None if it does not."""

        self._short: dict[Path, list[str]] = {}
        self._options: set[Path] = set()
        stack: list[tuple[Path, Any]] = [((name,), row[name]) for name in sorted(row, reverse=True)]
        while stack:
            path, value = stack.pop()
            if isinstance(value, str):
                if (decoded := self._text(path, value)) is not None:
                    stack.append((path, decoded))
            elif isinstance(value, list | tuple):
                stack += self._list(path, value)
            elif isinstance(value, Mapping):
                self._object(path, value)
                stack += [((*path, str(key)), value[key]) for key in sorted(value, key=str, reverse=True)]
        self._sibling_options(row)
        self._measure()

    def _measure(self) -> None:
        """Note what the short texts of each place are, taken together."""
        for path, texts in self._short.items():
            some = [*dict.fromkeys(texts[:_MOST_ITEMS])]
            if 1 < len(texts) <= len(LETTERS) and path.count(ITEMS) + (path in self._options) == 1:
                self._choices(path, texts)
            if not self._says(path, texts, some):
                continue  # nor would fewer of them: nearly always
            others = [text for text in some if not self._texts.hold(text)]
            if (says := self._says(path, texts, others)) == "more":
                self.unread.setdefault(path, ", ".join(others))
            elif says == "phrases":
                self.phrases[path] = others

    def _list(self, path: Path, value: Sequence[Any]) -> list[tuple[Path, Any]]:
        """Note a list of numbers; return the items that are to be searched."""
        if 1 < len(value) <= len(LETTERS) and _NUMBERS.issuperset(map(type, value)):
            self._add_numbers(path, value)
            return []
        is_read = (reasoning := reasoning_in(value)) is not None and self._texts.hold(spaced(reasoning))
        return [] if is_read else [((*path, ITEMS), item) for item in reversed(value)]

    def _add_numbers(self, path: Path, numbers: Iterable[float]) -> None:
        if ITEMS in path:
            return  # of several lists there, one alone may have the answer
        said = [*map(str, numbers)]
        self.choices[path] = ", ".join(said) if is_one_of(self._texts.answer, said) else None

    def _choices(self, path: Path, texts: Sequence[str]) -> None:
        others = [text for text in texts if not self._texts.hold(text)]
        if others:
            self.choices[path] = ", ".join(others) if names_one_of(self._texts.answer, texts) else None

    def _says(self, path: Path, texts: Sequence[str], others: Sequence[str]) -> Literal["more", "phrases"] | None:
        """Return what some of the short texts of a place are, taken together; None if they are labels."""
        are_items = path[-1] == ITEMS or path in self._options
        count = len(texts) if are_items and len(texts) > 1 else 0
        named = (*texts, *LETTERS[:count], *map(str, range(count and count + 1)))
        if others and (self._texts.answer in named or (ITEMS in path and is_text(*others))):
            return "more"  # answers that were not taken, or cells of a table
        return "phrases" if any(map(is_phrase, others)) or (are_items and is_phrase(*others)) else None

    def _text(self, path: Path, value: str) -> Any:
        """Note a text; return what is to be searched if it is JSON that is not read as a text."""
        if path in self._said or (len(path) == 5 and path[3:] == (ITEMS, "text") and path[:3] in self._said):
            self.read.add(path)  # as text, or as calls
            return None
        text = spaced(value)
        if self._names_tool(path, text):
            self.unread[path] = text
            return None
        is_known = path in self.unread or not text or len(self.unread) >= _MOST_UNREAD
        is_long, is_own = is_text(text), path[0] in self._own
        is_media = not (is_long or (is_own and len(path) == 1)) and names_media(text)  # which a text only mentions
        is_label = not (is_long or is_media or self._is_meant(path, text))
        if is_label and not is_known and not is_own and decoded_json(value) is None:
            pass  # a label, as most texts are; whether it is read does not matter
        elif text in self._texts.whole:
            if is_own or is_long:
                self.read.add(path)
        elif (decoded := decoded_json(value)) is not None:
            return decoded
        elif is_known:
            return None
        elif not is_label:
            if (
                not is_media
                and self._texts.hold(text)
                and not (self._texts.lacks_answer and len(text) < WHOLE_CHARACTERS)
            ):
                self.read.add(path)
            else:
                self.unread[path] = text
            return None
        self._short.setdefault(path, []).append(text)
        return None

    def _sibling_options(self, row: Mapping[str, Any]) -> None:
        """Note the fields of a row that differ in a last letter, such as `A` and `B`, if the answer is one of them."""
        texts = {path[0]: texts[0] for path, texts in self._short.items() if len(path) == 1}
        for names in siblings([name for name in row if name not in self._own]):
            options = {(name,): texts[name] for name in names if name in texts}
            if options and is_one_of(self._texts.answer, [*options.values(), *names]):
                self.unread |= {path: text for path, text in options.items() if not self._texts.hold(text)}
            elif len(names) >= FEWEST and _NUMBERS.issuperset(type(row[name]) for name in names):
                are_options = is_one_of(self._texts.answer, [row[name] for name in names])
                self.choices |= {(name,): str(row[name]) if are_options else None for name in names}

    def _names_tool(self, path: Path, text: str) -> bool:
        is_key = (*path[:2], "content") in self._said and _READ_KEYS.isdisjoint(path[2:3])
        if not (is_key and self._uncalled) or is_text(text):
            return False
        names = "|".join(map(re.escape, sorted(self._uncalled)))
        return re.search(rf"(?<!\w)(?:{names})(?!\w)", text) is not None

    def _is_meant(self, path: Path, text: str) -> bool:
        """Whether the name of a field says that even a label in it is part of the prompt, or of the answer."""
        names = [name for name in path if name != ITEMS]
        if len(names) > 2 or is_setting(text) or not any(map(str.isalnum, text)):
            return False
        meant = meant_field(names[-1])
        if len(names) == 2:
            return path[1] == ITEMS and meant == "reasoning"
        return meant in ("input", "system", "reasoning") or (meant == "output" and self._texts.lacks_answer)

    def _object(self, path: Path, value: Mapping[str, Any]) -> None:
        are_rated = all(isinstance(each, int | float | None) for each in value.values())
        are_answers = are_rated and len(self._texts.answer) > _OPTION_CHARACTERS and self._texts.answer in value
        said = [key for key in value if (are_answers or is_text_key(key)) and not self._texts.hold(spaced(key))]
        if said:
            self.unread.setdefault(path, ", ".join(said))
        if are_lettered(value) and _NUMBERS.issuperset(map(type, value.values())):
            self._add_numbers(path, [value[key] for key in sorted(value)])
        is_message = (*path, "content") in self._said
        if is_message and _is_named(value):  # which is a call beside what it says
            value = {key: item for key, item in value.items() if key not in _READ_KEYS}
            for key, item in value.items() if _is_named(value) else ():
                if item in _of_call(value) and any(map(self._texts.lack, strings(item))):
                    self.unread.setdefault((*path, key), json.dumps(item, ensure_ascii=False, default=str))
        elif _is_named(value) and any(self._texts.lack(text) for text in strings(_of_call(value))):
            self.unread.setdefault(path, json.dumps(value, ensure_ascii=False, default=str))
        if value and all(len(str(key)) <= _OPTION_CHARACTERS and isinstance(each, str) for key, each in value.items()):
            options = [spaced(value[key]) for key in sorted(value)]  # such as {"A": "06:12", "B": "07:00"}
            if self._texts.answer in options or not any(map(is_text, options)):
                self._short.setdefault(path, []).extend(options)
                self._options.add(path)


def _of_call(value: Mapping[str, Any]) -> list[Any]:
    """Return what a tool or a call consists of: its name, and the objects and lists beside it; not its type or id."""
    return [
        item
        for key, item in value.items()
        if str(key).lower().endswith(_NAMES) or isinstance(_value(item), dict | list)
    ]


def _is_named(value: Mapping[str, Any]) -> bool:
    """Whether an object is a tool or a call: it has a name, and an object or a list beside it."""
    has_name = any(isinstance(item, str) and item and str(key).lower().endswith(_NAMES) for key, item in value.items())
    return has_name and any(item and not isinstance(item, str) for item in map(_value, _of_call(value)))


def _value(item: Any) -> Any:
    return decoded_json(item) if isinstance(item, str) else item
