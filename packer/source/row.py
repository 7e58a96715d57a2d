"""Common to all schemas: how rows are renamed and typed, and the fields a row may have besides its messages."""

import json
import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec

from packer.batches import Sample
from packer.source.decode import (
    TRAIN_FIELDS,
    WEIGHT_FIELDS,
    Refused,
    as_flag,
    as_weight,
    decode_json,
    decoded_json,
    typed,
)

T = TypeVar("T")

Columns: TypeAlias = Mapping[str, str | None]
"""The `columns` of a source: new name of a field → its name in the rows, or None to hide the field."""

ID_FIELDS = ("sample_id", "id", "uuid")


class FileRow(msgspec.Struct, frozen=True, gc=False):
    """A row as read from its file."""

    content: bytes | dict[str, Any] | Refused
    """JSON that is not decoded yet, or a value (CSV and tables), or the reason why the row has none."""

    line: int | None
    """Number of its line in the partition or the file, from 1; None if rows are not lines."""

    num_bytes: int
    fields: dict[str, Any] | None = None
    """Requested columns of a table that are not part of its schema; in other formats, `content` has them already."""

    def value(self) -> Any:
        """Return the decoded row, or raise why it has no value."""
        if isinstance(self.content, bytes):
            return decode_json(self.content)
        if isinstance(self.content, Refused):
            raise self.content
        return self.content


LETTERS = string.ascii_uppercase
"""By which an answer names one of several."""

ANSWERS = ("output", "response", "completion")
"""Fields of schemas that are answers whole."""

_OF_PARAGRAPHS = ("system", "input", "context", "reasoning")
"""Fields whose texts may be given one by one."""

VARIABLES = "chat_template_kwargs"
"""Variables that a row gives to the template."""


def rename(row: dict[str, Any], columns: Columns) -> dict[str, Any]:
    r"""Return the row with its fields renamed by `columns` of a source.

    `columns` maps a new name to the name in the rows, or to None, which hides the field. A renamed field is no longer
    available under its old name, and replaces a field that already had the new name. A dot in the old name leads into
    an object, or into JSON text, and ``[].`` into those of a list. A list of one text is that text, and a list of
    several are the paragraphs of one where a row has what belongs to a question. If the answer is the letter of one,
    each has its letter. A whole number, true and false are texts where a row has its answer. A value under
    `chat_template_kwargs` is that of the variable of its name.

    Example:
        >>> rename({"q": "2+2?", "a": "4", "label": True}, {"instruction": "q", "output": "a", "label": None})
        {'instruction': '2+2?', 'output': '4'}
        >>> rename({"docs": ["One.", "Two."], "answers": {"text": ["4"]}}, {"input": "docs", "output": "answers.text"})
        {'answers': {'text': ['4']}, 'input': 'One.\n\nTwo.', 'output': '4'}
    """
    if not columns:
        return row
    used_names = {*columns, *columns.values()}
    renamed = {name: value for name, value in row.items() if name not in used_names}
    found = {new: field_value(row, old) for new, old in columns.items() if old is not None}
    for new, value in found.items():
        are_texts = isinstance(value, list) and value and all(isinstance(each, str) for each in value)
        if are_texts and new != VARIABLES and (len(value) == 1 or new in _OF_PARAGRAPHS):
            found[new] = "\n\n".join(_with_letters(value, {**renamed, **found}))
        elif new in ANSWERS and isinstance(value, int):
            found[new] = json.dumps(value)
        elif new == VARIABLES and value is not None and not isinstance(value, dict) and "{" not in str(value)[:1]:
            found[new] = {**(row.get(new) or {}), str(columns[new]).rpartition(".")[2]: value}
    return renamed | {new: value for new, value in found.items() if value is not None or columns[new] in row}


