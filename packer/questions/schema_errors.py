"""Errors and hints for rows that match no schema: fields found and needed, and `columns` that would make them fit."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from packer.errors import InputError, did_you_mean, near
from packer.questions.conversations import PAGE, conversation_hint
from packer.questions.field_names import meant_field, says_better
from packer.questions.field_programs import into_question, one_answer
from packer.questions.proposals import Proposal, Reading, most_fit, propose
from packer.questions.question_fields import Fields, list_names
from packer.questions.read_places import ITEMS
from packer.questions.texts import has_word, is_text, strings
from packer.questions.unread_text import is_below
from packer.recipe.named_options import as_option, flow_mapping
from packer.source.comparisons import VERDICTS
from packer.source.decode import Refused
from packer.source.detect import column_types, first_rows, first_value
from packer.source.file_bytes import CSV_FORMATS, TABLE_FORMATS, FilePath, Format, quoted
from packer.source.jq_commands import jq_command
from packer.source.roles import SPEAKERS, guess_roles
from packer.source.row import Columns, composed, field_value, first_name, rename
from packer.source.schema import SCHEMAS, fields_read, read_row, schema_of
from packer.source.unsupported_rows import SUSPECT_FIELDS

_TRIED_ROWS = 64
_MOST_RIVALS = 3

_LEFT_OUT = "; what is left out by this may belong to the prompt"
_DIFFERS = "; where that differs by row{}, give rows `chosen` and `rejected`"
_OR = "; of two fields that may be the same thing, only one is read"


def no_schema(path: FilePath, format: Format, columns: Columns) -> InputError:  # noqa: A002 - the recipe's word
    """Return the error for a file of which no sampled row fits a schema; the hint says with what they would."""
    if format in CSV_FORMATS or format in TABLE_FORMATS:
        found = column_types(path, format)
        whole = first_rows(path, format, columns, _TRIED_ROWS, every_column=True)
        return _of_rows(path, [dict.fromkeys(found) | row for row in whole] or [found], columns)
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
        or columns_hint(rows, columns, path),
    )


def _whole_hint(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the hint for a file whose rows are the items of one conversation, as a server lists them."""
    with suppress(Refused):
        read_row({"items": [*rows]}, number=0, schema="messages", columns={}, roles={})
        return 'if the items of a file are one conversation, write them as one row: {"items": [...]}'
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


def columns_hint(rows: Sequence[Mapping[str, Any]], columns: Columns, path: FilePath | None = None) -> str:
    """Return a hint for setting `columns`. Names say what is proposed, and it was tried on the rows.

    What leaves the fewest texts unread is proposed; two fields that could be the same are named as two. Where names do
    not tell what is the question and what the answer, each way has its condition.
    """
    sampled = [dict(row) for row in rows if row][:_TRIED_ROWS]
    fields = Fields([rename(row, columns) for row in sampled])
    question = fields.question or fields.longest
    if fields.turns:
        return f"{fields}; if {fields.turns}, write all of a row in turn into `messages`, as {PAGE} shows"
    best = _best(sampled, columns, (("", further) for further in fields.named()))
    several = one_answer(path, sampled, question) if question and path is not None else None
    if several is not None:
        return several
    rivals = _rivals(best)
    if best:
        best = [(_claim(each.reading.columns), each) for _, each in rivals[:_MOST_RIVALS]] if rivals else best[:1]
    else:
        best = _best(sampled, columns, fields.unnamed())
    best = [each for each in best if not (each[1].left and _leaves_the_texts(*each, sampled))]
    if not best:
        plain = f"{fields}; packer reads messages, questions with answers, texts, and token ids"
        return plain + f"; {PAGE} shows how to make them of other shapes" * bool(fields.paths)
    when, first = best[0]
    more = [] if rivals else [way for each in best for way in _with_more(*each, sampled)]
    asked = {str(each.reading.columns.get("instruction")): None for _, each in best} if when else {}
    is_open = any(each.reading.columns.get("output") in asked for _, each in best)  # whether it asks or answers
    into = [] if rivals or is_open else into_question(path, sampled, first.reading.columns, first.left)
    named = "; ".join([f"{when}{each.reading.setting(_left_out(each))}" for when, each in best])
    ways = "; ".join([*into, named, *more] if when else [*more, *into, named])
    is_pair = bool(when) and "rejected" in first.reading.columns
    left_out = any(_left_out(each) for _, each in best)
    read = {old for _, each in best for old in each.reading.columns.values()}
    verdicts = [name for name in sampled[0] if (name in VERDICTS or says_better(name)) and name not in read]
    verdicts = [name for name in verdicts if is_pair or name != "label"]
    differs = _DIFFERS.format(f", as {list_names(verdicts)} may say" if verdicts else "")
    more_pairs = differs if is_pair or (rivals and verdicts) else ""
    return f"say which field is which: {ways}{more_pairs}{_LEFT_OUT * left_out}{_OR * bool(rivals)}"


