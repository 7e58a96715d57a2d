"""Finds the fields of rows with text that nothing reads, so that a build can ask about them before it begins.

What a row says is in its texts, whatever their names are. A field that holds a text which does not stand in any text
that is read from its row would be lost. So it is asked about: `columns` reads it, `ignore` of its source leaves it out.

A text is longer than a label, or ends as a sentence does, and is no id and no address. A phrase of a few words may be
a label or not: labels repeat, and what belongs to a row differs from row to row. The items of a list are measured
together, as the cells of a table are. Tools and calls are content too, although their texts may be short, and so are
the answers that a question does not take, and a key of messages that names a tool which nothing calls. All of them
are found at any depth, in objects, lists and JSON text. Paths are written as ``metadata.tools[].name``. Flags that may
say what is trained, and orders in which messages do not stand, are asked about in the same way.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Literal

from packer.batches import Sample
from packer.source.answer_blocks import Blocks
from packer.source.comparisons import VERDICTS, is_one_of, siblings
from packer.source.decode import Refused, decoded_json
from packer.source.field_names import is_setting, meant_field
from packer.source.message_order import Orders
from packer.source.named_media import names_media
from packer.source.null_names import NullNames
from packer.source.options import FEWEST, are_lettered
from packer.source.own_reasoning import reasoning_in
from packer.source.prose import is_phrase, is_text, is_text_key
from packer.source.read_places import ITEMS, Path, ReadPlaces, UnreadField, shown_path
from packer.source.read_texts import (
    MESSAGE_FIELDS,
    WHOLE_CHARACTERS,
    ReadTexts,
    spaced,
    strings,
    texts_read,
)
from packer.source.row import LETTERS, Columns
from packer.source.schema import SCHEMAS, read_row
from packer.source.speaker_labels import Labels
from packer.source.training_flags import Flags

_MOST_ROWS_PER_FIELD = 100
"""One in this many rows may have a text in a field: a build names it, and does not stop to ask."""

_NAMES = ("name", "function", "tool", "api")
"""Last words of the keys under which tools and calls have their name."""

_OPTION_CHARACTERS = 2
"""Of the keys of an object of answers to choose from."""

_ANSWERS = ("output", "response", "completion")
"""Fields of schemas that are answers whole."""

_READ_KEYS = MESSAGE_FIELDS | {"name", "from", "value"}
"""Keys of messages that may name a tool without calling it."""

_MOST_ITEMS = 1000
"""Items of a list that are measured together."""

_NUMBERS = frozenset({int, float})

_MOST_UNREAD = 250
"""Places of unread texts in a row, after which it is searched no further: rows may have names or dates as keys."""

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What some rows have that nothing reads."""

    fields: tuple[UnreadField, ...]
    rare: tuple[UnreadField, ...]
    """Fields with such text in so few rows that nobody is asked about them."""

    blocks: tuple[UnreadField, ...]
    """Blocks with which answers begin, and of which nothing says whether they are reasoning, and names of speakers."""

    nulls: tuple[UnreadField, ...]
    """Fields that are read, with texts that are only the name of a null."""

    num_rows: int
    num_read: int
    """Rows that are not refused."""

    num_begin: int
    """Rows that begin another one of these."""

    names: frozenset[str]
    """All fields of these rows."""

    keys: frozenset[str]
    """Keys of messages that packer does not read, and their templates may."""

    labels: Mapping[str, Counter[str]]
    """Values of other fields, also in objects, by their paths, as JSON: templates may have variables of such names."""


def _uncalled_tools(sample: Sample) -> set[str]:
    called = {call["function"]["name"] for each in sample.messages for call in each.fields.get("tool_calls") or ()}
    return {tool["function"]["name"] for tool in sample.tools or ()} - called


