"""Errors and hints for rows that fit no schema: fields found and needed, and `columns` that would make them fit."""

import difflib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from packer.errors import InputError
from packer.source.decode import Refused
from packer.source.file_bytes import FilePath, jq_command, quoted
from packer.source.roles import ROLES
from packer.source.row import Columns, composed, rename
from packer.source.schema import SCHEMAS, fields_read, schema_of
from packer.source.synonyms import SYNONYMS, columns_yaml, meant_field
from packer.source.unsupported_rows import SUSPECT_FIELDS

_MAX_LISTED = 12

_REQUIRED = {"instruction", "output"}

_SPEAKER = frozenset({"role", "from", "speaker", "sender"})
"""Keys under which a turn of a dialogue names who speaks."""


def no_object(path: FilePath, first: Any, *, is_array: bool) -> InputError:
    """Return the error for a file of which no sampled row is an object; `first`: its first row, or why it has none."""
    hint = "expected one object per row; rows over 16 MiB are not sampled: name their schema with --schema"
    if isinstance(first, Refused):
        command = jq_command(path, ".") if first.code == "not_json" else None
        divided = f"; to write one object per line: {command}" if command else ""
        hint = f"the first: {first.code}, {first.reason}{divided}; {hint}"
    elif isinstance(first, list) and first and all(isinstance(each, dict) and "role" in each for each in first):
        rows = ".[] | " if is_array else ""
        hint = 'rows are lists of messages; give them a name, as in {"messages": [...]}'
        if (command := jq_command(path, f"{rows}{{messages: .}}")) is not None:
            hint += f": {command}"
    return InputError(f"{path}: none of the sampled rows is a JSON object", hint=hint)


def no_schema(path: FilePath, rows: Sequence[Mapping[str, Any]], columns: Columns) -> InputError:
    """Return the error for a file of which no row fits a schema. The rows are those before renaming columns."""
    refuse_absent_columns(str(path), _names(rows), columns)
    needed = "; ".join(
        f"{name}: {' and '.join('/'.join(group[:2]) + '/...' * (len(group) > 2) for group in schema.needs)}"
        for name, schema in SCHEMAS.items()
    )
    found = list_names(_names([rename(dict(row), columns) for row in rows])) or "none"
    return InputError(
        f"{path}: its rows fit no schema; fields found: {found}; fields needed: {needed}",
        hint=_wrapped_hint(path, rows) or columns_hint(rows, columns),
    )


