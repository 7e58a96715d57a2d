"""Errors and hints for rows that fit no schema: fields found and needed, and `columns` that would make them fit."""

import difflib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from packer.errors import InputError
from packer.source.comparisons import other_side
from packer.source.decode import Refused
from packer.source.exports import export_hint
from packer.source.field_names import is_setting, meant_field
from packer.source.file_bytes import FilePath, jq_command, quoted
from packer.source.proposals import Proposal, Reading, ends_in_question, propose
from packer.source.roles import ROLES, SPEAKERS, guess_roles
from packer.source.row import ID_FIELDS, Columns, composed, rename
from packer.source.schema import SCHEMAS, fields_read, schema_of
from packer.source.unread_text import is_text
from packer.source.unsupported_rows import SUSPECT_FIELDS, is_preference

_MAX_LISTED = 12

_TRIED_ROWS = 64
_MOST_NAMES = 4

_NO_TEXTS = (SUSPECT_FIELDS - {"label"}).union(ID_FIELDS)

_LEFT_OUT = "; what is left out by this may belong to the prompt"
_DIFFERS = "; where that differs by row, give rows `chosen` and `rejected`"
_OR = "; of two fields that may be the same thing, only one is read"

_LIST_OF_TEXTS = re.compile(r"\s*\[\s*\".*\"\s*\]\s*", re.DOTALL)
_JSON = re.compile(r"\s*(\[.*\]|\{.*\})\s*", re.DOTALL)


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
    found = list_names(_names([rename(dict(row), columns) for row in rows])) or "none"
    return InputError(
        f"{path}: its rows fit no schema; fields found: {found}",
        hint=_wrapped_hint(path, rows) or export_hint(path, rows) or columns_hint(rows, columns),
    )


