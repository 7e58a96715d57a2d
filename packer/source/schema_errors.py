"""Errors and hints for rows that fit no schema: fields found and needed, and `columns` that would make them fit."""

import difflib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from packer.errors import InputError
from packer.source.decode import Refused
from packer.source.exports import export_hint
from packer.source.field_names import is_setting, meant_field
from packer.source.file_bytes import FilePath, jq_command, quoted
from packer.source.proposals import Reading, propose
from packer.source.roles import ROLES, guess_roles
from packer.source.row import Columns, composed, rename
from packer.source.schema import SCHEMAS, fields_read, schema_of
from packer.source.unsupported_rows import SUSPECT_FIELDS

_MAX_LISTED = 12

_TRIED_ROWS = 64
_MOST_NAMES = 4

_OR = "; of two fields that may be the same thing, only one is read"

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
        hint=_wrapped_hint(path, rows) or export_hint(path, rows) or columns_hint(rows, columns),
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
        if old is not None and old not in names and old.partition(".")[0] not in names:
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
    """Return a hint for setting `columns`. Names order what is tried, and the rows decide.

    What leaves the fewest texts unread is proposed; two fields that could be the same are named as two.
    """
    sampled = [dict(row) for row in rows if row][:_TRIED_ROWS]
    tried = [found for further in _candidates(sampled, columns) if (found := _tried(sampled, columns, further))]
    if not tried:
        return _unnamed_hint(sampled, columns)
    fewest = min(len(left) for _, left in tried)
    best = [found for found in tried if len(found[1]) == fewest][: 2 if fewest else 1]
    rivals = [each for each in best if each is best[0] or any(old in each[1] for old in best[0][0].columns.values())]
    ways = " or ".join(each.setting(left) for each, left in rivals)
    left_out = f"; nothing reads what --ignore names, and some may belong to the prompt{_OR * (len(rivals) > 1)}"
    return f"say which field is which with `columns`: {ways}{left_out if fewest else ''}"


def _unnamed_hint(rows: Sequence[dict[str, Any]], columns: Columns) -> str:
    """Return the hint for rows whose names do not tell what is the question and what the answer.

    The fields with the longest texts are named in each order, and the longest as a text of its own. All were tried.
    """
    lengths = Counter[str]()
    for row in rows:
        for path, text in _texts(row):
            lengths[path] += len(text)
    longest = [path for path, _ in lengths.most_common(2)]
    ways = [
        (f"if `{answer}` answers `{question}`, ", {"instruction": question, "output": answer})
        for answer in longest
        for question in longest
        if question != answer and meant_field(question) != "output" and meant_field(answer) != "instruction"
    ]
    ways += [(f"if `{path}` is trained whole, ", {"text": path}) for path in longest[:1] if meant_field(path) is None]
    found = [
        f"{when}{reading.setting(left)}"
        for when, further in ways
        for reading, left in filter(None, [_tried(rows, columns, further)])
    ]
    if not found:
        texts = f"the fields with texts are {list_names(lengths)}" if lengths else "no field of these rows has a text"
        return f"{texts}; packer reads messages, questions with answers, texts, and token ids"
    return f"say which field is which with `columns`: {'; '.join(found)}"


def _texts(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a row and of the objects in it, with the paths by which `columns` finds them."""
    for name, value in row.items():
        if isinstance(value, str) and name not in SUSPECT_FIELDS and not is_setting(value):
            yield name, value
        elif isinstance(value, dict):
            yield from ((f"{name}.{key}", each) for key, each in value.items() if isinstance(each, str))


def _candidates(rows: Sequence[dict[str, Any]], columns: Columns) -> Iterator[Columns]:
    """Yield columns for a question and its answer; those come first whose answers are longest."""
    renamed = [rename(row, columns) for row in rows]
    values = {name: [row[name] for row in renamed if row.get(name)] for name in _names(renamed)}
    texts = {name: found for name, found in values.items() if found and isinstance(found[0], str)}
    answers = sorted(
        (name for name in texts if meant_field(name) == "output"),
        key=lambda name: (name != "output", -sum(len(str(value)) for value in texts[name]) / len(texts[name])),
    )[:_MOST_NAMES]
    answers += [name for name, found in values.items() if found and _messages_field(name, found[0]) == "messages"]
    asked = [name for name, found in values.items() if found and _is_question(name, found[0])]
    yield from ({"prompt": question, "completion": answer} for question in asked for answer in answers)
    for name, found in values.items():
        if found and (field := _messages_field(name, found[0])) is not None:
            yield {field: name}
    questions = [name for name in texts if meant_field(name) == "instruction"]
    questions = questions or [name for name in texts if meant_field(name) == "input"]
    for question in sorted(questions, key=lambda name: name != "instruction")[:_MOST_NAMES]:
        for answer in answers:
            if renamed_to := {new: old for new, old in (("instruction", question), ("output", answer)) if new != old}:
                yield renamed_to


def _tried(
    rows: Sequence[dict[str, Any]], columns: Columns, further: Columns
) -> tuple[Reading, tuple[str, ...]] | None:
    """Return how rows are read with further columns, and the fields that nothing reads then; None if few are read."""
    both = composed(columns, further)
    renamed = [rename(row, both) for row in rows]
    reading = Reading(schema=None, columns=both, roles=guess_roles(renamed))
    found = reading.unread(rows)
    if found is None or 2 * found.num_read < len(rows):
        return None
    if any(2 * sum(bool(row.get(new)) for row in renamed) < found.num_read for new in further):
        return None  # an empty question or answer
    proposal = propose(rows, reading)
    return proposal.reading, proposal.left


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


def _messages_field(name: str, value: Any) -> str | None:
    """Return the field that a list of messages with an answer can be, but never for a side of a preference pair."""
    if not (isinstance(value, list) and value and isinstance(value[0], dict)) or name in SUSPECT_FIELDS:
        return None
    field, key = ("messages", "role") if "role" in value[0] else ("conversations", "from")
    last = value[-1].get(key) if isinstance(value[-1], dict) else None
    return field if ROLES.get(str(last).lower()) == "assistant" else None  # the answer may be in another field