def _wrapped_hint(path: FilePath, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the hint for a file that is one object with the rows in one of its fields, such as `{"data": [...]}`."""
    for name, value in rows[0].items() if len(rows) == 1 else ():
        if not (isinstance(value, list) and value and isinstance(value[0], dict)) or not _SPEAKER.isdisjoint(value[0]):
            continue  # turns of one dialogue are no rows
        if schema_of(value[0]) is not None:
            command = jq_command(path, f".{json.dumps(name)}[]")
            return f"its rows are in the list {quoted(name)}" + (f": {command}" if command else "; write one a line")
    return None


def refuse_unread_columns(path: FilePath, columns: Columns, schema: str) -> None:
    """Refuse a mapping to a field that the schema does not read, because its content would be lost silently.

    Raises:
        InputError: the schema does not have the field.
    """
    known = fields_read(schema)
    unread = next((new for new, old in columns.items() if old is not None and new not in known), None)
    if unread is None:
        return
    unsupported = SUSPECT_FIELDS - SCHEMAS[schema].fields
    guessed = meant_field(unread)
    near = [guessed] if guessed in known else difflib.get_close_matches(unread, sorted(known), 1)
    raise InputError(
        f"{path}: `columns` names {quoted(unread)}, which is not a field of schema {schema}",
        hint=f"did you mean {quoted(near[0])}?" if near else f"its fields: {', '.join(sorted(known - unsupported))}",
    )


def refuse_absent_columns(path: str, names: Collection[str], columns: Columns) -> None:
    """Refuse a mapping from a field that is not in `names`, the fields of the sampled rows.

    Raises:
        InputError: there is no such field.
    """
    for new, old in columns.items():
        if old is not None and old not in names:
            close = difflib.get_close_matches(old, list(names), 1)
            raise InputError(
                f"{path}: `columns` takes '{new}' from {quoted(old)}, but no sampled row has it; "
                f"found: {list_names(names)}",
                hint=f"did you mean {quoted(close[0])}?" if close else "name an existing field",
            )


def schema_hint(rows: Sequence[Mapping[str, Any]], schema: str, columns: Columns) -> str:
    """Return the hint for rows that do not fit the schema of their file."""
    renamed = [rename(dict(row), columns) for row in rows]
    found = f"the first rows have the fields {list_names(_names(renamed))}"
    votes = Counter(fit for row in renamed if (fit := schema_of(row)) is not None)
    if votes.pop(schema, 0) and votes:
        others = " or ".join(f"--schema {name}" for name, _ in votes.most_common())
        return (
            f"a file is read by one schema, here {schema}; other first rows fit {others}: give them files of their own"
        )
    if not votes:
        return f"{found}; {columns_hint(rows, columns)}"
    return f"{found}, which fit --schema {votes.most_common(1)[0][0]}; so does --schema auto"


def columns_hint(rows: Sequence[Mapping[str, Any]], columns: Columns) -> str:
    """Return a hint for setting `columns`, guessed from the names that datasets usually use."""
    found: dict[str, str] = {}
    renamed = [rename(dict(row), columns) for row in rows]
    values = {name: next((row[name] for row in renamed if row.get(name)), None) for name in _names(renamed)}
    for name, value in values.items():
        field = _guess_field_by_value(name, value)
        if field is None:
            continue
        before = found.setdefault(field, name)
        if field == "output" != before and (name == field or len(str(value)) > len(str(values[before]))):
            found[field] = name  # of a solution and an answer, the longer one is the reply
    asked = next((name for name, value in values.items() if _is_question(name, value)), None)
    answer = found.get("output", found.get("messages"))
    if asked is not None and answer is not None:
        around = {"system": found["system"]} if found.get("system", "system") != "system" else {}
        return _say_which(composed(columns, {"prompt": asked, "completion": answer, **around}))
    if "instruction" not in found and "input" in found:
        found["instruction"] = found.pop("input")
    for fields, required in (({"messages"},) * 2, ({"conversations"},) * 2, (SYNONYMS, _REQUIRED)):
        mapped = {field: found[field] for field in fields if found.get(field, field) != field}
        if mapped and required <= found.keys():
            return _say_which(composed(columns, mapped))
    return (
        "say which field is which with `columns`: --set 'sources.columns={instruction: FIELD, output: FIELD}', "
        "{messages: FIELD} or {text: FIELD}; the schema follows from the names"
    )


def _say_which(columns: Columns) -> str:
    return f"say which field is which with `columns`: --set 'sources.columns={{{columns_yaml(columns)}}}'"


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fields of some rows, the most frequent first."""
    return [name for name, _ in Counter(name for row in rows for name in row).most_common()]


def list_names(names: Iterable[str]) -> str:
    """List names of fields, quoted, and how many were left out."""
    every = list(names)
    more = len(every) - _MAX_LISTED
    return ", ".join(quoted(name) for name in every[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def _is_question(name: str, value: Any) -> bool:
    """Whether a value is a list of messages that an answer in another field continues."""
    if not isinstance(value, list) or name in SUSPECT_FIELDS or not all(isinstance(each, dict) for each in value):
        return False
    return ROLES.get(str(value[-1].get("role")).lower()) in {"user", "tool"}


def _guess_field_by_value(name: str, value: Any) -> str | None:
    """Guess which known field a field of another name corresponds to, but never for a side of a preference pair."""
    if isinstance(value, str):
        return meant_field(name)
    if isinstance(value, list) and isinstance(value[0], dict) and name not in SUSPECT_FIELDS:
        field, key = ("messages", "role") if "role" in value[0] else ("conversations", "from")
        last = value[-1].get(key) if isinstance(value[-1], dict) else None
        return field if ROLES.get(str(last).lower()) == "assistant" else None  # the answer may be in another field
    return None