def _wrapped_hint(path: FilePath, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the hint for a file that is one object with the rows in one of its fields, such as `{"data": [...]}`."""
    for name, value in rows[0].items() if len(rows) == 1 else ():
        if not (isinstance(value, list) and value and isinstance(value[0], dict)) or not SPEAKERS.isdisjoint(value[0]):
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
    """Return a hint for setting `columns`. Names say what is proposed, and it was tried on the rows.

    What leaves the fewest texts unread is proposed; two fields that could be the same are named as two. Where names do
    not tell what is the question and what the answer, each way has its condition.
    """
    sampled = [dict(row) for row in rows if row][:_TRIED_ROWS]
    fields = _Fields([rename(row, columns) for row in sampled])
    best = _best(sampled, columns, (("", further) for further in fields.named()))
    rivals = [each for each in best[1:] if any(old in each[1].left for old in best[0][1].reading.columns.values())]
    best, joint = ([*best[:1], *rivals[:1]], " or ") if best else (_best(sampled, columns, fields.unnamed()), "; ")
    if not best:
        return f"{fields}; packer reads messages, questions with answers, texts, and token ids"
    (when, first), is_rival = best[0], bool(rivals)
    ways = joint.join(f"{when}{each.reading.setting(each.left)}" for when, each in best)
    if not (when or is_rival):
        ways = "; ".join([ways, *(f"{each.when}, {each.reading.setting(each.left)}" for each in first.choices)])
    differs = _DIFFERS if when and "rejected" in first.reading.columns else ""
    left_out = _LEFT_OUT if first.left else differs
    return f"say which field is which with `columns`: {ways}{left_out}{_OR * is_rival}"


def _best(
    rows: Sequence[dict[str, Any]], columns: Columns, candidates: Iterable[tuple[str, Columns]]
) -> list[tuple[str, Proposal]]:
    """Return those candidates with what else reads the rows that leave the fewest fields unread."""
    tried = [(when, proposal) for when, each in candidates if (proposal := _tried(rows, columns, each)) is not None]
    fewest = min((len(proposal.left) for _, proposal in tried), default=0)
    return [(when, proposal) for when, proposal in tried if len(proposal.left) == fewest]


def _unnamed_hint(rows: Sequence[dict[str, Any]], columns: Columns, fields: "_Fields") -> str:
    """Return the hint for rows whose names do not tell what is the question and what the answer. All were tried."""
    best = _best(rows, columns, fields.unnamed())
    if not best:
        texts = (
            f"the fields with texts are {list_names(fields.paths)}"
            if fields.paths
            else "no field of these rows has a text"
        )
        if fields.no_texts:
            texts = f"{list_names(fields.no_texts)} may be the answer, and `columns` reads texts alone; {texts}"
        return f"{texts}; packer reads messages, questions with answers, texts, and token ids"
    ways = "; ".join(f"if {when}, {each.reading.setting(each.left)}" for when, each in best)
    left_out = _LEFT_OUT if best[0][1].left else _DIFFERS if "rejected" in best[0][1].reading.columns else ""
    return f"say which field is which with `columns`: {ways}{left_out}"


class _Fields:
    """The fields of some rows, and of the objects in them, by the paths with which `columns` finds them."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._is_pair = any(map(is_preference, rows))
        found: dict[str, list[Any]] = {}
        for row in rows:
            for path, value in _values(row):
                found.setdefault(path, []).append(value)
        self.no_texts = [
            path for path, values in found.items() if meant_field(path) == "output" and _is_other(values[0])
        ]
        """Fields that are answers by their names, and which `columns` cannot read."""

        self._lists = {path: values[0] for path, values in found.items() if isinstance(values[0], list)}
        self._json = {path for path, (first, *_) in found.items() if isinstance(first, str) and _JSON.fullmatch(first)}
        texts = {path: sum(map(len, values)) for path, values in found.items() if isinstance(values[0], str)}
        self._sentences = {path for path in texts if is_text(found[path][0])}
        self._texts = sorted(texts, key=lambda path: -texts[path])
        self.paths = [path for path in found if path in texts or any(_texts_in(found[path][0]))]
        self._compared: list[tuple[str, str]] = []
        pairs = [(path, other) for path in texts if (other := other_side(path)) in texts]
        if not self.no_texts and self._meant(None, "instruction", "input", but=pairs):
            self._compared = pairs

    def _meant(self, *places: str | None, but: Sequence[tuple[str, str]] = ()) -> list[str]:
        """Return the texts whose names say one of some places: those of packer's own names first, then by length."""
        sides = {path for pair in (*self._compared, *but) for path in pair}
        found = [path for path in self._texts if meant_field(path) in places and path not in sides]
        return sorted(found, key=lambda path: path not in places)[:_MOST_NAMES]

    def __str__(self) -> str:
        texts = (
            f"the fields with texts are {list_names(self.paths)}" if self.paths else "no field of these rows has a text"
        )
        no_texts = f"{list_names(self.no_texts)} may be the answer, and `columns` reads texts alone; "
        return f"{no_texts if self.no_texts else ''}{texts}"

    @property
    def _questions(self) -> list[str]:
        return self._meant("instruction") or self._meant("input")

    @property
    def _asked(self) -> list[str]:
        return [path for path, value in self._lists.items() if path not in SUSPECT_FIELDS and ends_in_question(value)]

    def named(self) -> Iterator[Columns]:
        """Yield columns for a question and its answer, by their names; those come first whose answers are longest."""
        if self._is_pair:
            yield from ({"instruction": question} for question in self._questions)
            return
        answers, worse = self._meant("output"), self._meant("rejected")
        lists = [path for path, value in self._lists.items() if _messages_field(path, value) == "messages"]
        for path in self._asked:
            yield from ({"prompt": path, "completion": answer} for answer in [*answers, *lists])
        for path, value in self._lists.items():
            if (field := _messages_field(path, value)) is not None:
                yield {field: path}
        for question in self._questions:
            for answer in answers:
                yield from (_pair(question, answer, rejected) for rejected in worse)
                asked = {new: old for new, old in (("instruction", question), ("output", answer)) if new != old}
                if asked and not worse:
                    yield asked

    def unnamed(self) -> Iterator[tuple[str, Columns]]:
        """Yield when columns for a question and its answer are right, where names do not say it, and these columns.

        Two fields whose names differ in a last letter are two answers, of which either may be the better one.
        """
        unknown = [path for path in self._meant(None) if path not in self._json]
        questions = self._questions or [path for path in unknown if path in self._sentences] or unknown
        for one, other in self._compared:
            for question in questions[:1]:
                yield f"if `{one}` is always better than `{other}`, ", _pair(question, one, other)
                yield f"if `{other}` is always better than `{one}`, ", _pair(question, other, one)
        if self._compared:
            return
        answers = self._meant("output") or ([] if self.no_texts else unknown)
        pairs = [(answer, question) for answer in answers for question in questions[:2] if question != answer]
        yield from (
            (f"if `{a}` answers `{q}`, ", {"prompt": q, "completion": a}) for q in self._asked for a in answers[:1]
        )
        yield from ((f"if `{a}` answers `{q}`, ", {"instruction": q, "output": a}) for a, q in pairs[:_MOST_NAMES])
        if answers == questions == unknown and unknown and not self._asked:
            yield f"if `{unknown[0]}` is trained whole, ", {"text": unknown[0]}


def _is_other(value: Any) -> bool:
    """Whether an answer is a number, or is in a list."""
    return any(_texts_in(value)) if isinstance(value, list) else not isinstance(value, str)


def _pair(question: str, chosen: str, rejected: str) -> Columns:
    """Return columns of two answers to a question; `prompt` keeps its name."""
    return {**({} if question == "prompt" else {"instruction": question}), "chosen": chosen, "rejected": rejected}


def _values(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in a row and in the objects in it, but for ids, settings and media."""
    for name, value in row.items():
        path = f"{before}{name}"
        if isinstance(value, dict):
            yield from _values(value, f"{path}.")
        elif isinstance(value, str) and _LIST_OF_TEXTS.fullmatch(value):
            yield path, [value]
        elif value not in (None, [], "") and not is_setting(value) and name not in _NO_TEXTS:
            yield path, value


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a list."""
    for each in value if isinstance(value, list) else ():
        yield from [each] if isinstance(each, str) else _texts_in([*each.values()] if isinstance(each, dict) else each)


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
    return propose(rows, reading)


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fields of some rows, the most frequent first."""
    return [name for name, _ in Counter(name for row in rows for name in row).most_common()]


def list_names(names: Iterable[str]) -> str:
    """List names of fields, quoted, and how many were left out."""
    every = list(names)
    more = len(every) - _MAX_LISTED
    return ", ".join(quoted(name) for name in every[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def _messages_field(name: str, value: Any) -> str | None:
    """Return the field that a list of messages with an answer can be, but never for a side of a preference pair."""
    if not (isinstance(value, list) and value and isinstance(value[0], dict)) or name in SUSPECT_FIELDS:
        return None
    field, key = ("messages", "role") if "role" in value[0] else ("conversations", "from")
    last = value[-1].get(key) if isinstance(value[-1], dict) else None
    return field if ROLES.get(str(last).lower()) == "assistant" else None  # the answer may be in another field