def _leaves_the_texts(when: str, proposal: Proposal, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether texts are left out by reading one that is trained whole, or by a guess that reads labels alone."""
    if not when or "text" in proposal.reading.columns:
        return "text" in proposal.reading.columns
    read = [field_value(row, old) for row in rows for old in proposal.reading.columns.values() if old]
    left = strings([row.get(first_name(path)) for row in rows for path in proposal.left])
    return any(map(is_text, left)) and not any(map(is_text, strings(read)))


def _with_more(when: str, proposal: Proposal, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield how a further text is read, if that reads all; behind a condition only as part of the question."""
    for choice in propose(rows, proposal.reading).choices:
        if not choice.left and (not when or "input" in choice.reading.columns):
            both = f"{when.removesuffix(', ')} and {choice.when.removeprefix('if ')}" if when else choice.when
            yield f"{both}, {choice.reading.setting()}"


def _left_out(proposal: Proposal) -> list[str]:
    """Return what is to be ignored, but for keys of messages: a build has commands for these."""
    messages = {proposal.reading.columns.get(field) or field for field in ("messages", "conversations", "prompt")}
    return [path for path in proposal.left if ITEMS not in path or path.partition(ITEMS)[0] not in messages]


def _best(
    rows: Sequence[dict[str, Any]], columns: Columns, candidates: Iterable[tuple[str, Columns]]
) -> list[tuple[str, Proposal]]:
    """Return those candidates, with what else reads the rows, that leave fewest fields unread: pairs, and others."""
    tried = [(when, proposal) for when, each in candidates if (proposal := _tried(rows, columns, each)) is not None]
    kinds = [[each for each in tried if ("rejected" in each[1].reading.columns) == pairs] for pairs in (True, False)]
    fewest = [min((len(proposal.left) for _, proposal in kind), default=0) for kind in kinds]
    return [each for kind, left in zip(kinds, fewest, strict=True) for each in kind if len(each[1].left) == left]


def _rivals(ways: Sequence[tuple[str, Proposal]]) -> list[tuple[str, Proposal]]:
    """Return the first way and those that leave unread what it reads, if any: it may be the same thing."""
    read = [old for _, first in ways[:1] for old in first.reading.columns.values() if old]
    found = [each for each in ways[1:] if any(is_below(old, each[1].left) for old in read)]
    return [*ways[:1], *found] if found else []


def _claim(columns: Columns) -> str:
    """Return the condition under which columns for a question and its answer are right; nothing if they read others."""
    question, answer = columns.get("instruction") or "instruction", columns.get("output")
    return f"if {quoted(answer)} answers {quoted(question)}, " if answer and "rejected" not in columns else ""


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
    proposal = propose(rows, reading, asks=False)
    read = {*fields_read(most_fit(rows, both) or "text"), *map(first_name, filter(None, both.values()))}
    lists = {
        name: value
        for row in rows
        for name, value in row.items()
        if isinstance(value, list) and value and name not in read
    }
    tables = [name for name, value in lists.items() if all(isinstance(each, list) for each in value)]
    worded = [name for name in tables if any(map(has_word, strings(lists[name])))]  # a question may be about it
    return replace(proposal, left=tuple(dict.fromkeys([*proposal.left, *worded])))


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fields of some rows, the most frequent first."""
    return [name for name, _ in Counter(name for row in rows for name in row).most_common()]
