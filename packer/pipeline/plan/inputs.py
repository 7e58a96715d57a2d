"""Open a recipe's inputs: determine each file's format, schema and columns, and what nothing reads in its first rows,
with the columns that would read it, or where it has to be written.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path, PurePath
from typing import Any, TypeVar

from packer.display import Progress, listed
from packer.errors import InputError
from packer.pipeline.plan.input_resolution import SourceFile
from packer.pipeline.plan.unread_fields import NO_TEMPLATE, Questions
from packer.pipeline.workers import Workers
from packer.pipeline.workers.executor import ALONE, in_order
from packer.questions.conversations import PAGE, single_messages
from packer.questions.field_names import meant_field
from packer.questions.named_media import without_media
from packer.questions.proposals import FileQuestion, Reading, propose
from packer.questions.read_places import ITEMS, KEY_OF_MESSAGES, Note, UnreadField
from packer.questions.row_notes import BEGIN_OTHERS
from packer.questions.schema_errors import no_schema, refuse_absent_columns, refuse_unread_columns
from packer.questions.training_flags import SIGNS
from packer.questions.unread_text import Unread, find_unread
from packer.recipe.groups import TAKEN
from packer.recipe.named_options import as_option, flow_mapping
from packer.recipe.recipe import Recipe, for_one_source
from packer.render.frames import begin_of_prompt, begins_with_system, framed
from packer.source.decode import as_weight
from packer.source.detect import detect_format, detect_schema, field_names, whole_rows
from packer.source.file_bytes import (
    READ_BYTES,
    FilePath,
    FileStatus,
    Format,
    NoRowsError,
    changed_error,
    file_sha256,
    quoted,
)
from packer.source.files import data_set_splits, is_data_set
from packer.source.forms import form_of
from packer.source.row import Columns, composed, field_value, first_name, rename
from packer.source.rows import InputFile, refuse_empty
from packer.source.unsupported_rows import ROW_FLAGS
from packer.store.manifest import Input

Read = TypeVar("Read")
Result = TypeVar("Result")

MIN_PARALLEL_BYTES = 2**30
"""Bytes that one process hashes and cuts in two seconds; smaller inputs are read by one process alone."""

_CUTTING_SPEEDUP = 256
"""How many times faster a byte is hashed and cut than tokenized."""

_MOST_NAMED = 3

_NEVER_EMPTY = {".parquet": "a Parquet file", ".arrow": "an Arrow file"}
"""Formats whose files are never 0 bytes: even without rows they contain metadata."""

_CHATS = re.compile(r"--columns \S*\b(?:instruction|messages|conversations)=")
"""Columns that make rows of a schema that needs a chat template."""


_SAMPLED_ROWS = 1000
_FEWEST_ROWS = 64
"""Rows of a source that are searched, and the fewest of each of its files."""

_TRIED_ROWS = 64

_OF_MESSAGES = ("messages", "sharegpt")

_PART_OF_TEXT = "belongs to what a message says, write it there"
_WRITTEN_TO = {
    "reasoning": "is reasoning, give it to its answer as `reasoning_content`",
    "tools": "has tools, give them to the row as `tools`",
    "system": "is what the system says, give it a message of its own",
    "output": None,
    "rejected": None,
}
"""By what the name of a field says, where it is to be written; None: it would give the answer away."""

_ANSWERS_OF_PROMPTS = {"completion": "completion", "preference": "chosen", "rated": "completion"}
"""The answer to a prompt that is a text, by the schema of its row."""


def read_whole(
    function: Callable[[Read], Result],
    inputs: Sequence[Read],
    num_bytes: Sequence[int],
    workers: Workers,
    progress: Progress,
) -> list[Result]:
    """Apply a function, which other processes can load, to inputs that it reads from end to end."""
    sizes = [each // _CUTTING_SPEEDUP for each in num_bytes]
    made: list[Result] = []
    for result in in_order(workers.run(partial(partial, function), inputs, sizes=sizes)):
        progress.advance(num_bytes[len(made)])
        made.append(result)
    return made


def open_inputs(
    files: Sequence[SourceFile],
    recipe: Recipe,
    note: Callable[[str], None],
    questions: Questions,
    workers: Workers = ALONE,
) -> Iterator[InputFile]:
    """Yield how each file is read that contains rows.

    Parallel writers leave shards without rows, and data sets have splits without rows. So empty files of a source with
    several files are skipped with a note; if all its files are empty, that is an InputError, as is a name in `columns`
    that none of the sampled rows has.

    `questions` receives what nothing reads in the first rows of each file, before the file is yielded.
    """
    groups = [list(group) for _, group in groupby(files, key=lambda file: id(file.source))]
    tasks = [(file, len(own)) for own in groups for file in own]
    sizes = [READ_BYTES] * len(tasks)  # of the first rows, about
    # Workers call `make()` for the function of a task; here that is a function already, with its first arguments.
    heads = in_order(workers.run(partial(partial, _read_head, recipe, questions.template_hint), tasks, sizes=sizes))
    for own in groups:
        empty: list[SourceFile] = []
        names: set[str] = set()
        for file, (entry, found, question) in zip(own, heads, strict=False):
            if entry is None:
                empty.append(file)
            else:
                if question is not None:
                    questions.add(file.source, question)
                yield entry
                names |= found
        if names:
            refuse_absent_columns(own[0].source.path, sorted(names), own[0].source.columns)
        _note_empty(own, empty, note)


def _read_head(
    recipe: Recipe, template_hint: str, task: tuple[SourceFile, int]
) -> tuple[InputFile | None, set[str], FileQuestion | None]:
    """Read the first rows of a file, which is one of some of its source. None if it has none, but others have.

    Returns also the fields of its rows, if the source maps columns, and what nothing reads, if its rows can be read.
    `template_hint`: about the template that the model lacks, to be asked for together with the columns of chats; or "".
    """
    file, num_files = task
    try:
        entry = open_input(file, recipe)
    except NoRowsError:
        if num_files == 1:
            raise
        return None, set(), None
    except InputError as error:
        message, hint = error.message, error.hint or ""
        needs_template = template_hint and _CHATS.search(hint)
        hint = for_one_source(hint, recipe, recipe.sources.index(file.source))
        if needs_template:
            message, hint = f"{message}; {NO_TEMPLATE}", f"{hint}; and {template_hint}"
        if hint == (error.hint or ""):
            raise
        raise InputError(message, hint=hint) from None
    is_asked = any(file.source.columns.values())
    names = field_names(file.path, format=entry.format) if is_asked else set()
    return entry, names, question_about(entry, recipe, num_files=num_files, has_template=not template_hint)


def question_about(entry: InputFile, recipe: Recipe, *, num_files: int, has_template: bool) -> FileQuestion | None:
    """Search the first rows of a file, which is one of some of its source.

    None if they cannot be read, which reading the whole file will report.
    """
    try:
        rows = [*whole_rows(entry, max(_FEWEST_ROWS, _SAMPLED_ROWS // num_files))]
        found = _question_about(entry, recipe, rows)
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


def _question_about(entry: InputFile, recipe: Recipe, rows: Sequence[dict[str, Any]]) -> FileQuestion:
    source = recipe.sources[entry.source]
    known = recipe.known_fields(source)
    reading = Reading(
        schema=None if source.schema == "auto" else source.schema,
        columns=entry.columns,
        roles=entry.roles,
        known=known,
    )
    unread = find_unread(rows, schema=entry.schema, columns=entry.columns, roles=entry.roles, known=known)
    said = ((name, json.loads(each)) for name in ROW_FLAGS for each in unread.labels.get(name, ()))
    no_flags = (name for name, value in said if as_weight(value) not in (0, 1))
    names = frozenset(entry.unread(unread.names)).union(no_flags)
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
    proposal = propose(tried, reading) if texts and reading.unread(tried) else None
    left = [path for path in texts if proposal is None or path in proposal.left]
    kept = [way for each in unread.fields for way in each.keeps]
    kept += [way for each in unread.fields for way in without_media(each, entry.columns, unread.names, unread.num_rows)]
    return FileQuestion(
        unread=unread,
        unread_names=names,
        proposal=proposal,
        values=tuple((path, value) for path in texts for row in tried[:1] if (value := field_value(row, path))),
        ways=(
            *_to_write(left, entry.schema),
            *(f"{as_option(setting)} trains only {which}" for setting, which in kept),
            *_as_columns(unread, tried),
            *["to train all rows, ignore the field"] * bool(kept),
        ),
    )


def _to_write(paths: Sequence[str], schema: str) -> Iterator[str]:
    """Yield what has to be written elsewhere, as no column takes it there: by the names of fields beside messages and
    of keys of messages.
    """
    found: dict[str | None, list[str]] = {}
    for path in paths:
        if KEY_OF_MESSAGES.fullmatch(path) or (schema in _OF_MESSAGES and not path.endswith(ITEMS)):
            found.setdefault(_WRITTEN_TO.get(meant_field(path) or "", _PART_OF_TEXT), []).append(quoted(path, 80))
    for where, names in found.items():
        if where is not None:
            which = ", ".join(names) if len(names) == 1 else f"one of {', '.join(names)}"
            yield f"if {which} {where}, as {PAGE}#beside-messages shows"


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


def open_input(file: SourceFile, recipe: Recipe) -> InputFile:
    """Determine how a file of a source is read.

    A NoRowsError says that it has no rows, another InputError that it cannot be read, or is of no known kind.
    """
    source, path = file.source, file.path
    suffix = PurePath(str(path)).suffix.lower()
    if suffix in _NEVER_EMPTY and not FileStatus.of(path).num_bytes:
        raise InputError(
            f"{path}: has 0 bytes; {_NEVER_EMPTY[suffix]} without rows is not",
            hint="write or fetch it again, or remove it",
        )
    file_format = detect_format(path) if source.format == "auto" else source.format
    refuse_empty(path, format=file_format)
    schema = source.schema
    if schema == "auto":
        schema = detected_schema(path, format=file_format, columns=source.columns)
    try:
        if source.columns:
            refuse_unread_columns(path, source.columns, schema)
    except InputError:
        refuse_absent_columns(str(path), sorted(field_names(path, format=file_format)), source.columns)
        raise
    return InputFile(
        name=file.name,
        path=path,
        split=file.split,
        format=file_format,
        schema=schema,
        columns=source.columns,
        roles=source.roles,
        limit=source.limit,
        max_row_bytes=recipe.rows.max_bytes,
        source=recipe.sources.index(source),
    )


def detected_schema(path: FilePath, *, format: Format, columns: Columns) -> str:  # noqa: A002 - the recipe's word
    """Return the schema that most of the first rows of a file fit.

    Raises:
        InputError: none of them fits any; the hint says with what they would.
    """
    schema = detect_schema(path, format=format, columns=columns)
    if schema is None:
        raise no_schema(path, format, columns)
    return schema


def _note_empty(own: Sequence[SourceFile], empty: Sequence[SourceFile], note: Callable[[str], None]) -> None:
    path = own[0].source.path
    if len(empty) == len(own) > 1:
        raise NoRowsError(f"{path}: none of its {len(own)} files has a row", hint="write rows to them, or name others")
    saved = data_set_splits(Path(path)) if is_data_set(Path(path)) else []
    without_files = [split for split, files in saved if split is not None and not files]
    splits = {file.split for file in empty} - {file.split for file in own if file not in empty}
    for split in sorted({*splits, *without_files}):
        note(f"{path}: split '{split}' holds no rows, and is not built")
    if names := [file.name for file in empty if file.split not in splits]:
        note(f"{path}: no rows in {listed(names, _MOST_NAMED)}")


def refuse_changed(files: Sequence[tuple[FilePath, FileStatus]], inputs: Sequence[Input]) -> None:
    """Check at the commit that the inputs are still what was read.

    A partition's digest is checked whenever it is read again, but a file may change after the last read of its last
    partition. If a file's size, time or inode differs, its digest decides: a file that was merely touched is unchanged.
    Each of `files` comes with its status before it was read.
    """
    for (path, status), entry in zip(files, inputs, strict=True):
        now = FileStatus.of(path)
        if now != status and file_sha256(path) != entry.sha256:
            raise changed_error(path, f"{entry.num_bytes} bytes were read, but now it has {now.num_bytes} others")
