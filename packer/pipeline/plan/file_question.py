"""What nothing reads in the first rows of one file, with the commands and columns that would read it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from packer.errors import InputError
from packer.pipeline.plan.input_resolution import SourceFile
from packer.recipe.column_rules import declared
from packer.recipe.named_options import as_option
from packer.recipe.recipe import Recipe, Source
from packer.recipe.row_rules import fields_of
from packer.source.conversations import SingleMessages, single_messages
from packer.source.detect import whole_rows
from packer.source.field_programs import go_along, programs_for_fields
from packer.source.jq_commands import row_command
from packer.source.named_media import without_media
from packer.source.proposals import Proposal, Reading, propose
from packer.source.read_places import ITEMS, UnreadField
from packer.source.row import field_value
from packer.source.rows import InputFile
from packer.source.unread_text import Unread, find_unread

_SAMPLED_ROWS = 1000
_FEWEST_ROWS = 64
"""Rows of a source that are searched, and the fewest of each of its files."""

_TRIED_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuestion:
    """What nothing reads in the first rows of a file, and what would."""

    unread: Unread
    unread_names: frozenset[str]
    """Fields that neither the schema nor `columns` reads, whatever is in them."""

    proposal: Proposal | None = None
    ways: tuple[str, ...] = ()
    """Commands that move keys of messages, or flags, to where they are read; each with its condition."""

    values: tuple[tuple[str, Any], ...] = ()
    """A value of each field of the rows with such text, of which a template may have a variable."""


def row_field(path: str) -> str:
    """Return the field of a row that a path begins with."""
    return path.partition(".")[0].partition("[")[0]


def asked_about(source: Source, recipe: Recipe) -> frozenset[str]:
    """Return fields of a source that need not be read: they are ignored, or rules or declared columns read them."""
    values = (each.field for each in declared(recipe) if each.rule.file is None)
    return frozenset({*source.ignore, *fields_of(recipe.filters, recipe.split, source.where), *values})


def question_about(file: SourceFile, entry: InputFile, recipe: Recipe, *, num_files: int) -> FileQuestion | None:
    """Search the first rows of a file, which is one of some of its source.

    None if they cannot be read, which reading the whole file will report.
    """
    try:
        return _question_about(file, entry, recipe, num_files)
    except InputError:
        return None


def _question_about(file: SourceFile, entry: InputFile, recipe: Recipe, num_files: int) -> FileQuestion:
    source, max_rows = file.source, max(_FEWEST_ROWS, _SAMPLED_ROWS // num_files)
    known = asked_about(source, recipe)
    reading = Reading(
        schema=None if source.schema == "auto" else source.schema,
        columns=entry.columns,
        roles=entry.roles,
        known=known,
    )
    unread = find_unread(
        whole_rows(entry, max_rows), schema=entry.schema, columns=entry.columns, roles=entry.roles, known=known
    )
    names = frozenset(entry.unread(unread.names))
    if entry.schema == "text" and (messages := _single_messages(entry, known)) is not None:
        field = UnreadField(path=messages.speaker, num_rows=unread.num_rows, example=messages.says, kind="flag")
        way = f"each row is a single message, and texts are trained whole, questions too; {messages.way}"
        return FileQuestion(unread=replace(unread, fields=(*unread.fields, field)), unread_names=names, ways=(way,))
    if not unread.fields:
        return FileQuestion(unread=unread, unread_names=names)
    rows = whole_rows(entry, max_rows)
    tried = list(islice((row for row in rows if _has_any(row, unread.fields)), _TRIED_ROWS))
    texts = [each.path for each in unread.fields if each.kind == "text"]
    lists = [path.removesuffix(ITEMS) for path in texts]
    programs = [
        program
        for each in unread.fields
        if not any(
            go_along(_said(tried, each.path), _said(tried, name)) for name in lists
        )  # says which answers are right
        for program in each.programs
    ]
    proposal = propose(tried, reading) if texts and reading.unread(tried) else None
    unread_by = [proposal.left, *(choice.left for choice in proposal.choices)] if proposal else []
    left = [path for path in texts if all(path in each for each in unread_by)]
    programs += programs_for_fields(texts, left, tried, entry.columns, entry.roles)
    kept = [way for each in unread.fields for way in each.keeps]
    kept += [way for each in unread.fields for way in without_media(each, entry.columns, unread.names, unread.num_rows)]
    return FileQuestion(
        unread=unread,
        unread_names=names,
        proposal=proposal,
        values=tuple((path, value) for path in texts for row in tried[:1] if (value := field_value(row, path))),
        ways=(
            *(f"{when}: {move}" for when, program in programs if (move := row_command(file.path, program)) is not None),
            *(f"{as_option(setting)} trains only {which}" for setting, which in kept),
            *["to train all rows, ignore the field"] * bool(kept),
        ),
    )


def _single_messages(entry: InputFile, known: Collection[str]) -> SingleMessages | None:
    rows = [*islice(whole_rows(entry, _FEWEST_ROWS), _FEWEST_ROWS)]
    found = single_messages(entry.path, rows) if rows else None
    return None if found is None or found.speaker in {*known, *entry.columns, *entry.columns.values()} else found


def _said(rows: Iterable[dict[str, Any]], path: str) -> list[Any]:
    return [field_value(row, path) for row in rows]


def _has_any(row: dict[str, object], fields: Iterable[UnreadField]) -> bool:
    return any(row.get(row_field(each.path)) for each in fields)
