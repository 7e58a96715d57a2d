"""Proposes `columns` for fields that nothing reads. What is proposed was tried on the rows at hand.

A field gets the place that its name says. Where the name says none, or several say the same, no place is guessed: the
places that there are for a text are named, and whoever knows the rows chooses.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from packer.batches import tool_parameters
from packer.questions.field_names import meant_field
from packer.questions.question_fields import FILL_IN
from packer.questions.read_places import ITEMS, Note, UnreadField
from packer.questions.texts import has_word, is_text, spaced
from packer.questions.unread_text import Unread, find_unread, is_below
from packer.recipe.named_options import as_option, as_word, flow_mapping
from packer.source.decode import Refused
from packer.source.roles import ends_in_question
from packer.source.row import Columns, composed, field_value, rename
from packer.source.schema import fields_read, read_row, schema_of
from packer.source.tools_and_calls import read_tools

_PLACES = {
    "system": "what the system says",
    "reasoning": "the reasoning before the answer",
    "input": "part of the question",
    "tools": "the list of tools",
    "history": "what was said before",
}
"""What a text is that a field reads."""

_TEXTS = ("system", "reasoning", "input")
"""Fields that read a text beside the question and its answer."""

_FORMS: tuple[Columns, ...] = ({}, {"instruction": "prompt", "output": "completion"}, {"instruction": "prompt"})
"""Columns that give a row the form of a chat, which has these places."""

_LISTS = ("messages", "conversations", "prompt")
"""Fields of messages."""

_ANSWERED = ("output", "rejected")
_ANSWERS = ("output", "response", "completion")

PAGE_OF_FIELDS = "docs/how-to/inputs.md#text-that-nothing-reads"

_MOST_FIELDS = 12
_MOST_SOURCES = 8
_MOST_ITEMS = 1000


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
        return " ".join([*set_keys, *(f"--ignore {as_word(name)}" for name in ignored)])

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Columns that read some of the fields that nothing reads."""

    reading: Reading

    places: Mapping[str, str]
    """Of each field that they read the place that its name says."""

    read: tuple[str, ...]
    """Fields of which they read all texts."""

    left: tuple[str, ...]
    """Fields that they do not read, or not wholly."""

    fill_in: str
    """The options that read one of these, with its name to be filled in; empty if rows have no place for a text."""


def propose(rows: Sequence[dict[str, Any]], reading: Reading) -> Proposal:
    """Return columns that read the fields whose names say what they are; no row is refused for them."""
    before = _unread(rows, reading)
    found_in = {
        source: unread
        for unread in before.fields[:_MOST_FIELDS]
        for source in (unread.inner[:_MOST_SOURCES] if "[]" not in unread.path else ())
    }
    meanings = {source: _meaning(source, unread, rows) for source, unread in found_in.items()}
    claims = Counter(meaning for source, meaning in meanings.items() if not is_below(source, {*meanings} - {source}))
    places: dict[str, str] = {}
    for source, meant in meanings.items():
        if meant is None or (meant != "tools" and _is_of_another(source, reading.columns)):
            continue
        if meant in _PLACES and (claims[meant] > 1 or _may_be_more(rows, source, meant)):
            continue
        if meant != "reasoning" and _repeats(rows, reading, source):
            continue  # no context: it would give the answer away
        if (found := _reading(rows, reading, source, meant)) is not None:
            places[source], reading = found
    after = _unread(rows, reading).fields
    left = tuple(each.path for each in after if each.kind == "text")
    read = tuple(each.path for each in before.fields if not any(is_below(path, [each.path]) for path in left))
    open_to = [source for each in after if ITEMS not in each.path for source in each.inner]
    open_to = [each for each in open_to if meant_field(each) not in _ANSWERED and not _repeats(rows, reading, each)]
    return Proposal(reading=reading, places=places, read=read, left=left, fill_in=_fill_in(rows, reading, open_to[:1]))


