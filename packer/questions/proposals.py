"""Proposes `columns` for fields that nothing reads. What is proposed was tried on the rows at hand.

A field gets the place that its name says. Where the name says none, or several say the same, no place is guessed: all
that could read it are named, and whoever knows the rows chooses.
"""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from packer.batches import tool_parameters
from packer.questions.field_names import meant_field
from packer.questions.question_fields import list_names
from packer.questions.read_places import ITEMS, Note, UnreadField
from packer.questions.texts import has_word, is_code, is_phrase, is_text, spaced
from packer.questions.unread_text import Unread, find_unread, is_below
from packer.recipe.named_options import as_option, flow_mapping
from packer.source.decode import Refused, decoded_json
from packer.source.file_bytes import quoted
from packer.source.roles import ends_in_question
from packer.source.row import VARIABLES, Columns, composed, field_value, first_name, rename
from packer.source.schema import fields_read, read_row, schema_of
from packer.source.tools_and_calls import read_tools

_PLACES = {
    "system": "what the system says",
    "reasoning": "the reasoning before the answer",
    "input": "part of the question",
    "answer": "the answer",
    "tools": "the list of tools",
}
"""What a text is that a field reads."""

_TEXTS = ("system", "reasoning", "input")
"""Fields that read a text beside the question and its answer."""

_FORMS: tuple[Columns, ...] = ({}, {"instruction": "prompt", "output": "completion"}, {"instruction": "prompt"})
"""Columns that give a row the form of a chat, which has these places."""

_ANSWERS = ("output", "response", "completion")
_QUESTIONS = ("instruction", "input", "system")

_MOST_FIELDS = 12
_MOST_SOURCES = 8
_MOST_ITEMS = 1000
_MOST_ASKED = 2
"""Fields of which each place is tried."""


_MOVED = "$variables"
"""Name of the variables of a row where they are tried as a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How rows are read: what a source says of it."""

    schema: str | None
    """None to infer it."""

    columns: Columns
    roles: Mapping[str, str]
    known: Collection[str] = ()
    """Paths of fields that need not be read."""

    def setting(self, ignored: Iterable[str] = ()) -> str:
        """Return the options of a command that read rows in this way, and leave out some fields."""
        named = {"sources.columns": self.columns, "sources.roles": self.roles}
        set_keys = [as_option(f"{key}={flow_mapping(names)}") for key, names in named.items() if names]
        return " ".join([*set_keys, *(f"--ignore {shlex.quote(name)}" for name in ignored)])

    def unread(self, rows: Sequence[dict[str, Any]]) -> Unread | None:
        """Return what of some rows nothing reads; None if `columns` make no rows of a schema of them."""
        schema = self.schema or most_fit(rows, self.columns)
        if schema is None or not {new for new, old in self.columns.items() if old is not None} <= fields_read(schema):
            return None
        return find_unread(rows, schema=schema, columns=self.columns, roles=self.roles, known=self.known)


def most_fit(rows: Sequence[dict[str, Any]], columns: Columns) -> str | None:
    """Return the schema that most rows fit, or None."""
    votes = Counter(fit for row in rows if (fit := schema_of(rename(row, columns))) is not None)
    return min(votes, key=lambda schema: (-votes[schema], schema)) if votes else None


