"""What there is to do: inputs read once for their digests and partitions, the model, the keys of every partition."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from packer.build.identity import documents_identity, partition_key, recipe_fingerprint
from packer.build.partition import PartitionTask
from packer.build.progress import Progress
from packer.build.stages import with_role_markers
from packer.errors import InputError, RecipeError
from packer.model import Model, load_model
from packer.recipe import Recipe, Source
from packer.source import Partition, Schema, detect_format, detect_schema, expand, partition_file
from packer.store.manifest import Input
from packer.tokenize import ReferenceEncoder

_TEMPLATED = {"messages", "sharegpt", "alpaca"}
"""Schemas whose rows go through the chat template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """Everything a build does, before it does any of it."""

    recipe: Recipe
    model: Model
    engine: str
    engine_version: str
    inputs: tuple[Input, ...]
    tasks: tuple[PartitionTask, ...]
    recipe_fingerprint: str


def plan_build(recipe: Recipe, progress: Progress) -> BuildPlan:
    """Read the inputs once and name all work.

    Raises:
        RecipeError: no sources, or no tokenizer.
        InputError: a source or the tokenizer cannot be read.
        TemplateError: the template cannot be used.

    """
    if not recipe.sources:
        raise RecipeError("no sources", hint="packer build FILE... -o CACHE, or `sources:` in the recipe")
    if recipe.tokenizer is None:
        raise RecipeError("no tokenizer", hint="give the model's folder with --tokenizer DIR")
    paths = [(source, path) for source in recipe.sources for path in expand([source.path])]
    for _, path in paths:
        _refuse_unnameable(path)
    _refuse_twice(paths)
    model = load_recipe_model(recipe)
    engine, engine_version = ReferenceEncoder.name, f"tokenizers {ReferenceEncoder.version}, jinja2 {version('jinja2')}"
    documents = documents_identity(recipe, model, engine_version)
    progress.stage("reading", sum(path.stat().st_size for _, path in paths), "bytes")
    inputs: list[Input] = []
    tasks: list[PartitionTask] = []
    num_shards: dict[str, int] = {}
    for source, path in paths:
        entry, schema, partitions = _read_input(source, path, recipe.partition_bytes)
        if entry.schema in _TEMPLATED and model.template is None:
            raise InputError(
                f"{path}: rows of schema '{entry.schema}' need a chat template, and the tokenizer has none",
                hint="give one with --template FILE",
            )
        for partition in partitions:
            key = partition_key(partition, schema=entry.schema, columns=source.columns, documents=documents)
            index = num_shards.get(source.split, 0)
            num_shards[source.split] = index + 1
            tasks.append(
                PartitionTask(
                    partition=partition,
                    schema=schema,
                    columns=dict(source.columns),
                    split=source.split,
                    source=len(inputs),
                    index=index,
                    key=key,
                )
            )
        inputs.append(entry)
        progress.advance(entry.num_bytes)
    return BuildPlan(
        recipe=recipe,
        model=model,
        engine=engine,
        engine_version=engine_version,
        inputs=tuple(inputs),
        tasks=tuple(tasks),
        recipe_fingerprint=recipe_fingerprint(recipe, documents, inputs, [source.columns for source, _ in paths]),
    )


def load_recipe_model(recipe: Recipe) -> Model:
    """The model a recipe names, with its role markers."""
    return with_role_markers(load_bare_model(recipe), recipe)


def load_bare_model(recipe: Recipe) -> Model:
    """The model a recipe names, before its template was looked at.

    Raises:
        RecipeError: it names none.
        InputError: the tokenizer cannot be read.

    """
    if recipe.tokenizer is None:
        raise RecipeError("no tokenizer", hint="give the model's folder with --tokenizer DIR")
    return load_model(
        Path(recipe.tokenizer),
        template=Path(recipe.template.file) if recipe.template.file else None,
        stop=recipe.supervision.stop,
        pad_id=recipe.pack.pad_id,
    )


def tasks_by_input(plan: BuildPlan) -> Iterator[tuple[Input, tuple[PartitionTask, ...]]]:
    """Each input with its partitions, in order."""
    tasks: dict[int, list[PartitionTask]] = {}
    for task in plan.tasks:
        tasks.setdefault(task.source, []).append(task)
    for number, entry in enumerate(plan.inputs):
        yield entry, tuple(tasks.get(number, ()))


def _refuse_unnameable(path: Path) -> None:
    """The manifest names its inputs, in UTF-8."""
    try:
        path.as_posix().encode()
    except UnicodeEncodeError:
        raise InputError(f"{path!r}: the file's name is not UTF-8", hint="rename the file") from None


def _read_input(source: Source, path: Path, partition_bytes: int) -> tuple[Input, Schema, tuple[Partition, ...]]:
    file_format = detect_format(path) if source.format == "auto" else source.format
    columns: Mapping[str, str | None] = source.columns
    schema = detect_schema(path, format=file_format, columns=columns) if source.schema == "auto" else source.schema
    cut = partition_file(path, format=file_format, partition_bytes=partition_bytes, limit=source.limit)
    entry = Input(
        path=path.as_posix(),
        split=source.split,
        format=file_format,
        schema=schema,
        num_bytes=cut.num_bytes,
        sha256=cut.sha256,
        num_rows=cut.num_rows,
    )
    return entry, schema, cut.partitions


def _refuse_twice(paths: list[tuple[Source, Path]]) -> None:
    seen: dict[tuple[Path, str], Path] = {}
    for source, path in paths:
        real = (path.resolve(), source.split)
        if real in seen:
            raise RecipeError(
                f"sources name {path} twice for split '{source.split}'", hint="its rows would be learned twice"
            )
        seen[real] = path
