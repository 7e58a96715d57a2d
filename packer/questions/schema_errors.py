"""Errors and hints for rows that match no schema: fields found and needed, and `columns` that would make them fit."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from packer.errors import InputError, did_you_mean, near
from packer.questions.conversations import SAID_BEFORE, conversation_hint
from packer.questions.field_names import meant_field
from packer.questions.proposals import Proposal, Reading, most_fit, propose
from packer.questions.question_fields import Fields, list_names
from packer.questions.read_places import ITEMS
from packer.questions.texts import has_word, is_text, strings
from packer.recipe.named_options import as_option, flow_mapping
from packer.source.decode import Refused
from packer.source.detect import column_types, first_rows, first_value
from packer.source.file_bytes import CSV_FORMATS, TABLE_FORMATS, FilePath, Format, quoted
from packer.source.jq_commands import jq_command
from packer.source.roles import SPEAKERS, guess_roles
from packer.source.row import Columns, composed, first_name, rename
from packer.source.schema import SCHEMAS, fields_read, read_row, schema_of
from packer.source.unsupported_rows import SUSPECT_FIELDS

_TRIED_ROWS = 64


def no_schema(path: FilePath, format: Format, columns: Columns) -> InputError:  # noqa: A002 - the recipe's word
    """Return the error for a file of which no sampled row fits a schema; the hint says with what they would."""
    if format in CSV_FORMATS or format in TABLE_FORMATS:
        found = column_types(path, format)
        whole = first_rows(path, format, columns, _TRIED_ROWS, every_column=True)
        error = _of_rows(path, [dict.fromkeys(found) | row for row in whole] or [found], columns)
        if format in CSV_FORMATS and all(map(is_text, found)):
            error.hint = f"if the first line is a row, write one with the names of its fields above it; {error.hint}"
        return error
    rows = [*first_rows(path, format, columns)]
    if not rows:
        return _no_object(path, first_value(path, format, columns))
    return _of_rows(path, rows, columns)


def _no_object(path: FilePath, first: Any) -> InputError:
    """Return the error for a file of which no sampled row is an object; `first`: its first row, or why it has none."""
    hint = "expected one object per row; rows over 16 MiB are not sampled: name their schema with --schema"
    if isinstance(first, Refused):
        command = jq_command(path, ".") if first.code == "not_json" else None
        divided = f"; to write one object per line: {command}" if command else ""
        hint = f"the first: {first.code}, {first.reason}{divided}; {hint}"
    elif (
        isinstance(first, list)
        and first
        and (
            all(isinstance(each, dict) for each in first)
            or (all(isinstance(each, str) for each in first) and is_text(*first))
        )
    ):
        are_messages = isinstance(first[0], dict) and "from" not in first[0]
        name = "messages" if are_messages else "conversations"
        hint = f'rows are lists; give them a name, as in {{"{name}": [...]}}'
    return InputError(f"{path}: none of the sampled rows is a JSON object", hint=hint)


def _of_rows(path: FilePath, rows: Sequence[Mapping[str, Any]], columns: Columns) -> InputError:
    """Return the error for rows that fit no schema, as they are before columns are renamed."""
    refuse_absent_columns(str(path), _names(rows), columns)
    found = list_names(_names([rename(dict(row), columns) for row in rows])) or "none"
    return InputError(
        f"{path}: its rows match no schema; fields found: {found}",
        hint=_wrapped_hint(path, rows)
        or conversation_hint(path, rows)
        or _whole_hint(rows)
        or columns_hint(rows, columns),
    )


def _whole_hint(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the hint for a file whose rows are the items of one conversation, as a server lists them."""
    with suppress(Refused):
        read_row({"input": [*rows]}, number=0, schema="messages", columns={}, roles={})
        return 'if the items of a file are one conversation, write them as one row: {"input": [...]}'
    return None


