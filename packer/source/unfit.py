"""What to say where rows do not fit: which fields they have, which are needed, and which schema they would fit."""

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer.errors import InputError
from packer.source.chunks import shown
from packer.source.column_hint import columns_hint, field_meant
from packer.source.columns import rename
from packer.source.projection import fields_read
from packer.source.schema import FIELDS, Schema, schema_of
from packer.source.unsuited import TELLING_FIELDS

_MOST_NAMED = 12


def no_schema(path: Path, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str | None]) -> InputError:
    """The error for a file none of whose rows fits a schema.

    Args:
        path: The file.
        rows: Those looked at, before their columns are renamed.
        columns: New name of a field → its name in the rows, or None to hide it.

    """
    if not rows:
        return InputError(f"{path}: none of the rows looked at is a JSON object", hint="expected one object a row")
    names = Counter(name for row in rows for name in rename(dict(row), columns))
    if any("\r" in name for name in names):
        return InputError(
            f"{path}: its header goes on over bare carriage returns", hint="end lines with newlines: tr '\\r' '\\n'"
        )
    absent = absent_column(rows, columns)
    if absent is not None:
        said, hint = absent
        return InputError(f"{path}: {said}", hint=hint)
    found = ", ".join(shown(name) for name, _ in names.most_common(_MOST_NAMED)) or "none"
    message = f"{path}: its rows fit no schema; fields found: {found}; fields needed: {_needed()}"
    return InputError(message, hint=columns_hint(rows, columns))


def refuse_unread_columns(path: Path, columns: Mapping[str, str | None], schema: Schema | None) -> None:
    """Refuse a mapping to a field that rows are not read from: what it names would be lost without a word.

    Args:
        path: The file.
        columns: New name of a field → its name in the rows, or None to hide it.
        schema: How rows are read; None where that is to be found out.

    Raises:
        InputError: the schema, or every schema, is without the field.

    """
    known = fields_read(schema) if schema is not None else set().union(*map(fields_read, FIELDS))
    unread = next((new for new, old in columns.items() if old is not None and new not in known), None)
    if unread is None:
        return
    near = next(iter(difflib.get_close_matches(unread, sorted(known), 1)), None)
    if (field := field_meant(unread)) in known:
        near = field
    raise InputError(
        f"{path}: `columns` names {shown(unread)}, which is no field of {f'schema {schema}' if schema else 'a schema'}",
        hint=f"did you mean {shown(near)}?" if near else f"its fields: {', '.join(sorted(known - TELLING_FIELDS))}",
    )


def refuse_absent_columns(path: str, names: Collection[str], columns: Mapping[str, str | None]) -> None:
    """Refuse a mapping from a field that no row looked at has.

    Args:
        path: The source.
        names: Fields of the rows looked at.
        columns: New name of a field → its name in the rows, or None to hide it.

    Raises:
        InputError: there is no such field.

    """
    absent = absent_column([dict.fromkeys(names)], columns)
    if absent is not None:
        raise InputError(f"{path}: {absent[0]}", hint=absent[1])


def absent_column(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str | None]) -> tuple[str, str] | None:
    """What is wrong and the way out, where `columns` names a field that no row has; else None."""
    names = Counter(name for row in rows for name in row)
    for new, old in columns.items():
        if old is not None and old not in names:
            there = listed(name for name, _ in names.most_common())
            said = f"`columns` takes '{new}' from {shown(old)}, and no row looked at has it; there are: {there}"
            return said, _spelling(old, names)
    return None


def _spelling(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), 1)
    return f"did you mean {shown(close[0])}?" if close else "name a field that is there"


def schema_hint(rows: Sequence[Mapping[str, Any]], schema: Schema, columns: Mapping[str, str | None]) -> str:
    """The way out where no row fits the schema that was named for it.

    Args:
        rows: Some of them, before their columns are renamed.
        schema: As it was named.
        columns: New name of a field → its name in the rows, or None to hide it.

    """
    absent = absent_column(rows, columns)
    if absent is not None:
        return f"{absent[0]}: {absent[1]}"
    renamed = [rename(dict(row), columns) for row in rows]
    found = listed(name for name, _ in Counter(name for row in renamed for name in row).most_common())
    votes = Counter(fit for row in renamed if (fit := schema_of(row)) not in {None, schema})
    if not votes:
        return f"the first rows have the fields {found}; {columns_hint(rows, columns, schema)}"
    fit = votes.most_common(1)[0][0]
    return f"the first rows have the fields {found}, which fit --schema {fit}; so does --schema auto"


def _needed() -> str:
    """The fields of every schema, those of token rows last and not all of them."""
    schemas = sorted(FIELDS.items(), key=lambda item: item[0] == "tokens")
    return "; ".join(f"{schema}: {' and '.join(map(_choice, groups))}" for schema, groups in schemas)


def _choice(group: Sequence[str]) -> str:
    return "/".join(group[:2]) + "/..." * (len(group) > 2)


def listed(names: Iterable[str]) -> str:
    """Names of fields, quoted, and how many more there are."""
    every = list(names)
    more = len(every) - _MOST_NAMED
    return ", ".join(shown(name) for name in every[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