class _Row:
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

        self.numbers: dict[Path, str | None] = {}
        """Lists and fields with numbers, of which the answer is one, or its letter; None if it is not."""

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
        for path, texts in self._short.items():
            some = [*dict.fromkeys(texts[:_MOST_ITEMS])]
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
        self.numbers[path] = ", ".join(said) if is_one_of(self._texts.answer, said) else None

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
            pass  # nearly always, and whether it is read or not
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
                self.numbers |= {(name,): str(row[name]) if are_options else None for name in names}

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
    is not read from what is. `known` are paths that are not asked about, with all that is below them.
    """
    hidden = {*known, *(new for new, old in columns.items() if old is None)}
    own = {columns.get(name) or name for name in SCHEMAS[schema].fields}
    contents = ("value", "content", "from", "role") if schema == "sharegpt" else ("content", "role")
    tools = {columns.get(name) or name for name in ("tools", "functions")}
    said: set[Path] = {(name, *inner, key) for name in own - tools for inner in ((ITEMS,), ()) for key in contents}
    said |= {(columns.get(name) or name,) for name in SCHEMAS[schema].fields.intersection(_ANSWERS)}
    num_rows, num_read, is_chat = 0, 0, False
    places = ReadPlaces()
    read = places.paths
    names, keys, found = set[str](), set[str](), list[_Row]()
    compared = VERDICTS if schema == "preference" else ()
    flags = Flags(read={*own, *hidden, *compared}, roles=roles, one_answer=schema in ("alpaca", "completion"))
    blocks, labels, nulls, orders = Blocks(known=roles), Labels(), NullNames(own - tools - hidden), Orders(roles)
    for num_rows, row in enumerate(rows, 1):  # noqa: B007 - used after the loop
        names.update(row)
        orders.add(row, own - tools)
        try:
            sample = read_row(row, number=0, schema=schema, columns=columns, roles=roles)
        except Refused:
            continue
        num_read += 1
        keys.update(*(each.fields for each in sample.all_messages))
        blocks.add(sample)
        labels.add(sample)
        nulls.add(row)
        orders.add_read(sample)
        shown = {name: value for name, value in row.items() if name not in hidden}
        as_it_stands = {text for text in texts_read(sample) if text and not text.isspace()}
        uncalled = _uncalled_tools(sample)
        left = places.left(places.left(shown, own - tools, as_it_stands - uncalled), tools, as_it_stands)
        texts = _Row(left, ReadTexts(sample, as_it_stands), own, said, uncalled)
        flags.add(shown, sample.template_kwargs)
        is_chat |= sample.kind == "chat"
        read |= {path[:end] for path in texts.read for end in range(1, len(path) + 1)}
        if texts.unread or texts.phrases or texts.numbers:
            found.append(texts)
    differing = flags.differing()
    lists = {f"{flag.path}{each}" for flag in differing for each in ("", ITEMS)}  # of which the texts may be flags
    found_fields = _fields(found, read, lists, hidden)
    texts_at = {field.path for field in found_fields}
    found_fields += [flag for flag in differing if not is_below(flag.path, {*hidden, *texts_at})]
    is_rare = [field.num_rows * _MOST_ROWS_PER_FIELD <= num_rows for field in found_fields]
    return Unread(
        fields=(
            *(field for field, rare in zip(found_fields, is_rare, strict=True) if not rare),
            *(field for field in orders.broken() if not is_below(field.path, hidden)),
        ),
        rare=tuple(compress(found_fields, is_rare)),
        blocks=(
            *(
                UnreadField(
                    path=block.name,
                    kind="block",
                    num_rows=count,
                    example=_shortened(spaced(block.inside)),
                    inner=tuple(blocks.labels(block)),
                )
                for block, count in blocks.found()
                if count * _MOST_ROWS_PER_FIELD > num_rows
            ),
            *labels.speakers(),
        ),
        nulls=tuple(nulls.found()),
        num_rows=num_rows,
        num_read=num_read,
        num_begin=orders.num_begin,
        names=frozenset(names),
        keys=frozenset(keys - MESSAGE_FIELDS - {"name"}),
        labels={path: said for path, said in flags.labels().items() if is_chat and not is_below(path, hidden)},
    )


def _fields(
    rows: Sequence[_Row], read: Collection[Path], lists: Collection[str], hidden: Collection[str]
) -> list[UnreadField]:
    """Return the fields with unread texts, but for `lists`, of which the texts may be flags, and those `hidden`."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    inner: dict[str, set[str]] = {}
    worded = set[str]()
    for unread in _with_phrases(rows):
        paths = {path for path in unread if not any(path[:end] in unread for end in range(1, len(path)))}
        paths = {path for path in paths if shown_path(path) not in lists and not is_below(shown_path(path), hidden)}
        fields = {_field(path, read): unread[path] for path in sorted(paths, reverse=True)}
        counts.update(fields.keys())
        examples = fields | examples
        worded |= {_field(path, read) for path in paths if not names_media(unread[path])}
        for path in paths:
            whole = shown_path(path)
            is_key = path[1:2] == (ITEMS,) and len(path) == 3
            inner.setdefault(_field(path, read), set()).update(
                {whole.partition(ITEMS)[0], *([whole] if is_key else [])}
            )
    return [
        UnreadField(
            path=path,
            kind="text" if path in worded else "media",
            num_rows=count,
            example=_shortened(examples[path]),
            inner=tuple(sorted(inner[path])),
        )
        for path, count in sorted(counts.items())
    ]


def _with_phrases(rows: Sequence[_Row]) -> Iterable[dict[Path, str]]:
    """Yield what is unread in each of some rows, with short texts where they hardly ever repeat, and with options."""
    said: dict[Path, Counter[str]] = {}
    for row in rows:
        for path, texts in row.phrases.items():
            said.setdefault(path, Counter()).update(texts)
    differ = {path for path, texts in said.items() if 2 * len(texts) > texts.total()}
    others = {path for row in rows for path, options in row.numbers.items() if options is None}
    for row in rows:
        phrases = {path: ", ".join(texts) for path, texts in row.phrases.items() if path in differ}
        yield row.unread | phrases | {path: said for path, said in row.numbers.items() if said and path not in others}


def _field(path: Path, read: Collection[Path]) -> str:
    """Return the path of the outermost value around a text in which nothing is read."""
    end = next((end for end in range(1, len(path)) if path[:end] not in read), len(path))
    return shown_path(path[:end])


def is_below(path: str, fields: Collection[str]) -> bool:
    """Whether a path is one of some fields, or below one."""
    return any(path == field or path.startswith((f"{field}.", f"{field}{ITEMS}")) for field in fields)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 2].rstrip()} …"
