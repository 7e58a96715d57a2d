"""Resolve what a recipe names, inputs, tokenizer and benchmarks, to files and objects, with copies from the Hub.

A build first pins branches and tags of the Hub to commits (:func:`pin_recipe`), and the manifest records names with
commits. From then on only pinned names refer to the Hub, so that a missing relative path of two parts (`a/b`) is never
looked up there.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from packer.errors import InputError, RecipeError, did_you_mean, near, near_paths
from packer.hub import fetch_data, fetch_tokenizer, pin
from packer.media.processor import PROCESSOR_FILES
from packer.model.model import FOLDER_FILES
from packer.names import HubName, bucket_url, data_name, refuse_address, tokenizer_name
from packer.questions.question_fields import list_names
from packer.recipe.recipe import Recipe, Source
from packer.recipe.row_rules import Benchmark, BenchmarkColumns, benchmark_name
from packer.source.decode import Refused
from packer.source.detect import detect_format, field_names
from packer.source.file_bytes import TABLE_FORMATS, FilePath, NoRowsError, file_sha256
from packer.source.files import STANDARD_INPUT, data_set_files, expand, input_path, is_data_set
from packer.source.rows import file_stream
from packer.source.tables import table_rows
from packer.source.text_rows import text_rows
from packer.store.place import copy_objects, objects_of

if TYPE_CHECKING:
    from packer.curate.contamination import BenchmarkQuestions


def pin_recipe(recipe: Recipe, note: Callable[[str], None]) -> Recipe:
    """Return the recipe with a commit in every name of the Hub.

    A name that begins like one of the Hub but is not valid is a RecipeError, one that neither the Hub nor its cache
    knows an InputError.
    """
    pins: dict[HubName, str] = {}

    def pinned(name: HubName) -> str:
        whole = replace(name, path="")
        if whole not in pins:
            found, by_cache = pin(whole)
            assert found.revision is not None
            pins[whole] = found.revision
            if not name.is_pinned:
                unreached = " in the Hub's cache; the Hub itself was not reached" * by_cache
                note(f"{whole.label} is commit {found.revision[:12]}{unreached}")
        return str(replace(name, revision=pins[whole]))

    sources = [
        source if (name := data_name(source.path)) is None else structs.replace(source, path=pinned(name))
        for source in recipe.sources
    ]
    if recipe.tokenizer is not None and (name := tokenizer_name(recipe.tokenizer)) is not None:
        recipe = structs.replace(recipe, tokenizer=pinned(name))
    return structs.replace(recipe, sources=tuple(sources))


def tokenizer_place(tokenizer: str) -> Path:
    """Return the folder or file of a pinned recipe's tokenizer, downloading it if it is on the Hub."""
    name = tokenizer_name(tokenizer)
    if name is None or not name.is_pinned:
        return Path(tokenizer)
    return fetch_tokenizer(name, (*FOLDER_FILES, *PROCESSOR_FILES))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file that belongs to a source of the recipe."""

    source: Source
    name: str
    """Name by which a recipe would refer to this file alone, POSIX; recorded in the manifest."""

    path: FilePath
    split: str


def source_files(source: Source) -> list[SourceFile]:
    """Return the files of a source, in order.

    InputError: a file is missing, a glob matches none, a folder is not a data set, the Hub denies access. UsageError:
    nothing is piped in.
    """
    refuse_address(source.path, place="input")
    hub = data_name(source.path)
    found: Iterable[tuple[str | None, str, FilePath]]
    if hub is not None:
        found = ((None, str(name), path) for name, path in fetch_data(hub))
    elif bucket_url(source.path) is not None:
        found = ((None, str(file), file) for file in objects_of(source.path))
    elif source.path == STANDARD_INPUT:
        found = [(None, source.path, input_path(source.path))]
    elif is_data_set(Path(source.path)):
        found = ((split, path.as_posix(), path) for split, path in data_set_files(Path(source.path)))
    else:
        found = ((None, path.as_posix(), path) for path in expand([source.path]))
    return [
        SourceFile(source=source, name=name, path=path, split=source.split or split or "train")
        for split, name, path in found
    ]


def input_place(path: str) -> FilePath:
    """Return the file of an input that a manifest names, downloading it from the Hub if necessary."""
    name = data_name(path)
    if bucket_url(path) is not None:
        return objects_of(path)[0]
    return input_path(path) if name is None else fetch_data(name)[0][1]


def resolve_sources(recipe: Recipe, *, copied: bool = False) -> list[SourceFile]:
    """Return the files of a recipe's sources in recipe order, with globs and folders expanded.

    Files of the Hub are fetched; with `copied`, so are objects of a bucket, as a build on one machine reads all of them
    more than once. None is opened. A RecipeError says that the recipe lacks sources or a tokenizer, or names a file
    twice for a split; an InputError that a file is missing or has a name that is not UTF-8, a glob matches none, or a
    folder is not a data set; a UsageError that nothing is piped in.
    """
    if not recipe.sources:
        raise RecipeError("no sources", hint="name files on the command line, or give the recipe `sources:`")
    if recipe.tokenizer is None:
        raise no_tokenizer()
    files = [file for source in recipe.sources for file in source_files(source)]
    _refuse_names(files)
    if copied and (objects := [file.path for file in files if not isinstance(file.path, Path)]):
        copy_objects(objects)
    return files


def no_tokenizer() -> RecipeError:
    return RecipeError("no tokenizer", hint="pass the model's folder with --tokenizer DIR")


def _refuse_names(files: Sequence[SourceFile]) -> None:
    """Refuse a name that the manifest cannot list in UTF-8, and one file twice for a split."""
    seen: set[tuple[str, str]] = set()
    for file in files:
        if re.search("[\ud800-\udfff]", file.name):
            raise InputError(f"{file.name!r}: the file's name is not UTF-8", hint="rename the file")
        is_here = isinstance(file.path, Path) and data_name(file.name) is None
        real = (os.path.realpath(file.path) if is_here else file.name, file.split)
        if real in seen:
            raise RecipeError(
                f"sources name {file.name} twice for split '{file.split}'", hint="its rows would be trained on twice"
            )
        seen.add(real)


_QUESTION_COLUMNS = ("question", "prompt", "problem", "instruction", "query", "input", "text")
"""Column names under which benchmarks keep their questions; the first one that the rows have is used."""

_MAX_ROW_BYTES = 64 * 2**20


def read_benchmark(rule: Benchmark) -> tuple[Benchmark, tuple[str, ...]]:
    """Read the benchmark that a recipe names: JSON lines, JSON, CSV, Parquet or Arrow.

    Returns the rule with the digest, the column and the number of questions, and the questions themselves. InputError
    if the file cannot be read, is not the one whose digest the recipe has, or has a row without a text in the column.
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
    from packer.curate.contamination import BenchmarkQuestions  # noqa: PLC0415 - not loaded by builds without rules

    found = [read_benchmark(rule) for rule in asked.against]
    for rule, questions in found:
        number = BenchmarkQuestions([questions], ngram=asked.ngram, common=asked.common).num_untestable
        if number:
            note(
                f"{number:,} of {len(questions):,} questions of {benchmark_name(rule)} are not "
                "searched for: they have no words, or only n-grams that at least "
                f"{asked.common} of them share (decontaminate.common)"
            )
    return structs.replace(recipe, decontaminate=structs.replace(asked, against=tuple(rule for rule, _ in found)))


def questions_of(recipe: Recipe) -> "BenchmarkQuestions | None":
    """Return the questions of a recipe's benchmarks, indexed for matching; None if it names none."""
    asked = recipe.decontaminate
    if asked is None:
        return None
    from packer.curate.contamination import BenchmarkQuestions  # noqa: PLC0415 - not loaded by builds without rules

    benchmarks = [read_benchmark(rule)[1] for rule in asked.against]
    return BenchmarkQuestions(benchmarks, ngram=asked.ngram, common=asked.common, cover=asked.cover)


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