def _with_letters(texts: Sequence[str], row: Mapping[str, Any]) -> Sequence[str]:
    """Return texts to choose from with the letters by which the answer of a row names one; else as they are.

    Example:
        >>> _with_letters(["Oban", "Mallaig"], {"output": "B"}), _with_letters(["Oban"], {"output": "Oban"})
        (['A. Oban', 'B. Mallaig'], ['Oban'])
    """
    said = next((row[name] for name in ANSWERS if isinstance(row.get(name), str)), "").strip()
    lettered = [*zip(LETTERS, texts, strict=False)]
    if said not in [*LETTERS[: len(texts)]] or all(re.match(rf"\W?{letter}\W", text) for letter, text in lettered):
        return texts
    return [f"{letter}. {text}" for letter, text in lettered]


def first_name(path: str) -> str:
    """Return the field of a row that a path begins with, as `documents` of ``documents[].text``."""
    return path.partition(".")[0].removesuffix("[]")


def composed(columns: Columns, further: Columns) -> dict[str, str | None]:
    """Return the columns that do at once what two mappings do one after the other.

    A field that `further` hides stays hidden under its name in the file, too.

    Example:
        >>> composed({"prompt": "q", "completion": "a"}, {"instruction": "prompt", "output": "completion"})
        {'instruction': 'q', 'output': 'a'}
        >>> composed({"system": "sp"}, {"system": None})
        {'system': None, 'sp': None}
    """
    used = {*further, *further.values()}
    both = {new: old for new, old in columns.items() if new not in used}
    for new, old in further.items():
        both[new] = None if old is None else columns.get(old, old)
        if old is None and columns.get(new) is not None:
            both[str(columns[new])] = None
    return both