class Choice(NamedTuple):
    """Columns that read a field whose name does not say what it is, if it is this."""

    when: str
    """The condition under which they are right."""

    reading: Reading
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Columns that read some of the fields that nothing reads."""

    reading: Reading

    places: Mapping[str, str]
    """Of each field that they read the place that its name says."""

    choices: tuple[Choice, ...]
    """Columns that read one field more."""

    read: tuple[str, ...]
    """Fields of which they read all texts."""

    left: tuple[str, ...]
    """Fields that they do not read, or not wholly."""


def propose(rows: Sequence[dict[str, Any]], reading: Reading, *, asks: bool = True) -> Proposal:
    """Return columns that read the fields whose names say what they are; no row is refused for them.

    With `asks`, it has choices for the others.
    """
    before = _unread(rows, reading)
    found_in = {
        source: unread
        for unread in before.fields[:_MOST_FIELDS]
        for source in (unread.inner[:_MOST_SOURCES] if "[]" not in unread.path else ())
    }
    meanings = {source: _meaning(source, unread, rows) for source, unread in found_in.items()}
    claims = Counter(meaning for source, meaning in meanings.items() if not is_below(source, {*meanings} - {source}))
    names = {name for row in rows for name in row}
    places: dict[str, str] = {}
    others: list[tuple[str, Sequence[str]]] = []
    answers: list[tuple[str, Sequence[str]]] = []
    for source, meant in meanings.items():
        example = found_in[source].example
        if meant != "reasoning" and _repeats(rows, reading, source):
            continue  # no context: it would give the answer away
        is_of_example = ITEMS in source and source.rpartition(".")[2] in names  # an `input` in a list beside the row's
        is_open = is_of_example or bool(_lost_keys(rows, source)) or (meant == "input" and _are_several(rows, source))
        is_claimed = meant in _PLACES and (claims[meant] > 1 or is_open)
        found = next(_readings(rows, reading, source, [meant]), None) if meant and not is_claimed else None
        if found is not None:
            places[source], reading, _ = found
        elif meant == "output":
            answers.append((source, ["answer"]))
        elif meant and is_claimed:
            others.append((source, ["input", "system"] if meant == "input" and _lost_keys(rows, source) else [meant]))
        elif meant == "input" or (meant is None and (is_text(example) or is_phrase(example))):
            # A chat has no input, and a single word, such as an option, is no prompt.
            said = ["input"] if is_code(example) else _TEXTS
            others.append((source, said if meant is None else ["system"]))
    unread = {source for each in _unread(rows, reading).fields for source in each.inner}
    choices = [
        Choice(f"if {quoted(source)}{_without(_lost_keys(rows, source))} is {_PLACES[place]}", then, left)
        for source, could in ((*others[:_MOST_ASKED], *answers) if asks else ())
        if source in unread  # or the rows that have it are none to read, as those of an error
        for place, then, left in _readings(rows, reading, source, could)
        if first_name(source) not in map(first_name, left)  # of which it would be a piece
    ]
    choices = [*_as_answers(rows, reading, before), *choices] if asks else choices
    left = tuple(each.path for each in _unread(rows, reading).fields if each.kind == "text")
    read = tuple(each.path for each in before.fields if not any(is_below(path, [each.path]) for path in left))
    return Proposal(reading=reading, places=places, choices=tuple(choices), read=read, left=left)


def is_cut(rows: Sequence[dict[str, Any]], field: str) -> bool:
    """Whether a column reads only some of the words in a field: it is a list of objects with several keys of them."""
    return len(_worded_keys(rows, field)) > 1


def _are_several(rows: Sequence[dict[str, Any]], source: str) -> bool:
    """Whether a field has lists of texts: passages, or what was said before the question."""
    found = (field_value(row, source) for row in rows)
    return any(isinstance(each, list) and len(each) > 1 and {*map(type, each)} == {str} for each in found)


def _lost_keys(rows: Sequence[dict[str, Any]], source: str) -> list[str]:
    """Return the other keys with words, such as who speaks, of the objects in a list of which a field is one key."""
    field, is_key, key = source.rpartition(f"{ITEMS}.")
    return sorted(_worded_keys(rows, field) - {key}) if is_key else []


def _worded_keys(rows: Sequence[dict[str, Any]], field: str) -> set[str]:
    """Return the keys of the objects in a list that have words, and not the same ones everywhere."""
    found = (field_value(row, field) for row in rows)
    items = [each for value in found if isinstance(value, list) for each in value[:_MOST_ITEMS]]
    said = {pair for each in items if isinstance(each, dict) for pair in each.items() if isinstance(pair[1], str)}
    differing = Counter(name for name, value in said if has_word(value))
    return {name for name, count in differing.items() if count > 1}


def _without(keys: Sequence[str]) -> str:
    return f", without its {list_names(keys)}," if keys else ""


def _repeats(rows: Sequence[dict[str, Any]], reading: Reading, source: str) -> bool:
    """Whether most texts in a field have the answer of their row, and the beginning of its question or little else."""
    schema, num_copies = reading.schema or most_fit(rows, reading.columns) or "", 0
    for row in rows:
        text = spaced(str(field_value(row, source) or ""))
        with suppress(Refused):
            sample = read_row(row, number=0, schema=schema, columns=reading.columns, roles=reading.roles)
            said = [str(each.fields.get("content")) for each in sample.messages] or [sample.prompt, sample.text]
            asked, answer = "".join(said[-2:-1]), spaced(said[-1]) if is_text(said[-1]) else f"{text} "
            first = spaced(asked.partition("\n")[0])
            num_copies += answer in text and (2 * len(answer) > len(text) or first in text)
    return 2 * num_copies > len(rows)


def _as_answers(rows: Sequence[dict[str, Any]], reading: Reading, before: Unread) -> Iterator[Choice]:
    """Yield columns that make a question and its answer of a text that is trained whole and one that nothing reads."""
    text = reading.columns.get("text") or "text"
    if (reading.schema or most_fit(rows, reading.columns)) != "text":
        return
    for source in [source for unread in before.fields for source in unread.inner if ITEMS not in source][:_MOST_ASKED]:
        meant = meant_field(source)
        pairs = [(text, source)] * (meant != "output") + [(source, text)] * (meant not in _QUESTIONS)
        for answer, question in pairs:
            further = {"instruction": question, "output": answer}
            if (found := _tried(rows, reading, before, further, source)) is not None:
                yield Choice(f"if {quoted(answer)} answers {quoted(question)}", *found)


def ways_to_read_variables(rows: Sequence[dict[str, Any]], reading: Reading) -> Iterator[str]:
    """Yield options that read texts and tools which rows have as variables of a template, and those that do not."""
    field = reading.columns.get(VARIABLES) or VARIABLES
    found_in = [field_value(row, field) for row in rows]
    given = [decoded_json(each) if isinstance(each, str) else each for each in found_in]
    moved = [{**row, _MOVED: each} for row, each in zip(rows, given, strict=True)]
    hidden = replace(reading, columns=composed(reading.columns, {VARIABLES: None}))
    names = {name for each in given if isinstance(each, dict) for name, value in each.items() if value is not None}
    ways: list[tuple[str, Reading]] = []
    if hidden.unread(moved) is not None:
        proposal = propose(moved, hidden)
        ways += [("", proposal.reading)] if proposal.places else []
        ways += [(f"{choice.when}, ", choice.reading) for choice in proposal.choices]
    for when, found in ways:
        used = [*filter(None, found.columns.values())]
        lost = sorted(name for name in names if not any(is_below(old, [f"{_MOVED}.{name}"]) for old in used))
        read = {new: old and old.replace(_MOVED, field) for new, old in found.columns.items()}
        effect = f"leaves out the variables {list_names(lost)}" if lost else "reads what the variables of rows say"
        setting = replace(found, columns=read, roles={}).setting()
        yield f"{when.replace(f'{_MOVED}.', '')}{setting} {effect}"
    yield f"{replace(hidden, roles={}).setting()} leaves out all variables of rows"


def _meaning(source: str, unread: UnreadField, rows: Sequence[dict[str, Any]]) -> str | None:
    """Return the place that the name of a field says; definitions with parameters are `tools` whatever their name."""
    meant = meant_field(source)
    if meant is not None or not unread.example.startswith("{"):
        return meant
    with suppress(Refused):
        tools = [tool for row in rows for tool in read_tools(field_value(row, source), where="$") or ()]
        return "tools" if any(tool_parameters(tool["function"]) is not None for tool in tools) else None
    return None


def _unread(rows: Sequence[dict[str, Any]], reading: Reading) -> Unread:
    unread = reading.unread(rows)
    assert unread is not None, "the rows have a schema"
    return unread


def _readings(
    rows: Sequence[dict[str, Any]], reading: Reading, source: str, places: Iterable[str]
) -> Iterator[tuple[str, Reading, tuple[str, ...]]]:
    """Yield the places of some that read a field, each with the first columns that do, and what is unread then."""
    before, names = _unread(rows, reading), {name for row in rows for name in rename(row, reading.columns)}
    answers = [each for each in _ANSWERS if each in names]
    for place in places:
        forms: Iterable[Columns] = ({**form, place: source} for form in _FORMS)
        if place == "output":
            asks = all(ends_in_question(rename(row, reading.columns).get("messages")) for row in rows)
            place, forms = "completion", [{"prompt": "messages", "completion": source}] if asks else []  # noqa: PLW2901
        elif place == "rejected":
            forms = [*({"chosen": each, "rejected": source} for each in answers), {"rejected": source}]
        elif place == "answer":  # in place of the one that is read, such as a corrected one
            forms = ({each: source} for each in answers if each not in reading.columns)
        elif place == "instruction":
            continue  # the rows have a question
        found = next(filter(None, (_tried(rows, reading, before, columns, source) for columns in forms)), None)
        if found is not None:
            yield place, *found


def _tried(
    rows: Sequence[dict[str, Any]], reading: Reading, before: Unread, further: Columns, source: str
) -> tuple[Reading, tuple[str, ...]] | None:
    """Return the reading with further columns if it reads the field, and as much of all others as before.

    An answer that the field replaces is left out. Rows that have nothing in it need no longer be read where it has the
    answer to messages that end in a question: they have none.
    """
    if any(reading.columns.get(new) is not None and new not in ("prompt", "completion") for new in further):
        return None
    names = {name for row in rows for name in rename(row, reading.columns)}
    replaced = tuple(new for new in names.intersection(further, _ANSWERS) if further[new] == source)
    columns, known = composed(reading.columns, further), (*reading.known, *replaced)
    after = (then := replace(reading, columns=columns, known=known)).unread(rows)
    num_silent = sum(not field_value(row, source) for row in rows) if further.get("completion") == source else 0
    if after is None or after.num_read < max(before.num_read - num_silent, 1):
        return None
    fields = [each.path for each in before.fields]
    is_kept = all(is_below(each.path, fields) for each in after.fields)
    is_read = not any(is_below(inner, [source]) for each in after.fields for inner in each.inner)
    left = (each.path for each in after.fields if each.kind == "text")
    return (then, (*left, *replaced)) if is_kept and is_read else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuestion:
    """What nothing reads in the first rows of a file, and what would."""

    unread: Unread
    unread_names: frozenset[str]
    """Fields that neither the schema nor `columns` reads, whatever is in them."""

    notes: tuple[Note, ...] = ()
    proposal: Proposal | None = None
    ways: tuple[str, ...] = ()
    """Commands that move keys of messages, or flags, to where they are read; each with its condition."""

    values: tuple[tuple[str, Any], ...] = ()
    """A value of each field of the rows with such text, of which a template may have a variable."""
