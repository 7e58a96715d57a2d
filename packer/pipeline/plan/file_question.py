"""What nothing reads in the first rows of one file, with the commands and columns that would read it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from packer.errors import InputError
from packer.pipeline.plan.input_resolution import SourceFile
from packer.questions.conversations import single_messages
from packer.questions.field_programs import programs_for_fields
from packer.questions.message_order import BEGIN_OTHERS
from packer.questions.named_media import without_media
from packer.questions.proposals import Proposal, Reading, is_cut, propose
from packer.questions.read_places import Note, UnreadField
from packer.questions.training_flags import SIGNS
from packer.questions.unread_text import Unread, find_unread
from packer.recipe.groups import TAKEN, declared
from packer.recipe.named_options import as_option, flow_mapping
from packer.recipe.recipe import Recipe, Source
from packer.recipe.row_rules import fields_of
from packer.render.frames import begin_of_prompt, begins_with_system, framed
from packer.source.detect import whole_rows
from packer.source.file_bytes import quoted
from packer.source.forms import form_of
from packer.source.jq_commands import row_command
from packer.source.row import composed, field_value, first_name, rename
from packer.source.rows import InputFile

_SAMPLED_ROWS = 1000
_FEWEST_ROWS = 64
"""Rows of a source that are searched, and the fewest of each of its files."""

_TRIED_ROWS = 64

_ANSWERS_OF_PROMPTS = {"completion": "completion", "preference": "chosen", "rated": "completion"}
"""The answer to a prompt that is a text, by the schema of its row."""


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


def asked_about(source: Source, recipe: Recipe) -> frozenset[str]:
    """Return fields of a source that need not be read: they are ignored, or rules or declared columns read them."""
    values = (each.field for each in declared(recipe) if each.rule.file is None)
    return frozenset({*source.ignore, *fields_of(recipe.filters, recipe.split, source.where), *values})


def question_about(
    file: SourceFile, entry: InputFile, recipe: Recipe, *, num_files: int, has_template: bool
) -> FileQuestion | None:
    """Search the first rows of a file, which is one of some of its source.

    None if they cannot be read, which reading the whole file will report.
    """
    try:
        rows = [*whole_rows(entry, max(_FEWEST_ROWS, _SAMPLED_ROWS // num_files))]
        found = _question_about(file, entry, recipe, rows)
    except InputError:
        return None
    first = rows[:_FEWEST_ROWS]
    notes = [
        *found.unread.notes,
        *(_untemplated_prompts(entry, first) if has_template else ()),
        *(_prompts(entry, first) if not found.unread.notes else ()),
    ]
    is_last = "last" in (recipe.supervision.turns, recipe.supervision.history_rewrite)
    return replace(found, notes=tuple(each for each in notes if not (is_last and each.says == BEGIN_OTHERS)))


def _question_about(file: SourceFile, entry: InputFile, recipe: Recipe, rows: Sequence[dict[str, Any]]) -> FileQuestion:
    source = file.source
    known = asked_about(source, recipe)
    reading = Reading(
        schema=None if source.schema == "auto" else source.schema,
        columns=entry.columns,
        roles=entry.roles,
        known=known,
    )
    unread = find_unread(rows, schema=entry.schema, columns=entry.columns, roles=entry.roles, known=known)
    names = frozenset(entry.unread(unread.names))
    messages = single_messages(rows[:_FEWEST_ROWS]) if entry.schema == "text" else None
    if messages is not None and messages.speaker not in {*known, *entry.columns, *entry.columns.values()}:
        field = UnreadField(path=messages.speaker, num_rows=unread.num_rows, example=messages.says, kind="flag")
        way = f"each row is a single message, and texts are trained whole, questions too; {messages.way}"
        return FileQuestion(unread=replace(unread, fields=(*unread.fields, field)), unread_names=names, ways=(way,))
    if not unread.fields:
        return FileQuestion(unread=unread, unread_names=names)
    found_in = {first_name(each.path) for each in unread.fields}
    tried = list(islice((row for row in rows if any(map(row.get, found_in))), _TRIED_ROWS))
    texts = [each.path for each in unread.fields if each.kind == "text"]
    programs = [program for each in unread.fields for program in each.programs]
    proposal = propose(tried, reading) if texts and reading.unread(tried) else None
    unread_by = [proposal.left, *(choice.left for choice in proposal.choices)] if proposal else []
    left = [path for path in texts if all(path in each for each in unread_by) or is_cut(tried, path)]
    programs += programs_for_fields(left, tried, entry.roles)
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
            *_as_columns(unread, tried),
            *["to train all rows, ignore the field"] * bool(kept),
        ),
    )


def _as_columns(unread: Unread, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield ways to carry numbers that every row has, such as advantages, beside the ids."""
    for name in (each.path for each in unread.fields if each.example == SIGNS and each.num_rows == unread.num_rows):
        if name.isidentifier() and name not in TAKEN and all(isinstance(row.get(name), int | float) for row in rows):
            setting = as_option(f"document_columns.{name}={{kind: float32}}")
            yield f"{setting} carries it beside the ids, for a loss of your own"


def _untemplated_prompts(entry: InputFile, rows: Sequence[dict[str, Any]]) -> Iterator[Note]:
    """Note prompts that are texts, for a model with a chat template: as in TRL, they are trained without it."""
    answer = _ANSWERS_OF_PROMPTS.get(entry.schema, "")
    texts = [
        row
        for row in ([rename(row, entry.columns) for row in rows] if answer else ())
        if form_of(row) is None and all(isinstance(row.get(name), str) for name in ("prompt", answer))
    ]
    if rows and 2 * len(texts) > len(rows) and not any(row.get("instruction") or row.get("query") for row in texts):
        further = {"instruction": "prompt", **({} if answer == "chosen" else {"output": "completion"})}
        columns = flow_mapping(composed(entry.columns, further))
        prompts = [row["prompt"] for row in texts]
        are_framed = any(map(framed, prompts)) and not any(map(begins_with_system, prompts))
        ways = [f"sources.columns={columns}", *["rows.wrapped=unwrap"] * are_framed]
        yield Note(
            "its prompts are texts, which are trained as they are, without the chat template; "
            f"{' '.join(map(as_option, ways))} makes questions of them, and the template is used"
        )


def _prompts(entry: InputFile, rows: Sequence[dict[str, Any]]) -> Iterator[Note]:
    """Note texts that begin as prompts of a model do: their questions are trained, too."""
    said = [rename(row, entry.columns).get("text") for row in rows if entry.schema == "text"]
    begun = [header for text in said if isinstance(text, str) and (header := begin_of_prompt(text))]
    if 2 * len(begun) > len(said):
        says = f"its texts begin as prompts of a model do ({quoted(begun[0])}), and texts are trained whole"
        yield Note(f"{says}; to train only the answers, give messages, or prompt and completion")
