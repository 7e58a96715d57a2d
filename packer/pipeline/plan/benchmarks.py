"""Read benchmark files and the questions in them, with the readers packer uses for rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from packer.errors import InputError
from packer.near_names import did_you_mean, near, near_paths
from packer.pipeline.plan.input_resolution import input_place
from packer.recipe import row_rules
from packer.recipe.recipe import Recipe
from packer.source.decode import Refused
from packer.source.detect import detect_format, field_names
from packer.source.file_bytes import FilePath, NoRowsError, file_sha256
from packer.source.partition import TABLE_FORMATS
from packer.source.question_fields import list_names
from packer.source.rows import file_stream
from packer.source.tables import table_rows
from packer.source.text_rows import text_rows

if TYPE_CHECKING:
    from packer.curate.contamination import Questions

QUESTION_COLUMNS = ("question", "prompt", "problem", "instruction", "query", "input", "text")
"""Column names under which benchmarks keep their questions; the first one that the rows have is used."""

_MAX_ROW_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkQuestions:
    """The questions of one benchmark file."""

    name: str
    path: str
    sha256: str
    column: str
    questions: tuple[str, ...]


def read_benchmark(path: str, *, column: str | None = None, name: str | None = None) -> BenchmarkQuestions:
    """Read the questions of a file: JSON lines, JSON, CSV, Parquet or Arrow.

    By default, questions are in the first of `QUESTION_COLUMNS` that the rows have, and the name is the file's stem.

    Raises:
        InputError: the file cannot be read, its rows lack the field, or a row has no text in it.
    """
    place = input_place(path)
    if isinstance(place, Path) and (place.is_dir() or not place.exists()):
        raise InputError(
            f"{path}: no such file",
            hint=did_you_mean(near_paths(path), "a benchmark is one file; name each file of a folder or pattern"),
        )
    found = _column(path, place, column)
    questions = []
    for number, value in enumerate(_values(place, found)):
        if not isinstance(value, str):
            said = value if isinstance(value, Refused) else f"found {type(value).__name__}"
            raise InputError(
                f"{path}: row {number}: expected a text in column '{found}': {said}",
                hint="every row of a benchmark needs a question that is a text",
            )
        questions.append(value)
    if not questions:
        raise NoRowsError(f"{path}: no rows", hint="a benchmark has one question per row")
    return BenchmarkQuestions(
        name=name or PurePosixPath(path).stem,
        path=path,
        sha256=file_sha256(place),
        column=found,
        questions=tuple(questions),
    )


def pin_benchmarks(recipe: Recipe, note: Callable[[str], None]) -> Recipe:
    """Return the recipe with the digest, the column and the number of questions of each of its benchmarks.

    Questions that no row can be found to hold are noted.

    Raises:
        InputError: as :func:`read_benchmark`; or a file's digest is not the one in the recipe.
    """
    asked = recipe.decontaminate
    if asked is None:
        return recipe
    from packer.curate.contamination import Questions  # noqa: PLC0415 - not loaded by builds without rules

    against = []
    for rule in asked.against:
        found = read_rule(rule)
        number = Questions([found.questions], ngram=asked.ngram, common=asked.common).num_untestable
        if number:
            note(
                f"{number:,} of {len(found.questions):,} questions of {found.name} are not searched for: they have no "
                f"words, or only n-grams that at least {asked.common} of them share (decontaminate.common)"
            )
        against.append(
            msgspec.structs.replace(
                rule,
                columns=row_rules.BenchmarkColumns(question=found.column),
                sha256=found.sha256,
                questions=len(found.questions),
            )
        )
    return msgspec.structs.replace(recipe, decontaminate=msgspec.structs.replace(asked, against=tuple(against)))


def questions_of(recipe: Recipe) -> "Questions | None":
    """Return the questions of a recipe's benchmarks, indexed for matching; None if it names none.

    Raises:
        InputError: as :func:`pin_benchmarks`.
    """
    asked = recipe.decontaminate
    if asked is None:
        return None
    from packer.curate.contamination import Questions  # noqa: PLC0415 - not loaded by builds without rules

    benchmarks = [read_rule(rule).questions for rule in asked.against]
    return Questions(benchmarks, ngram=asked.ngram, common=asked.common, cover=asked.cover)


def read_rule(rule: row_rules.Benchmark) -> BenchmarkQuestions:
    """Read the benchmark that a recipe names.

    Raises:
        InputError: as :func:`pin_benchmarks`.
    """
    found = read_benchmark(rule.path, column=rule.columns.question, name=rule.name)
    if rule.sha256 not in {None, found.sha256}:
        raise InputError(
            f"{rule.path}: expected sha256 {rule.sha256}, found {found.sha256}",
            hint="the benchmark file has changed; without the key sha256, any version of it is taken",
        )
    return found


def _column(path: str, place: FilePath, column: str | None) -> str:
    names = sorted(field_names(place, format=detect_format(place)))
    found = column or next((each for each in QUESTION_COLUMNS if each in names), None)
    if found in names:
        return found
    close = near(column or "", names) or names[:8]
    asked = f"no column '{column}'" if column else f"none of the columns {list_names(QUESTION_COLUMNS)}"
    raise InputError(
        f"{path}: its rows have {asked}", hint=f"its columns: {list_names(close)}; name the one with the question"
    )


def _values(place: FilePath, column: str) -> Iterator[object]:
    """Yield each row's value in a column: None if it has no such column, the error if the row cannot be decoded."""
    kind = detect_format(place)
    rows = (
        table_rows(place, kind, {column: True}, columns={}, max_row_bytes=_MAX_ROW_BYTES)
        if kind in TABLE_FORMATS
        else text_rows(place, file_stream(place), kind, columns={}, max_row_bytes=_MAX_ROW_BYTES)
    )
    for row in rows:
        try:
            value = row.value()
        except Refused as refused:
            yield refused
        else:
            yield value.get(column) if isinstance(value, dict) else value
