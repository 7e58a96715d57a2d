"""What is said where rows fit no schema: fields they have and need, and `columns` with which they would fit one."""

import difflib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer.errors import InputError
from packer.source.columns import fields_read
from packer.source.file_bytes import shown
from packer.source.schema import FIELDS, Schema, rename, schema_of
from packer.source.unsupported_rows import SUSPECT_FIELDS

_MOST_NAMED = 12

_SYNONYMS: dict[str, tuple[str, ...]] = {
    "instruction": ("instruction", "question", "prompt", "query", "problem"),
    "reasoning": (
        "reasoning",
        "reasoningcontent",
        "cot",
        "complexcot",
        "chainofthought",
        "thinking",
        "thought",
        "rationale",
    ),
    "output": ("output", "answer", "response", "completion", "solution"),
}
"""Fields of schema `alpaca`, and what data sets call them: small letters and digits alone."""

_COMPLETE: dict[Schema, set[str]] = {
    "messages": {"messages"},
    "sharegpt": {"conversations"},
    "alpaca": {"instruction", "output"},
}
"""Fields with which rows fit a schema."""

_MEANT = {synonym: field for field, synonyms in _SYNONYMS.items() for synonym in synonyms}


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
        hint=f"did you mean {shown(near)}?" if near else f"its fields: {', '.join(sorted(known - SUSPECT_FIELDS))}",
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
    """Message and hint, where `columns` names a field that no row has; else None."""
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
    """The hint where no row fits the schema that was named for it.

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


def field_meant(name: str) -> str | None:
    """The field of schema `alpaca` that a name stands for.

    Example:
        >>> field_meant("Complex_CoT")
        'reasoning'

    """
    return _MEANT.get(re.sub(r"[^a-z0-9]", "", name.lower()))


def columns_hint(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str | None], schema: Schema | None = None
) -> str:
    """How to say which field is which, by the fields there are; it does not choose where two may be meant.

    Args:
        rows: Some rows, before their columns are renamed.
        columns: New name of a field → its name in the rows, or None to hide it.
        schema: The schema that was named, if one was.

    """
    renamed = [rename(dict(row), columns) for row in rows]
    found: dict[str, list[str]] = {}
    for name, _ in Counter(name for row in renamed for name in row).most_common():
        field = _field(name, next((row[name] for row in renamed if row.get(name)), None))
        if field is not None:
            found.setdefault(field, []).append(columns.get(name) or name)
    fits = next((fit for fit, fields in _COMPLETE.items() if fields <= found.keys()), None)
    fields = [field for field in ("messages", "conversations", *_SYNONYMS) if found.get(field) not in (None, [field])]
    if fits is None or not fields or (fits != "alpaca" and not found.keys().isdisjoint(_SYNONYMS)):
        return (
            "say which field is which with `columns`: --set 'sources.columns={instruction: FIELD, output: FIELD}', "
            "{messages: FIELD} or {text: FIELD}; the schema follows from the names"
        )
    unsure = [f"{_either(found[field])} may be the {field}" for field in fields if len(found[field]) > 1]
    pairs = [f"{field}: {'FIELD' if len(found[field]) > 1 else _as_yaml(found[field][0])}" for field in fields]
    option = f"--schema {fits} " if schema not in {None, fits} else ""
    said = "".join(f"{each}; " for each in unsure)
    return f"{said}say which field is which with `columns`: {option}--set 'sources.columns={{{', '.join(pairs)}}}'"


def _field(name: str, value: Any) -> str | None:
    """The field that one of this name, with such a value, would be; a side of a preference pair is none."""
    if isinstance(value, str):
        return field_meant(name)
    if isinstance(value, list) and isinstance(value[0], dict) and name not in SUSPECT_FIELDS:
        return "messages" if "role" in value[0] else "conversations" if "from" in value[0] else None
    return None


def _either(names: Sequence[str]) -> str:
    return f"{', '.join(map(shown, names[:-1]))} or {shown(names[-1])}"


def _as_yaml(name: str) -> str:
    """A name as a value in YAML and within quotes of a shell."""
    return name if re.fullmatch(r"\w+", name) else json.dumps(name, ensure_ascii=False).replace("'", "'\\''")