def field_value(row: Any, path: str) -> Any:
    """Return a field of a row as it is in the file, or None if it is null or absent.

    A dot leads into an object, or into JSON text, and ``[].`` into those of a list.

    Example:
        >>> field_value({"metadata": {"user": 7}, "a.b": 1}, "metadata.user"), field_value({"a.b": 1}, "a.b")
        (7, 1)
        >>> field_value({"docs": [{"text": "One."}], "metadata": '{"user": 7}'}, "metadata.user")
        7
    """
    name, separator, rest = path.partition(".")
    row = decoded_json(row) if isinstance(row, str) else row
    if not isinstance(row, dict):
        return None
    if name.endswith("[]") and isinstance(items := row.get(name[:-2]), list):
        return [found for each in items if (found := field_value(each, rest)) is not None]
    return row[path] if path in row else field_value(row.get(name), rest) if separator else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSchema:
    """A kind of row: how it is recognized, which fields it has, and how it is read."""

    needs: tuple[tuple[str, ...], ...]
    """Groups of fields; a row of this schema has at least one field of every group."""

    rows: tuple[type[msgspec.Struct], ...]
    """Typed forms of the rows; their fields are the columns that are read from a table."""

    extra_fields: tuple[str, ...] = ()
    """Further fields that it reads, of any type."""

    checked_fields: tuple[str, ...] = ()
    """Further fields by which it may refuse a row, and of which no document keeps anything."""

    read: Callable[[dict[str, Any], int], Sample]
    """Reads a row, given its number; raises :class:`~packer.source.decode.Refused` if it cannot be a sample."""

    read_plain: Callable[[Sequence[Mapping[str, Any]], int], list[Sample | None]] | None = None
    """Reads many rows, given the number of the first, as `read` does, which reads those for which it returns None. It
    is not asked about rows with fields in which there may be more."""

    help: str
    """Description of its fields for docs/reference/recipe.md."""

    is_templated: bool = False
    """Whether every row goes through the chat template."""

    compares: str | None = None  # what its rows are, if answers are compared, not imitated: "pairs"
    is_rated: bool = True
    """Whether a boolean `label` is a rating of the answer; beside plain text it is a label like any other."""

    accepts: Callable[[Mapping[str, Any]], bool] = lambda _: True
    """Whether the values of a row that has the fields fit this schema; only used to infer the schema."""

    json_fields: tuple[str, ...] = ()
    """Fields that are not texts: a text in such a column of a table is JSON. `tools` may be JSON in every format."""

    message_fields: tuple[str, ...] = ()
    """Fields that are texts or messages: a text in such a field may be the JSON of messages, in every format."""

    @property
    def fields(self) -> frozenset[str]:
        """All its fields, except the sample's id."""
        return frozenset(self.extra_fields + self.checked_fields).union(*(row.__struct_fields__ for row in self.rows))

    def missing(self, row: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the first group of fields of which the row has none; None if the row fits the schema."""
        for group in self.needs:
            for name in group:
                if row.get(name) is not None:
                    break
            else:
                return group
        return None


def row_too_large_error(max_row_bytes: int) -> Refused:
    return Refused("row_too_large", f"more than rows.max_bytes, {max_row_bytes} bytes")


class RowFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a chat row besides its messages; every chat schema extends it."""

    tools: list[Any] | dict[str, Any] | str | None = None
    functions: list[Any] | dict[str, Any] | str | None = None
    """The older name of `tools`."""

    system: str | list[Any] | None = None
    """A text, or its parts, as Anthropic's requests have it."""

    chat_template_kwargs: dict[str, Any] | None = None


OPTIONAL_FIELDS = frozenset(
    {"tools", "functions", "system", "chat_template_kwargs", "input", "context", "history", "reasoning"}
)
"""Fields of a row that may be empty."""

OPTIONAL_MESSAGE_FIELDS = frozenset(
    {"tool_calls", "function_call", "refusal", *TRAIN_FIELDS, *WEIGHT_FIELDS, "train_detail"}
)
"""Fields of a message that may be empty. Empty reasoning is not among them, because some templates render it."""

_EMPTY_VALUES: tuple[Any, ...] = (None, "", [], {})


def drop_empty_fields(fields: Any, optional: frozenset[str]) -> Any:
    """Return a row or a message without optional fields that are empty: null, an empty text, list or object.

    Example:
        >>> drop_empty_fields({"instruction": "2+2?", "output": "", "history": ""}, OPTIONAL_FIELDS)
        {'instruction': '2+2?', 'output': ''}
    """
    if not isinstance(fields, dict) or optional.isdisjoint(fields):
        return fields
    return {name: value for name, value in fields.items() if name not in optional or value not in _EMPTY_VALUES}


def drop_empty_optional_fields(row: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the row without empty optional fields, also in the lists of messages under these names."""
    row = drop_empty_fields(row, OPTIONAL_FIELDS)
    lists = {name: row[name] for name in names if isinstance(row.get(name), list)}
    kept = {
        name: [_with_flags(drop_empty_fields(each, OPTIONAL_MESSAGE_FIELDS)) for each in lists[name]] for name in lists
    }
    return row | kept if kept else row


def _with_flags(message: Any) -> Any:
    """Return a message with what decides whether it is trained, and may be a text, as booleans and numbers."""
    if not isinstance(message, dict):
        return message
    given = {name: message[name] for name in TRAIN_FIELDS if name in message}
    said: dict[str, float | None] = {
        name: as_flag(value) for name, value in given.items() if name != "loss" or isinstance(value, str)
    }
    weights = {name: as_weight(message[name]) for name in WEIGHT_FIELDS if isinstance(message.get(name), str)}
    said |= {name: weight for name, weight in weights.items() if not math.isnan(weight)}
    return message | {name: flag for name, flag in said.items() if flag is not None}


def typed_row(row: dict[str, Any], shape: type[T], *names: str) -> T:
    """Convert the row to a struct; an empty optional field may have the wrong type.

    `names` are those of its fields that are lists of messages.
    """
    try:
        return msgspec.convert(row, shape)
    except msgspec.ValidationError:
        return typed(drop_empty_optional_fields(row, *names), shape)


def sample_id(row: Mapping[str, Any]) -> str | None:
    """Return the row's own id: the first of `sample_id`, `id`, `uuid` that is a nonempty string or an integer."""
    if row.keys().isdisjoint(ID_FIELDS):
        return None
    for field in ID_FIELDS:
        value = row.get(field)
        if value not in (None, "") and isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
    return None
