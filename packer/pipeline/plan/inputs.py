"""Open a recipe's inputs: determine each file's format, schema and columns."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path, PurePath
from typing import TypeVar

from packer.display import Progress, listed
from packer.errors import InputError
from packer.pipeline.plan.file_question import FileQuestion, question_about
from packer.pipeline.plan.input_resolution import SourceFile
from packer.pipeline.plan.unread_fields import NO_TEMPLATE, Questions
from packer.pipeline.workers.executor import ALONE, Workers, in_order
from packer.questions.schema_errors import no_schema, refuse_absent_columns, refuse_unread_columns
from packer.recipe.recipe import Recipe, for_one_source
from packer.source.detect import detect_format, detect_schema, field_names
from packer.source.file_bytes import READ_BYTES, FilePath, FileStatus, Format, NoRowsError, changed_error, file_sha256
from packer.source.files import data_set_splits, is_data_set
from packer.source.row import Columns
from packer.source.rows import InputFile, refuse_empty
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
    heads = in_order(workers.run(partial(partial, _read_head, recipe, questions.templates), tasks, sizes=sizes))
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
    recipe: Recipe, templates: str, task: tuple[SourceFile, int]
) -> tuple[InputFile | None, set[str], FileQuestion | None]:
    """Read the first rows of a file, which is one of some of its source. None if it has none, but others have.

    Returns also the fields of its rows, if the source maps columns, and what nothing reads, if its rows can be read.
    `templates`: the hint about the template that the model lacks, to be asked for together with the columns of chats.
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
        needs_template = templates and _CHATS.search(hint)
        hint = for_one_source(hint, recipe, recipe.sources.index(file.source))
        if needs_template:
            message, hint = f"{message}; {NO_TEMPLATE}", f"{hint}; and {templates}"
        if hint == (error.hint or ""):
            raise
        raise InputError(message, hint=hint) from None
    is_asked = any(file.source.columns.values())
    names = field_names(file.path, format=entry.format) if is_asked else set()
    return entry, names, question_about(entry, recipe, num_files=num_files, has_template=not templates)


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
