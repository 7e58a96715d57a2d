"""Read benchmark files and the questions in them, with the readers packer uses for rows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from packer.errors import InputError
from packer.near_names import did_you_mean, near, near_paths
from packer.pipeline.plan.input_resolution import input_place
from packer.questions.question_fields import list_names
from packer.recipe.recipe import Recipe
from packer.recipe.row_rules import Benchmark, BenchmarkColumns, benchmark_name
from packer.source.decode import Refused
from packer.source.detect import detect_format, field_names
from packer.source.file_bytes import FilePath, NoRowsError, file_sha256
from packer.source.partition import TABLE_FORMATS
from packer.source.rows import file_stream
from packer.source.tables import table_rows
from packer.source.text_rows import text_rows

if TYPE_CHECKING:
    from packer.curate.contamination import Questions

_QUESTION_COLUMNS = ("question", "prompt", "problem", "instruction", "query", "input", "text")
"""Column names under which benchmarks keep their questions; the first one that the rows have is used."""

_MAX_ROW_BYTES = 64 * 2**20


def read_benchmark(rule: Benchmark) -> tuple[Benchmark, tuple[str, ...]]:
    """Read the benchmark that a recipe names: JSON lines, JSON, CSV, Parquet or Arrow.

    Returns:
        the rule with the digest, the column and the number of questions, and the questions themselves

    Raises:
        InputError: the file cannot be read, or is not the one whose digest the recipe has; its rows lack the field, or
            a row has no text in it.
    """
    path, place = rule.path, input_place(rule.path)
    if isinstance(place, Path) and (place.is_dir() or not place.exists()):
        raise InputError(
            f"{path}: no such file",
            hint=did_you_mean(near_paths(path), "a benchmark is one file; name each file of a folder or pattern"),
        )
    column = _column(path, place, rule.columns.question)
    questions = []
    for number, value in enumerate(_values(place, column)):
        if not isinstance(value, str):
            said = value if isinstance(value, Refused) else f"found {type(value).__name__}"
            raise InputError(
                f"{path}: row {number}: expected a text in column '{column}': {said}",
                hint="every row of a benchmark needs a question that is a text",
            )
        questions.append(value)
    if not questions:
        raise NoRowsError(f"{path}: no rows", hint="a benchmark has one question per row")
    sha256 = file_sha256(place)
    if rule.sha256 not in {None, sha256}:
        raise InputError(
            f"{path}: expected sha256 {rule.sha256}, found {sha256}",
            hint="the benchmark file has changed; without the key sha256, any version of it is taken",
        )
    columns = BenchmarkColumns(question=column)
    return structs.replace(rule, columns=columns, sha256=sha256, questions=len(questions)), tuple(questions)


def pin_benchmarks(recipe: Recipe, note: Callable[[str], None]) -> Recipe:
    """Return the recipe with its benchmarks as :func:`read_benchmark` returns them.

    Questions that no row can be found to hold are noted.
    """
    asked = recipe.decontaminate
    if asked is None:
        return recipe
    from packer.curate.contamination import Questions  # noqa: PLC0415 - not loaded by builds without rules

    found = [read_benchmark(rule) for rule in asked.against]
    for rule, questions in found:
        number = Questions([questions], ngram=asked.ngram, common=asked.common).num_untestable
        if number:
            note(
                f"{number:,} of {len(questions):,} questions of {benchmark_name(rule)} are not "
                "searched for: they have no words, or only n-grams that at least "
                f"{asked.common} of them share (decontaminate.common)"
            )
    return structs.replace(recipe, decontaminate=structs.replace(asked, against=tuple(rule for rule, _ in found)))


def questions_of(recipe: Recipe) -> "Questions | None":
    """Return the questions of a recipe's benchmarks, indexed for matching; None if it names none."""
    asked = recipe.decontaminate
    if asked is None:
        return None
    from packer.curate.contamination import Questions  # noqa: PLC0415 - not loaded by builds without rules

    benchmarks = [read_benchmark(rule)[1] for rule in asked.against]
    return Questions(benchmarks, ngram=asked.ngram, common=asked.common, cover=asked.cover)


def _column(path: str, place: FilePath, column: str | None) -> str:
    names = sorted(field_names(place, format=detect_format(place)))
    found = column or next((each for each in _QUESTION_COLUMNS if each in names), None)
    if found in names:
        return found
    close = near(column or "", names) or names[:8]
    asked = f"no column '{column}'" if column else f"none of the columns {list_names(_QUESTION_COLUMNS)}"
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
