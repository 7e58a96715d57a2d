"""Finds the fields of rows with text that nothing reads, so that a build can ask about them before it begins.

What a row says is in its texts, whatever their names are. A field that holds a text which does not stand in any text
that is read from its row would be lost. So it is asked about: `columns` reads it, `ignore` of its source leaves it out.

A text is longer than a label: four words, or words of more than 32 columns, which are no ids and no addresses. The
items of a list are measured together, as the cells of a table are. Tools and calls are content too, although their
texts may be short, and so are the answers that a question does not take. All of them are found at any depth, in
objects, lists and JSON text. Paths are written as ``metadata.tools[].name``.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any, TypeAlias

from packer.batches import REASONING_FIELDS, Sample
from packer.source.decode import Refused, decode_json
from packer.source.field_names import is_setting, meant_field
from packer.source.prose import is_text
from packer.source.read_places import ReadPlaces
from packer.source.row import Columns
from packer.source.schema import SCHEMAS, read_row

Path: TypeAlias = tuple[str, ...]
"""Keys that lead to a value; ``[]`` stands for the items of a list."""

_ITEMS = "[]"

_MOST_ROWS_PER_FIELD = 100
"""One in this many rows may have a text in a field: a build names it, and does not stop to ask."""

_MESSAGE_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", *REASONING_FIELDS})
"""Fields of messages that templates have in common. Any other one is asked about unless the template reads it."""

_NAMES = ("name", "function", "tool", "api")
"""Last words of the keys under which tools and calls have their name."""

_ROLES = frozenset({"role", "from"})
"""Fields of a message whose value is a label that schemas know by several names."""

_WHOLE_CHARACTERS = 12
"""Shorter texts are compared with whole texts: that a message has a B in it does not say that the answer is B."""

_BETWEEN_WORDS = re.compile(r"[\W_]+")

_OPTION_CHARACTERS = 2
"""Of the keys of an object of answers to choose from."""

_MOST_PARTS = 500
"""Texts that a text may be made of."""

_MOST_ITEMS = 1000
"""Items of a list that are measured together."""

_MOST_UNREAD = 250
"""Places of unread texts in a row, after which it is searched no further: rows may have names or dates as keys."""

_MOST_MISSES = 8
"""Texts that may be searched in vain in a text that might be made of them."""

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadField:
    """A field with text that nothing reads."""

    path: str
    num_rows: int
    """Sampled rows with such text in it."""

    example: str
    inner: tuple[str, ...]
    """Paths in it, or its own, that lead to such text through objects alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What some rows have that nothing reads."""

    fields: tuple[UnreadField, ...]
    rare: tuple[UnreadField, ...]
    """Fields with such text in so few rows that nobody is asked about them."""

    num_rows: int
    num_read: int
    """Rows that are not refused."""

    names: frozenset[str]
    """All fields of these rows."""


class _Texts:
    """What is read from a row."""

    def __init__(self, sample: Sample) -> None:
        texts = [text for each in _texts_read(sample) if (text := _spaced(each))]
        in_json = (_spaced(each) for text in texts if (value := _decoded(text)) is not None for each in _strings(value))
        self.whole = frozenset(texts).union(in_json)
        self.joined = "\n".join(dict.fromkeys(texts))
        last = sample.messages[-1] if sample.messages else None
        self.lacks_answer = last is not None and last.role != "assistant"
        self.answer = _spaced(sample.text if last is None else last.fields.get("content") or "")

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(_BETWEEN_WORDS.split(self.joined))

    @cached_property
    def _parts(self) -> list[str]:
        return sorted(self.whole, key=lambda part: (-len(part), part))

    def hold(self, text: str) -> bool:
        """Whether a text stands in one that is read, or is made of such texts with labels between them."""
        if text in self.whole:
            return True
        if len(text) < _WHOLE_CHARACTERS and not is_text(text):
            if text.isalnum():
                return text in self._words
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
        if (text := _spaced(text)) in self.whole or not text or text.lower() in self.whole:
            return False  # the types of Gemini's parameters are in capitals
        decoded = _decoded(text)
        return decoded is None or any(map(self.lack, _strings(decoded)))

    def _is_more(self, piece: str) -> bool:
        value = _decoded(piece)
        texts = [piece] if value is None else map(_spaced, _strings(value))
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


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _strings(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, list | tuple):
            stack += each
        elif isinstance(each, Mapping):
            stack += each.values()


def _texts_read(sample: Sample) -> Iterator[str]:
    for message in sample.all_messages:
        yield from _strings([value for key, value in message.fields.items() if key in _MESSAGE_FIELDS])
    yield from _strings([sample.tools, sample.template_kwargs, sample.prompt, sample.text, sample.sample_id])
    if sample.preference is not None and sample.preference.rejected is not None:
        yield from _texts_read(sample.preference.rejected)


def _decoded(text: str) -> Any:
    """Return the object or list whose JSON a text is; None if it is not that."""
    text = text.strip()
    if not (text.startswith(("{", "[")) and text.endswith(("}", "]"))):
        return None
    try:
        value = decode_json(text.encode())
    except (Refused, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict | list) else None


class _Row:
    """The unread texts of one row."""

    def __init__(self, row: Mapping[str, Any], sample: Sample, own: Collection[str]) -> None:
        self._own = own
        self.unread: dict[Path, str] = {}
        self.read: set[Path] = set()
        self._texts = _Texts(sample)
        self._short: dict[Path, list[str]] = {}
        stack: list[tuple[Path, Any]] = [((name,), row[name]) for name in sorted(row, reverse=True)]
        while stack:
            path, value = stack.pop()
            if isinstance(value, str):
                if (decoded := self._text(path, value)) is not None:
                    stack.append((path, decoded))
            elif isinstance(value, list | tuple):
                stack += [((*path, _ITEMS), item) for item in reversed(value)]
            elif isinstance(value, Mapping):
                self._object(path, value)
                stack += [((*path, str(key)), value[key]) for key in sorted(value, key=str, reverse=True)]
        for path, texts in self._short.items():
            others = [text for text in dict.fromkeys(texts[:_MOST_ITEMS]) if not self._texts.hold(text)]
            if others and (self._texts.answer in texts or (_ITEMS in path and is_text(*others))):
                self.unread.setdefault(path, ", ".join(others))  # answers that were not taken, or cells of a table
        for path in [path for path in self.unread if any(path[:end] in self.unread for end in range(1, len(path)))]:
            del self.unread[path]

    def _text(self, path: Path, value: str) -> Any:
        """Note a text; return what is to be searched if it is JSON that is not read as a text."""
        text = _spaced(value)
        if text in self._texts.whole:
            if path[0] in self._own or is_text(text):
                self.read.add(path)
        elif (decoded := _decoded(value)) is not None:
            return decoded
        elif path in self.unread or not text or len(self.unread) >= _MOST_UNREAD:
            return None
        elif is_text(text) or self._is_meant(path, text):
            if self._texts.hold(text) and not (self._texts.lacks_answer and len(text) < _WHOLE_CHARACTERS):
                self.read.add(path)
            else:
                self.unread[path] = text
            return None
        self._short.setdefault(path, []).append(text)
        return None

    def _is_meant(self, path: Path, text: str) -> bool:
        """Whether the name of a field says that even a label in it is part of the prompt, or of the answer."""
        names = [name for name in path if name != _ITEMS]
        if len(names) > 2 or is_setting(text) or not any(map(str.isalnum, text)):
            return False
        meant = meant_field(names[-1])
        if len(names) == 2:
            return path[1] == _ITEMS and meant == "reasoning"
        return meant in ("input", "system", "reasoning") or (meant == "output" and self._texts.lacks_answer)

    def _object(self, path: Path, value: Mapping[str, Any]) -> None:
        if _is_named(value) and any(self._texts.lack(text) for text in _strings(_of_call(value))):
            self.unread.setdefault(path, json.dumps(value, ensure_ascii=False, default=str))
        if all(len(str(key)) <= _OPTION_CHARACTERS and isinstance(each, str) for key, each in value.items()):
            self._short.setdefault(path, []).extend(
                map(_spaced, value.values())
            )  # such as {"A": "06:12", "B": "07:00"}


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
    return _decoded(item) if isinstance(item, str) else item


def find_unread(
    rows: Iterable[Mapping[str, Any]],
    *,
    schema: str,
    columns: Columns,
    roles: Mapping[str, str],
    known: Collection[str] = (),
) -> Unread:
    """Return the fields of some rows with text that nothing reads.

    A row that is not read has a rejection of its own, and is not searched. A path leads as deep as needed to tell what
    is not read from what is.

    Args:
        rows: as they are in their file.
        schema: by which they are read.
        columns: of their source.
        roles: of their source.
        known: paths of fields that are not asked about, with all that is below them.
    """
    hidden = {*known, *(new for new, old in columns.items() if old is None)}
    own = {columns.get(name) or name for name in SCHEMAS[schema].fields}
    num_rows = num_read = 0
    places = ReadPlaces()
    read = places.paths
    names: set[str] = set()
    found: list[dict[Path, str]] = []
    for num_rows, row in enumerate(rows, 1):  # noqa: B007 - used after the loop
        names.update(row)
        try:
            sample = read_row(row, number=0, schema=schema, columns=columns, roles=roles)
        except Refused:
            continue
        num_read += 1
        shown = {name: value for name, value in row.items() if name not in hidden}
        said = {text for text in _texts_read(sample) if text and not text.isspace()}
        texts = _Row(places.left(shown, own, said), sample, own)
        read |= {path[:end] for path in texts.read for end in range(1, len(path) + 1)}
        unread = {path: text for path, text in texts.unread.items() if not is_below(shown_path(path), hidden)}
        if unread:
            found.append(unread)
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    inner: dict[str, set[str]] = {}
    for unread in found:
        fields = {_field(path, read): text for path, text in sorted(unread.items(), reverse=True)}
        counts.update(fields.keys())
        examples = fields | examples
        for path in unread:
            inner.setdefault(_field(path, read), set()).add(shown_path(path).partition(_ITEMS)[0])
    found_fields = [
        UnreadField(path=path, num_rows=count, example=_shortened(examples[path]), inner=tuple(sorted(inner[path])))
        for path, count in sorted(counts.items())
    ]
    is_rare = [field.num_rows * _MOST_ROWS_PER_FIELD <= num_rows for field in found_fields]
    return Unread(
        fields=tuple(field for field, rare in zip(found_fields, is_rare, strict=True) if not rare),
        rare=tuple(compress(found_fields, is_rare)),
        num_rows=num_rows,
        num_read=num_read,
        names=frozenset(names),
    )


def _field(path: Path, read: Collection[Path]) -> str:
    """Return the path of the outermost value around a text in which nothing is read."""
    end = next((end for end in range(1, len(path)) if path[:end] not in read), len(path))
    return shown_path(path[:end])


def shown_path(path: Sequence[str]) -> str:
    """Return a path as it is written, such as `messages[].apis`."""
    return "".join(key if key == _ITEMS else f".{key}" for key in path).removeprefix(".")


def is_below(path: str, fields: Collection[str]) -> bool:
    """Whether a path is one of some fields, or below one."""
    return any(path == field or path.startswith((f"{field}.", f"{field}{_ITEMS}")) for field in fields)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 2].rstrip()} …"
