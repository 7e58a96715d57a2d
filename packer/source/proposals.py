"""Proposes `columns` for fields that nothing reads. What is proposed was tried on the rows at hand."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packer.source.field_names import as_yaml, columns_yaml, meant_field
from packer.source.row import Columns, composed, rename
from packer.source.schema import fields_read, schema_of
from packer.source.unread_text import Unread, UnreadField, find_unread, is_below

_PLACES = ("system", "reasoning", "input", "tools")
"""Fields that read a text beside the question and its answer."""

_FORMS: tuple[Columns, ...] = ({}, {"instruction": "prompt", "output": "completion"}, {"instruction": "prompt"})
"""Columns that give a row the form of a chat, which has these places."""

_MOST_FIELDS = 12
_MOST_SOURCES = 8


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
        roles = ", ".join(f"{as_yaml(name)}: {role}" for name, role in self.roles.items())
        return " ".join(
            [f"--set 'sources.columns={{{columns_yaml(self.columns)}}}'"] * bool(self.columns)
            + [f"--set 'sources.roles={{{roles}}}'"] * bool(roles)
            + [f"--ignore {shlex.quote(name)}" for name in ignored]
        )

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

    places: Mapping[str, tuple[str, ...]]
    """Of each field that they read the place that it has, and the others that it could have."""

    read: tuple[str, ...]
    """Fields of which they read all texts."""

    left: tuple[str, ...]
    """Fields that they do not read, or not wholly."""


def propose(rows: Sequence[dict[str, Any]], reading: Reading) -> Proposal:
    """Return columns with which the fewest texts of some rows are unread; no row is refused for them."""
    before = reading.unread(rows)
    assert before is not None, "the rows have a schema"
    places: dict[str, tuple[str, ...]] = {}
    sources = [(each, source) for each in before.fields for source in each.inner]
    guesses = sum(_meant(each, source) is None for each, source in sources) == 1
    for unread in before.fields[:_MOST_FIELDS]:
        for source in unread.inner[:_MOST_SOURCES]:
            found = [
                (place, reading_then)
                for place, columns in _candidates(unread, source, guesses=guesses)
                if (reading_then := _tried(rows, reading, columns, source)) is not None
            ]
            if not found:
                continue
            reading = found[0][1]
            places[source] = tuple(dict.fromkeys(place for place, _ in found))
    after = reading.unread(rows)
    assert after is not None, "it was tried"
    left = tuple(each.path for each in after.fields)
    read = tuple(each.path for each in before.fields if not any(is_below(path, [each.path]) for path in left))
    return Proposal(reading=reading, places=places, read=read, left=left)


def _meant(unread: UnreadField, source: str) -> str | None:
    """Return the place that a field has by its name, or because it holds tools; None if any may be meant."""
    return meant_field(source.rpartition(".")[2]) or ("tools" if unread.example.startswith("{") else None)


def _candidates(unread: UnreadField, source: str, *, guesses: bool) -> Iterator[tuple[str, Columns]]:
    """Yield places for a field. `guesses`: if its name says none, any; of several such fields, none can be told."""
    meant = _meant(unread, source)
    if "[]" in source or (meant is None and not guesses):
        return
    if meant in ("output", "instruction"):
        yield "completion", {"prompt": "messages", "completion": source}
        return
    for place in _PLACES if meant is None else (meant, "system") if meant == "input" else (meant,):
        for form in _FORMS:
            yield place, {**form, place: source}


def _tried(rows: Sequence[dict[str, Any]], reading: Reading, further: Columns, source: str) -> Reading | None:
    """Return the reading with further columns if it reads the field, and as much of all others as before."""
    if any(reading.columns.get(new) is not None and new not in ("prompt", "completion") for new in further):
        return None
    columns = composed(reading.columns, further)
    then = Reading(schema=reading.schema, columns=columns, roles=reading.roles, known=reading.known)
    before, after = reading.unread(rows), then.unread(rows)
    if before is None or after is None or after.num_read < before.num_read:
        return None
    fields = [each.path for each in before.fields]
    is_kept = all(is_below(each.path, fields) for each in after.fields)
    is_read = not any(is_below(inner, [source]) for each in after.fields for inner in each.inner)
    return then if is_kept and is_read else None