def _fill_in(rows: Sequence[dict[str, Any]], reading: Reading, sources: Sequence[str]) -> str:
    """Return the options that read a text such as one of some fields, with its name to be filled in."""
    if sources and (reading.schema or most_fit(rows, reading.columns)) == "text":
        own = {new: old for new, old in reading.columns.items() if new != "text"}
        filled = {**own, "instruction": FILL_IN, "output": FILL_IN}
        return f"{replace(reading, columns=filled).setting()} reads a question and its answer"
    found = [(place, _reading(rows, reading, source, place)) for source in sources for place in _TEXTS]
    forms = [(place, {**then[1].columns, place: FILL_IN}) for place, then in found if then is not None]
    are_texts = not any(isinstance(rename(row, reading.columns).get(name), list) for row in rows for name in _LISTS)
    page = f"{PAGE_OF_FIELDS} shows how to write what belongs to the question into it"
    ways = [page] * (are_texts and bool(sources))
    if forms:
        (place, columns), *others = forms
        same = [other for other, each in others if each.keys() - {other} == columns.keys() - {place}]
        more = ", ".join(f"`{other}={FILL_IN}`: as {_PLACES[other]}" for other in same)
        option = replace(reading, columns=columns, roles={}).setting()
        ways.insert(0, f"{option} reads a field as {_PLACES[place]}{f' ({more})' * bool(more)}")
    return "; ".join(ways)


def _is_of_another(source: str, columns: Columns) -> bool:
    """Whether a field is in an object without the question and the answer, as what a judge says of both."""
    names = source.replace(ITEMS, "").split(".")
    while len(names) > 1 and meant_field(names[-1]) is None:
        names.pop()  # such as `text`
    around = ".".join(names[:-1])
    return bool(around) and not any(old and is_below(old, [around]) for old in columns.values())


def _may_be_more(rows: Sequence[dict[str, Any]], source: str, meant: str) -> bool:
    """Whether a field may be no single text: one key of objects with others, or several passages or turns."""
    values = [field_value(row, source) for row in rows]
    are_several = any(isinstance(each, list) and len(each) > 1 and {*map(type, each)} == {str} for each in values)
    is_of_example = ITEMS in source and any(source.rpartition(".")[2] in row for row in rows)  # as an `input` of one
    return is_of_example or _is_cut(rows, source.partition(ITEMS)[0]) or (meant == "input" and are_several)


def _is_cut(rows: Sequence[dict[str, Any]], field: str) -> bool:
    """Whether a column reads only some of the words in a field: it is a list of objects with several keys of them."""
    return len(_worded_keys(rows, field)) > 1


def _worded_keys(rows: Sequence[dict[str, Any]], field: str) -> set[str]:
    """Return the keys of the objects in a list that have words, and not the same ones everywhere."""
    found = (field_value(row, field) for row in rows)
    items = [each for value in found if isinstance(value, list) for each in value[:_MOST_ITEMS]]
    said = {pair for each in items if isinstance(each, dict) for pair in each.items() if isinstance(pair[1], str)}
    differing = Counter(name for name, value in said if has_word(value))
    return {name for name, count in differing.items() if count > 1}


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


def _reading(rows: Sequence[dict[str, Any]], reading: Reading, source: str, place: str) -> tuple[str, Reading] | None:
    """Return the place, by its name in `columns`, and the first columns that read a field there; None if none do."""
    before, names = _unread(rows, reading), {name for row in rows for name in rename(row, reading.columns)}
    answers = [each for each in _ANSWERS if each in names]
    forms: Iterable[Columns] = ({**form, place: source} for form in _FORMS)
    if place == "output":
        asks = all(ends_in_question(rename(row, reading.columns).get("messages")) for row in rows)
        place, forms = "completion", [{"prompt": "messages", "completion": source}] if asks else []
    elif place == "rejected":
        forms = [*({"chosen": each, "rejected": source} for each in answers), {"rejected": source}]
    elif place == "instruction":
        return None  # the rows have a question
    found = next(filter(None, (_tried(rows, reading, before, columns, source) for columns in forms)), None)
    return None if found is None else (place, found)


def _tried(
    rows: Sequence[dict[str, Any]], reading: Reading, before: Unread, further: Columns, source: str
) -> Reading | None:
    """Return the reading with further columns if it reads the field, and as much of all others as before.

    Rows that have nothing in it need no longer be read where it has the answer to messages that end in a question: they
    have none.
    """
    if any(reading.columns.get(new) is not None and new not in ("prompt", "completion") for new in further):
        return None
    columns = composed(reading.columns, further)
    after = (then := replace(reading, columns=columns)).unread(rows)
    num_silent = sum(not field_value(row, source) for row in rows) if further.get("completion") == source else 0
    if after is None or after.num_read < max(before.num_read - num_silent, 1):
        return None
    fields = [each.path for each in before.fields]
    is_kept = all(is_below(each.path, fields) for each in after.fields)
    is_read = not any(is_below(inner, [source]) for each in after.fields for inner in each.inner)
    return then if is_kept and is_read else None


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
