"""Determines which schema a row fits and which columns of a table it needs, and reads rows."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import pyarrow as pa

from packer.batches import Sample
from packer.recipe import ROW_SCHEMAS
from packer.source.decode import Refused, parse_cell_json, parse_messages, type_name
from packer.source.forms import FIELDS as FORM_FIELDS
from packer.source.forms import FORM_MARKS, form_of, with_known_parts
from packer.source.roles import MESSAGE_LISTS, rename_roles
from packer.source.row import ID_FIELDS, VARIABLES, Columns, RowSchema, first_name, rename
from packer.source.tokens import LABEL_FIELDS
from packer.source.unsupported_rows import (
    SUSPECT_FIELDS,
    is_preference,
    may_say_end,
    refuse_cut,
    refuse_unsupported,
)
from packer.source.written_calls import refuse_calls_in_text

SCHEMAS: dict[str, RowSchema] = {name: import_module(module).SCHEMA for name, module in ROW_SCHEMAS.items()}
"""All schemas; a row that fits several has the first."""

_MESSAGE_FIELDS = tuple(dict.fromkeys(name for schema in SCHEMAS.values() for name in schema.message_fields))
VOTING_FIELDS = frozenset(name for schema in SCHEMAS.values() for group in schema.needs for name in group)
"""Fields by which a schema is recognized."""

_FIELDS = {name: schema.fields for name, schema in SCHEMAS.items()}
_JSON_FIELDS = {
    name: tuple(field for schema in SCHEMAS.values() for field in schema.json_fields if field in fields)
    for name, fields in _FIELDS.items()
}
_MOST_NAMES = 64
"""Fields of a row up to which it is remembered what they are: others may be named by dates, and be many."""

_SUSPECT = {name: SUSPECT_FIELDS - fields for name, fields in _FIELDS.items()}


def schema_of(row: dict[str, Any]) -> str | None:
    """Return the schema that a row votes for, or None.

    One side of a pair votes for `preference`, and ids without labels or mask vote for `tokens`. So a file of such rows
    has a schema, and each of its rows is rejected with a specific reason.
    """
    if not FORM_MARKS.isdisjoint(row) and (form := form_of(row)) is not None:
        return form.schema
    for name, schema in SCHEMAS.items():
        if schema.missing(row) is None and schema.accepts(row):
            return name
    if is_preference(row):
        return "preference"
    return "tokens" if row.get("input_ids") is not None else None


def read_row(value: Any, *, number: int, schema: str, columns: Columns, roles: Mapping[str, str] = {}) -> Sample:
    """Read a decoded row as a sample; `number` is its position in the partition, from 0.

    Raises:
        Refused: the row cannot be a sample.
    """
    if not isinstance(value, dict):
        raise Refused("wrong_type", f"expected `object`, got `{type_name(value)}`")
    row = rename(value, columns)
    if not FORM_MARKS.isdisjoint(row) and (form := form_of(row)) is not None:
        refuse_unsupported(row, suspect=_SUSPECT[form.schema], rated=True)
        hidden = {VARIABLES} if columns.get(VARIABLES, VARIABLES) is None else {""}
        row = {name: each for name, each in form.rewrite().items() if name not in hidden}
    fields = (_fields_named if len(row) <= _MOST_NAMES else _fields_named.__wrapped__)(schema, tuple(row))
    row = _decoded(row, fields)
    row = rename_roles(row, roles) if roles else row
    if not _SUSPECT[schema].isdisjoint(row):
        refuse_unsupported(row, suspect=_SUSPECT[schema], rated=SCHEMAS[schema].is_rated)
    logs = {name: row[name] for name in fields.others if _may_be_log(row[name])}
    if logs or fields.ends:
        refuse_cut(logs | {name: row[name] for name in fields.ends}, where="$")
    missing = SCHEMAS[schema].missing(row)
    if missing is not None:
        if missing == LABEL_FIELDS:
            raise Refused("no_labels", f"neither labels nor a mask: none of {', '.join(missing)}")
        raise Refused("unknown_schema", f"no field `{'` or `'.join(missing)}`, which schema {schema} needs")
    sample = SCHEMAS[schema].read(row, number)
    refuse_calls_in_text(sample)
    return sample


class _Named(NamedTuple):
    """What some of a row's fields are for a schema, judging by their names alone: rows of a file have the same ones."""

    json: tuple[str, ...]
    messages: tuple[str, ...]
    parts: tuple[str, ...]
    ends: tuple[str, ...]
    """Not read, and may say how an answer ended."""

    others: tuple[str, ...]