def _wrapped_hint(path: FilePath, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the hint for a file that is one object with the rows in one of its fields, such as `{"data": [...]}`."""
    if len(rows) != 1 or any(isinstance(value, str) and is_text(value) for value in rows[0].values()):
        return None  # a row with passages, say
    for name, value in rows[0].items():
        if not (isinstance(value, list) and value and isinstance(value[0], dict)) or not SPEAKERS.isdisjoint(value[0]):
            continue  # turns of one dialogue are no rows
        if schema_of(value[0]) is not None:
            command = jq_command(path, f".{json.dumps(name)}[]")
            return f"its rows are in the list {quoted(name)}" + (f": {command}" if command else "; write one a line")
    return None


def refuse_unread_columns(path: FilePath, columns: Columns, schema: str) -> None:
    """Refuse a mapping to a field that the schema does not read, because its content would be lost silently."""
    known = fields_read(schema)
    unread = next((new for new, old in columns.items() if old is not None and new not in known), None)
    if unread is None:
        return
    unsupported = SUSPECT_FIELDS - SCHEMAS[schema].fields
    guessed = meant_field(unread)
    meant = [guessed] if guessed in known else near(unread, sorted(known))
    raise InputError(
        f"{path}: `columns` names {quoted(unread)}, which is not a field of schema {schema}",
        hint=did_you_mean(meant, f"its fields: {', '.join(sorted(known - unsupported))}"),
    )


def refuse_absent_columns(path: str, names: Collection[str], columns: Columns) -> None:
    """Refuse a mapping from a field that is not in `names`, the fields of the sampled rows."""
    for new, old in columns.items():
        if old is not None and old not in names and first_name(old) not in names:
            hint = did_you_mean(near(old, names), "name an existing field")
            if new in names and not near(old, names):
                hint = f"the schema's field comes first: {as_option(f'sources.columns={flow_mapping({old: new})}')}"
            raise InputError(
                f"{path}: `columns` takes '{new}' from {quoted(old)}, but no sampled row has it; "
                f"found: {list_names(names)}",
                hint=hint,
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
    """Return a hint for setting `columns`. Names say what is proposed, and it was tried on the rows.

    What leaves the fewest texts unread is proposed. Where that is several ways or none, fields are to be filled in.
    """
    sampled = [dict(row) for row in rows if row][:_TRIED_ROWS]
    fields = Fields([rename(row, columns) for row in sampled])
    if fields.turns:
        return f"if {fields.turns} {SAID_BEFORE}"
    tried = [each for further in fields.named() if (each := _tried(sampled, columns, further)) is not None]
    fewest = min((len(each.left) for each in tried), default=0)
    best = [each for each in tried if len(each.left) == fewest]
    if len(best) != 1:
        return fields.ways(columns)
    ignored, ways = _left_out(best[0]), [best[0].fill_in] * bool(best[0].fill_in)
    ways.append(best[0].reading.setting(ignored) + " leaves out what may belong to the prompt" * bool(ignored))
    return f"say which field is which: {'; '.join(sorted(ways, key=lambda way: not way.startswith('--')))}"


def _left_out(proposal: Proposal) -> list[str]:
    """Return what is to be ignored, but for keys of messages, which a build asks about."""
    messages = {proposal.reading.columns.get(field) or field for field in ("messages", "conversations", "prompt")}
    return [path for path in proposal.left if ITEMS not in path or path.partition(ITEMS)[0] not in messages]


def _tried(rows: Sequence[dict[str, Any]], columns: Columns, further: Columns) -> Proposal | None:
    """Return how rows are read with further columns, and what reads more of them; None if few are read."""
    both = composed(columns, further)
    renamed = [rename(row, both) for row in rows]
    reading = Reading(schema=None, columns=both, roles=guess_roles(renamed))
    found = reading.unread(rows)
    if found is None or 2 * found.num_read < len(rows):
        return None
    if any(2 * sum(bool(row.get(new)) for row in renamed) < found.num_read for new in further):
        return None  # an empty question or answer
    proposal = propose(rows, reading)
    read = {
        *fields_read(most_fit(rows, both) or "text"),
        *map(first_name, filter(None, proposal.reading.columns.values())),
    }
    lists = {name: value for row in rows for name, value in row.items() if isinstance(value, list) and name not in read}
    tables = [name for name, value in lists.items() if value and all(isinstance(each, list) for each in value)]
    worded = [name for name in tables if any(map(has_word, strings(lists[name])))]  # a question may be about it
    return replace(proposal, left=tuple(dict.fromkeys([*proposal.left, *worded])))


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fields of some rows, the most frequent first."""
    return [name for name, _ in Counter(name for row in rows for name in row).most_common()]
