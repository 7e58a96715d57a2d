"""Open a recipe's inputs: determine each file's format, schema and columns."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice, pairwise
from pathlib import Path, PurePath
from typing import TypeVar

from packer.batches import Sample
from packer.display import plural
from packer.errors import InputError
from packer.pipeline.plan.file_question import FileQuestion, question_about
from packer.pipeline.plan.input_resolution import SourceFile
from packer.pipeline.plan.unread_fields import NO_TEMPLATE, Questions
from packer.pipeline.workers.executor import ALONE, Workers, in_order
from packer.progress import Progress
from packer.recipe.named_options import as_option, flow_mapping
from packer.recipe.recipe import Recipe, for_one_source
from packer.render.frames import begins_with_system, framed, is_header
from packer.source.detect import detect_format, detect_schema, field_names, first_rows
from packer.source.file_bytes import READ_BYTES, FilePath, NoRowsError, changed_error, file_sha256, quoted
from packer.source.files import data_set_splits, is_data_set
from packer.source.forms import form_of
from packer.source.partition import FileStatus
from packer.source.prose import is_text
from packer.source.row import composed, rename
from packer.source.rows import InputFile, refuse_empty
from packer.source.schema_errors import refuse_absent_columns, refuse_unread_columns
from packer.source.speaker_labels import Labels, speakers_in
from packer.source.unread_text import Unread
from packer.store.manifest import Input

Read = TypeVar("Read")
Result = TypeVar("Result")

MIN_PARALLEL_BYTES = 2**30
"""Bytes that one process hashes and cuts in two seconds; smaller inputs are read by one process alone."""

_CUTTING_SPEEDUP = 256
"""How many times faster a byte is hashed and cut than tokenized."""

_MOST_NAMED = 3
_FEW_ROWS = 64
"""Rows that are searched for dialogues, and for fields that a preview names."""


_NEVER_EMPTY = {".parquet": "a Parquet file", ".arrow": "an Arrow file"}
"""Formats whose files are never 0 bytes: even without rows they contain metadata."""

_MOST_ROWS_PER_BEGUN = 100
"""Of which one may begin another: short conversations are alike."""

_QUESTION = re.compile(r"^[^\w\n]*((?:human|user|instruction|question)[^\w\n]{0,8}:)", re.IGNORECASE | re.MULTILINE)
"""A header of a question at the beginning of a line."""

_ANSWER = re.compile(r"[^\w,;]((?:assistant|gpt|bot|response|answer)[^\w\n]{0,8}:)", re.IGNORECASE)

_LONGEST_QUESTION = 20_000
"""Characters after the header of a question among which that of an answer is searched for."""

_LONG_ANSWER = 200
"""Characters of an answer, of which many to one question are unusual."""

_CHATS = re.compile(r"--columns \S*\b(?:instruction|messages|conversations)=")
"""Columns that make rows of a schema that needs a chat template."""

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
    made: dict[int, Result] = {}
    for number, result in workers.run(partial, (function,), inputs, sizes=sizes):
        made[number] = result
        progress.advance(num_bytes[number])
    return [made[number] for number in range(len(inputs))]


def open_inputs(
    files: Sequence[SourceFile],
    recipe: Recipe,
    note: Callable[[str], None],
    workers: Workers = ALONE,
    questions: Questions | None = None,
) -> Iterator[tuple[SourceFile, InputFile]]:
    """Yield every file that contains rows, with how it is read.

    Parallel writers leave shards without rows, and data sets have splits without rows. So empty files of a source with
    several files are skipped with a note; if all its files are empty, that is an error.

    `questions` receives what nothing reads in the first rows of each file, before the file is yielded. If they are
    asked, rows that begin other rows are noted, too.

    Raises:
        InputError: a file cannot be read, or is of no kind that packer knows; or all files of a source are empty; or
            `columns` names a field that none of the sampled rows has.
    """
    groups = [list(group) for _, group in groupby(files, key=lambda file: id(file.source))]
    tasks = [(file, len(own)) for own in groups for file in own]
    sizes = [READ_BYTES] * len(tasks)  # of the first rows, about
    asks, templates = questions is not None, questions.templates if questions is not None else ""
    heads = in_order(workers.run(partial, (_read_head, recipe, asks, templates), tasks, sizes=sizes))
    for own in groups:
        empty: list[SourceFile] = []
        found: list[Unread] = []
        names: set[str] = set()
        for file, head in zip(own, heads, strict=False):
            if head.entry is None:
                empty.append(file)
            else:
                if questions is not None and head.question is not None:
                    questions.add(file.source, head.question)
                    found.append(head.question.unread)
                yield file, head.entry
                names |= head.names
        if names:
            refuse_absent_columns(own[0].source.path, sorted(names), own[0].source.columns)
        _note_empty(own, empty, note)
        if recipe.supervision.turns != "last" and recipe.supervision.history_rewrite != "last":
            _note_begun(own[0].source.path, found, note)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileHead:
    """What the first rows of a file tell."""

    entry: InputFile | None
    """None if it has no rows, but its source has other files."""

    names: frozenset[str]
    """Fields of its rows; empty if the source maps no columns."""

    question: FileQuestion | None = None
    """What nothing reads, if that was asked."""


def _read_head(recipe: Recipe, asks: object, templates: str, task: tuple[SourceFile, int]) -> _FileHead:
    """Read the first rows of a file, which is one of some of its source.

    `templates`: the hint about the template that the model lacks, to be asked for together with the columns of chats.
    """
    file, num_files = task
    is_alone = num_files == 1
    try:
        entry = open_input(file, recipe, is_alone=is_alone)
    except NoRowsError:
        if is_alone:
            raise
        return _FileHead(entry=None, names=frozenset())
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
    question = question_about(file, entry, recipe, num_files=num_files) if asks else None
    return _FileHead(entry=entry, names=frozenset(names), question=question)


def open_input(file: SourceFile, recipe: Recipe, *, is_alone: bool = True) -> InputFile:
    """Determine how a file of a source is read; one that is not the only file is first checked for having any rows.

    Raises:
        InputError: it cannot be read, or is of no kind that packer knows.
        NoRowsError: it is empty, and not alone.
    """
    source, path = file.source, file.path
    if not is_alone:
        _refuse_hollow(path)
    file_format = detect_format(path) if source.format == "auto" else source.format
    if not is_alone:
        refuse_empty(path, format=file_format)
    schema = (
        detect_schema(path, format=file_format, columns=source.columns) if source.schema == "auto" else source.schema
    )
    try:
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


def _refuse_hollow(path: FilePath) -> None:
    suffix = PurePath(str(path)).suffix.lower()
    if suffix in _NEVER_EMPTY and not FileStatus.of(path).num_bytes:
        raise InputError(
            f"{path}: has 0 bytes; {_NEVER_EMPTY[suffix]} without rows is not",
            hint="write or fetch it again, or remove it",
        )


def note_first_rows(entry: InputFile, template: str | None, note: Callable[[str], None]) -> None:
    """Report what the first rows of a file show to be trained that may not be meant to be."""
    try:
        notes = [*(_dialogues(entry) if entry.schema == "text" else _more_than_answers(entry))]
        notes += _untemplated_prompts(entry) if template is not None else ()
    except InputError:
        return  # reading the whole file will report the error
    for each in notes:
        note(each)


def _dialogues(entry: InputFile) -> Iterator[str]:
    """Report texts of which most are dialogues: their questions are trained, too."""
    first = first_rows(entry.path, entry.format, entry.columns, _FEW_ROWS, every_column=True)
    texts = [text for row in first if isinstance(text := rename(row, entry.columns).get("text"), str)]
    headers = [each for each in map(_headers, texts) if each is not None]
    in_turn = headers[0] if 2 * len(headers) > len(texts) else speakers_in(texts)
    if in_turn is not None:
        asked, answered = in_turn
        yield (
            f"{entry.name}: its texts look like dialogues ('{asked}' … '{answered}'), and texts are trained whole; to "
            "train only the answers, give messages, or prompt and completion"
        )


def _more_than_answers(entry: InputFile) -> Iterator[str]:
    """Report answers that begin with what they answer, or go on with further turns, as a model's whole text does."""
    samples = [sample for raw in islice(entry.rows(), _FEW_ROWS // 4) for sample in raw.batch.samples]
    for is_more, what in (
        (_repeats_question, "begins with the whole question, which is trained with it"),
        (_runs_on, "has further turns in its text, which are trained as one"),
    ):
        found = sum(map(is_more, samples))
        if 2 * found > len(samples):
            of_all = f"{found} of its first {plural(len(samples), 'row')}"
            yield f"{entry.name}: {of_all} have an answer that {what}; cut it off if a model gave it with the answer"
    yield from (f"{entry.name}: {each}" for each in _placeholders(samples))
    labels = Labels()
    for sample in samples:
        labels.add(sample)
    label = labels.of_answers()
    if label is not None and not (any(labels.speakers()) or is_header(label, "assistant")):
        yield f"{entry.name}: its answers begin with {quoted(label)}, which is trained with them"


def _placeholders(samples: Sequence[Sample]) -> Iterator[str]:
    """Report questions that say nothing, and one that most rows have, whose long answers may answer others."""
    said = [each for sample in samples if len(each := _said(sample)) > 1]
    asked = [" ".join(text for role, text in each if role == "user") for each in said]
    empty = [each for each in asked if each and not any(map(str.isalnum, each))]
    same = Counter(tuple(each[:-1]) for each in {*map(tuple, said)} if len(each[-1][1]) > _LONG_ANSWER)
    of_all = f"of its first {plural(len(samples), 'row')}"
    if len(empty) > 1:
        yield f"{len(empty)} {of_all} ask nothing but {quoted(empty[0])}, which may stand for a question elsewhere"
    for prompt, count in same.most_common(1):
        if 2 * count > len(samples) > 1 and prompt[-1][1]:
            yield f"{count} {of_all} have one prompt, {quoted(prompt[-1][1])}, and long answers that differ"


def _said(sample: Sample) -> list[tuple[str, str]]:
    """Return who says what in a sample."""
    if not sample.messages:
        return [("user", sample.prompt.strip()), ("assistant", sample.text.strip())]
    return [(each.role, str(each.fields.get("content") or "").strip()) for each in sample.messages]


def _repeats_question(sample: Sample) -> bool:
    """Whether an answer begins with the question before it, if that is a text."""
    return any(
        (role, other) == ("user", "assistant") and is_text(asked) and answer.startswith(asked)
        for (role, asked), (other, answer) in pairwise(_said(sample))
    )


def _runs_on(sample: Sample) -> bool:
    return any(role == "assistant" and _headers(text) is not None for role, text in _said(sample))


def _untemplated_prompts(entry: InputFile) -> Iterator[str]:
    """Report prompts that are texts, for a model with a chat template: as in TRL, they are trained without it."""
    answer = _ANSWERS_OF_PROMPTS.get(entry.schema)
    if answer is None:
        return
    rows = [rename(row, entry.columns) for row in first_rows(entry.path, entry.format, entry.columns, _FEW_ROWS)]
    texts = [
        row
        for row in rows
        if form_of(row) is None and all(isinstance(row.get(name), str) for name in ("prompt", answer))
    ]
    if rows and 2 * len(texts) > len(rows) and not any(row.get("instruction") or row.get("query") for row in texts):
        further = {"instruction": "prompt", **({} if answer == "chosen" else {"output": "completion"})}
        columns = flow_mapping(composed(entry.columns, further))
        prompts = [row["prompt"] for row in texts]
        are_framed = any(map(framed, prompts)) and not any(map(begins_with_system, prompts))
        ways = [f"sources.columns={columns}", *["rows.wrapped=unwrap"] * are_framed]
        yield (
            f"{entry.name}: its prompts are texts, which are trained as they are, without the chat template; "
            f"{' '.join(map(as_option, ways))} makes questions of them, and the template is used"
        )


def _headers(text: str) -> tuple[str, str] | None:
    """Return the header of the first question in a text, and of an answer after it; None if it is no dialogue.

    Two searches, each in one pass: a single pattern would begin anew in every line of a text of any length.
    """
    asked = _QUESTION.search(text)
    answered = None if asked is None else _ANSWER.search(text, asked.end(), asked.end() + _LONGEST_QUESTION)
    return None if asked is None or answered is None else (asked[1], answered[1])


def _note_empty(own: Sequence[SourceFile], empty: Sequence[SourceFile], note: Callable[[str], None]) -> None:
    path = own[0].source.path
    if len(empty) == len(own) > 1:
        raise NoRowsError(f"{path}: none of its {len(own)} files has a row", hint="write rows to them, or name others")
    saved = data_set_splits(Path(path)) if is_data_set(Path(path)) else []
    without_files = [split for split, files in saved if split is not None and not files]
    splits = {file.split for file in empty} - {file.split for file in own if file not in empty}
    for split in sorted({*splits, *without_files}):
        note(f"{path}: split '{split}' holds no rows, and is not built")
    names = [file.name for file in empty if file.split not in splits]
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        note(f"{path}: no rows in {', '.join(names[:_MOST_NAMED])}{more}")


def _note_begun(path: str, found: Sequence[Unread], note: Callable[[str], None]) -> None:
    """Report rows that begin other rows: each of their answers is trained more than once."""
    num_begin, num_rows = sum(each.num_begin for each in found), sum(each.num_rows for each in found)
    if num_begin * _MOST_ROWS_PER_BEGUN > num_rows:
        note(
            f"{path}: {num_begin:,} of its first {plural(num_rows, 'row')} begin another row, and their answers are "
            "trained once in each, as where every request of a session is logged with all before it; "
            f"{as_option('supervision.turns=last')} trains the last answer of each row alone; or keep the last row of "
            "each session, as docs/how-to/exports.md#requests-of-a-session shows"
        )


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