@lru_cache(maxsize=64)
def _fields_named(schema: str, names: tuple[str, ...]) -> _Named:
    read, present = _FIELDS[schema], {*names}
    unread = [name for name in names if name not in read]
    return _Named(
        json=tuple(name for name in _JSON_FIELDS[schema] if name in present),
        messages=tuple(name for name in _MESSAGE_FIELDS if name in present and name in read),
        parts=tuple(name for name in MESSAGE_LISTS if name in present),
        ends=tuple(name for name in unread if may_say_end(name)),
        others=tuple(name for name in unread if not may_say_end(name)),
    )


def read_plain_rows(
    values: Sequence[Any], first: int, *, schema: str, columns: Columns, roles: Mapping[str, str]
) -> list[Sample | None]:
    """Read the rows that are no more than they seem, as most are, to the samples that :func:`read_row` makes of them.

    Whether they are is told by the names of their fields, for all rows with the same ones at once, and by whether
    another field may have something in it. None stands for a row that is to be read by itself.
    """
    read = SCHEMAS[schema].read_plain
    if read is None or columns or roles:
        return [None] * len(values)
    names = [tuple(value) if type(value) is dict else None for value in values]
    unread = {each: None if each is None else _unread_if_plain(schema, each) for each in {*names}}
    if any(each != () for each in unread.values()):
        values = [
            value if (own := unread[each]) is not None and not any(_may_be_log(value[name]) for name in own) else {}
            for value, each in zip(values, names, strict=True)
        ]
    return read(values, first)


def _unread_if_plain(schema: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return those of a row's fields that are not read; None if there may be more in some than its schema reads."""
    if len(names) > _MOST_NAMES or not (FORM_MARKS.isdisjoint(names) and _SUSPECT[schema].isdisjoint(names)):
        return None
    fields = _fields_named(schema, names)
    return None if fields.ends or fields.json else fields.others


def _decoded(row: dict[str, Any], fields: _Named) -> dict[str, Any]:
    """Return the row with the JSON in its texts decoded, and parts of other servers as those that packer reads."""
    for name in fields.json:
        if isinstance(row[name], str):
            row = row | {name: parse_cell_json(row[name], name)}
    for name in fields.messages:
        if isinstance(text := row[name], str) and (messages := parse_messages(text, name)) is not text:
            row = row | {name: messages}
    for name in fields.parts:
        contents = [each.get("content") for each in row[name] if type(each) is dict] if type(row[name]) is list else []
        if list in map(type, contents):
            row = row | {name: [*map(with_known_parts, row[name])]}
    return row


def _may_be_log(value: Any) -> bool:
    """Whether a value may have a field in it, as an object, or as JSON text."""
    return value[:1] in ("{", "[") if type(value) is str else type(value) in (dict, list)


def fields_read(schema: str) -> frozenset[str]:
    """Return the fields that are read from rows of a schema."""
    return _FIELDS[schema] | SUSPECT_FIELDS | {*ID_FIELDS}


def columns_read(table: pa.Schema, schema: str | None, columns: Columns) -> dict[str, bool]:
    """Return those columns of a table that are read, in its order; true: all of its values, as a schema reads it.

    Of others with texts in them, only what may say how an answer ended. If `schema` is None, these are the columns
    that determine one.
    """
    types = {field.name: field.type for field in table}
    fields = VOTING_FIELDS | SUSPECT_FIELDS if schema is None else fields_read(schema)
    read = {*columns_with_fields([*fields | FORM_FIELDS], [*types], columns)}
    hidden = {name for pair in columns.items() for name in pair} - read
    found = {}
    for name, kind in types.items():
        is_whole = name in read or may_say_end(f"{name}: {kind}")
        is_text = schema is not None and "string" in str(kind)
        if name not in hidden and (is_whole or is_text):
            found[name] = is_whole
    return found


def columns_with_fields(fields: Sequence[str], names: Sequence[str], columns: Columns) -> tuple[str, ...]:
    """Return those columns of a table that contain one of these fields."""
    used_names = set(columns.values())
    asked = (columns.get(field, field) for field in fields if field in columns or field not in used_names)
    columns_of_table = (name if name in names else first_name(name or "") for name in asked)
    return tuple(name for name in columns_of_table if name is not None and name in names)
