"""Plan a build: read the inputs once for their digests and partitions, load the model, key every partition."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from packer.curate.trait_rules import TraitRules
from packer.errors import InputError, RecipeError
from packer.hub import data_name
from packer.model.model import TOKENIZER_FILE, Model, load_model
from packer.pipeline.blocks import BlockForm
from packer.pipeline.engine import Engine, resolve_engine
from packer.pipeline.identity import RULES_VERSION, Provenance, documents_identity, model_digests, partition_key
from packer.pipeline.images import with_processor
from packer.pipeline.kept_tokenizer import model_record
from packer.pipeline.messages.suggestions import templates_hint
from packer.pipeline.partition import PartitionTask
from packer.pipeline.plan.bucket_inputs import copy_objects
from packer.pipeline.plan.input_resolution import SourceFile, source_files, tokenizer_place
from packer.pipeline.plan.inputs import MIN_PARALLEL_BYTES, note_dialogues, open_inputs, read_whole
from packer.pipeline.plan.open_keys import settled
from packer.pipeline.plan.trait_tasks import refuse_absent, rules_of_sources, traits_task
from packer.pipeline.plan.unread_fields import Questions
from packer.pipeline.stages import named_template, overruns_at, with_role_markers
from packer.pipeline.workers.executor import ALONE, Processes, Workers
from packer.progress import Progress
from packer.recipe.recipe import Pack, Recipe
from packer.recipe.row_schemas import EXAMPLES, PREFERENCE_SCHEMAS
from packer.source.file_bytes import FilePath
from packer.source.file_cuts import partition_file
from packer.source.partition import FilePartitions, FileStatus
from packer.source.rows import InputFile
from packer.source.schema import SCHEMAS
from packer.store.manifest import Input, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """All the work of a build, planned before any of it begins."""

    recipe: Recipe
    model: Model
    provenance: Provenance
    files: tuple[tuple[FilePath, FileStatus], ...]
    """Status of each input before it was read."""

    tasks: tuple[PartitionTask, ...]
    settled_keys: tuple[str, ...]
    """A sentence about each key that the recipe left open and that the rows of a source need."""

    known_fields: tuple[tuple[int, frozenset[str]], ...]
    """Of each input the number of its source, and the fields of its first rows."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        return self.provenance.inputs


def plan_build(
    recipe: Recipe, progress: Progress, *, before: Manifest | None = None, workers: Workers = ALONE
) -> BuildPlan:
    """Read the inputs once and determine all work.

    Args:
        recipe: what to build, with commits in names of the Hub and digests of benchmarks.
        progress: receives progress and notes.
        before: manifest of the existing cache, if there is one.
        workers: used to read the files if they are large. Those of this machine get copies of inputs in buckets first,
            as it reads all of them more than once; those of a cluster read them where they are.

    Raises:
        RecipeError: no sources, no tokenizer, a file that is named twice, or an engine that cannot be used.
        InputError: a source or the tokenizer cannot be read, or rows have text that nothing reads.
        TemplateError: the template cannot be used.
    """
    paths = resolve_sources(recipe)
    model = load_recipe_model(recipe)
    engine = resolve_engine(recipe.engine, model.files[TOKENIZER_FILE], before=before.engine if before else None)
    _note_engine(engine, before, progress)
    recipe = msgspec.structs.replace(recipe, engine=engine.name)
    row_rules = rules_of_sources(recipe)
    statuses = {file.path: FileStatus.of(file.path) for file in paths}
    num_bytes = sum(status.num_bytes for status in statuses.values())
    readers = at_first = workers  # of a cluster, whose nodes read inputs in buckets where they are
    if isinstance(workers, Processes) or all(isinstance(path, Path) for path in statuses):
        copy_objects(statuses)
        at_first, readers = ALONE, ALONE if num_bytes < MIN_PARALLEL_BYTES else workers
    progress.stage("reading", num_bytes, "bytes")
    questions = Questions(recipe, model)
    opened = _opened(paths, recipe, model, questions=questions, workers=at_first, progress=progress)
    with overruns_at(lambda _: named_template(recipe)):
        recipe, settled_keys = settled(recipe, model, [(each.source, file) for each, file, _ in opened])
    documents = documents_identity(recipe, model_digests(model_record(model)), engine.version)
    sizes = [statuses[each.path].num_bytes for each, _, _ in opened]
    cut = partial(_cut_file, recipe.partition_bytes)
    cuts = read_whole(cut, [file for _, file, _ in opened], sizes, readers, progress)
    inputs = [
        _input_of(file, cut, part=number if row_rules else None)
        for (_, file, number), cut in zip(opened, cuts, strict=True)
    ]
    tasks = tuple(_tasks([file for _, file, _ in opened], cuts, inputs, documents, recipe, row_rules=row_rules))
    refuse_absent(row_rules, [(number, file) for _, file, number in opened], progress.note)
    asked, recipe = recipe.pack, suited(recipe, inputs)
    if recipe.pack != asked != Pack():
        what = "a cache with images" if recipe.reads_images else "preference data"
        progress.note(f"{what} has no blocks: `pack` has no effect; a filter on `tokens` leaves out long rows")
    record = model_record(model)
    BlockForm.of(recipe.pack, pad_id=record.pad_id, eos_id=record.eos_id, stop_ids=record.stop_ids)
    return BuildPlan(
        recipe=recipe,
        model=model,
        provenance=Provenance(
            recipe=recipe,
            engine=engine.name,
            engine_version=engine.version,
            rules_version=RULES_VERSION,
            model=record,
            inputs=tuple(inputs),
        ),
        files=tuple((each.path, statuses[each.path]) for each, _, _ in opened),
        tasks=tasks,
        settled_keys=settled_keys,
        known_fields=tuple((number, questions.names(each.source)) for each, _, number in opened),
    )


def _opened(
    paths: Sequence[SourceFile],
    recipe: Recipe,
    model: Model,
    *,
    questions: Questions,
    workers: Workers,
    progress: Progress,
) -> list[tuple[SourceFile, InputFile, int]]:
    """Return every file that has rows, with how it is read, and the number of its source.

    Raises:
        InputError: as :func:`plan_build`.
    """
    opened: list[tuple[SourceFile, InputFile, int]] = []
    for each, file in open_inputs(paths, recipe, progress.note, workers, questions):
        if not opened or opened[-1][0].source is not each.source:
            note_dialogues(file, progress.note)
        refuse_untemplated(file, model, recipe)
        opened.append((each, file, recipe.sources.index(each.source)))
    questions.refuse()
    questions.note_rare(progress.note)
    return opened


def _tasks(
    files: Sequence[InputFile],
    cuts: Sequence[FilePartitions],
    inputs: Sequence[Input],
    documents: Mapping[str, Any],
    recipe: Recipe,
    *,
    row_rules: Sequence[TraitRules],
) -> Iterator[PartitionTask]:
    """Yield a task for every partition, with the next index of a shard in its split."""
    num_shards: Counter[str] = Counter()
    for source, (file, cut, entry) in enumerate(zip(files, cuts, inputs, strict=True)):
        for partition in cut.partitions:
            yield PartitionTask(
                partition=partition,
                file=file,
                source=source,
                index=num_shards[file.split],
                key=partition_key(partition, entry, documents),
                traits=traits_task(partition, entry, recipe, row_rules),
                media_root=recipe.media.root,
            )
            num_shards[file.split] += 1


def resolve_sources(recipe: Recipe) -> list[SourceFile]:
    """Return the files of a recipe's sources in recipe order, with globs and folders expanded.

    Files of the Hub or of a bucket are fetched; none is opened.

    Raises:
        RecipeError: no sources, no tokenizer, or a file that is named twice for a split.
        InputError: a file is missing, or its name is not UTF-8; a glob matches none; a folder is not a data set.
        UsageError: standard input is a source, and nothing is piped in.
    """
    if not recipe.sources:
        raise RecipeError("no sources", hint="name files on the command line, or give the recipe `sources:`")
    if recipe.tokenizer is None:
        raise _no_tokenizer()
    files = [file for source in recipe.sources for file in source_files(source)]
    for file in files:
        _refuse_unnameable(file.name)
    _refuse_twice(files)
    return files


def refuse_untemplated(file: InputFile, model: Model, recipe: Recipe) -> None:
    """Refuse an input whose rows need a chat template if the model has none.

    Raises:
        InputError: rows of its schema need a template, and the model has none.
    """
    if SCHEMAS[file.schema].is_templated and model.template is None:
        raise InputError(
            f"{file.name}: rows of schema '{file.schema}' need a chat template, but the tokenizer has none",
            hint=templates_hint(model, recipe),
        )


def suited(recipe: Recipe, inputs: Sequence[Input]) -> Recipe:
    """Return the recipe for these inputs: preference data, whose answers are compared whole, has no blocks, nor have
    documents with images, whose pixels are made when they are read.

    Raises:
        RecipeError: a cache of several kinds of rows, or of preference data with a mode that cuts or joins documents.
    """
    first_of: dict[str, Input] = {}
    for entry in inputs:
        first_of.setdefault(PREFERENCE_SCHEMAS.get(entry.schema, EXAMPLES), entry)
    if len(first_of) > 1:
        named = ", ".join(f"{entry.path} holds {kind}" for kind, entry in first_of.items())
        raise RecipeError(
            f"{named}; a cache has one kind of rows", hint="build a cache of each: trainers read one kind"
        )
    if (EXAMPLES in first_of or not first_of) and not recipe.reads_images:
        return recipe
    if recipe.pack.mode in {"eos", "stream"}:
        whole = (
            "documents with images, which are" if recipe.reads_images else "preference data, whose answers are compared"
        )
        raise RecipeError(f"pack.mode={recipe.pack.mode} is not for {whole} whole", hint="--set pack.mode=none")
    return msgspec.structs.replace(recipe, pack=msgspec.structs.replace(recipe.pack, mode="none"))


def load_recipe_model(recipe: Recipe) -> Model:
    """Load the model that a recipe names, with its role markers.

    Raises:
        RecipeError: it names no tokenizer.
        InputError: the tokenizer cannot be read.
        TemplateError: the template cannot be used.
    """
    if recipe.tokenizer is None:
        raise _no_tokenizer()
    model = load_model(
        tokenizer_place(recipe.tokenizer),
        template=recipe.template.path,
        stop=recipe.supervision.stop,
        pad_id=recipe.pack.pad_id,
        processor=recipe.reads_images,
    )
    return with_processor(with_role_markers(model, recipe), recipe)


def _note_engine(engine: Engine, before: Manifest | None, progress: Progress) -> None:
    """Say why the fast engine is refused, and what other than the recipe causes everything to be tokenized again."""
    if engine.refused is not None:
        progress.note(f"engine reference: {engine.refused}")
    if before is None:
        return
    for what, was, now in (
        ("the engine", before.engine, engine.name),
        ("the engine", before.engine_version, engine.version),
        ("the version of packer's rules", before.rules_version, RULES_VERSION),
    ):
        if was != now:
            progress.note(f"{what} was {was} and is {now}: everything is tokenized again")
            return


def _no_tokenizer() -> RecipeError:
    return RecipeError("no tokenizer", hint="pass the model's folder with --tokenizer DIR")


def _refuse_unnameable(name: str) -> None:
    """Refuse names that are not UTF-8, since the manifest lists its inputs in UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name!r}: the file's name is not UTF-8", hint="rename the file") from None


def _cut_file(partition_bytes: int, file: InputFile) -> FilePartitions:
    return partition_file(file.path, format=file.format, partition_bytes=partition_bytes, limit=file.limit)


def _input_of(file: InputFile, cut: FilePartitions, *, part: int | None) -> Input:
    """Return a file's entry in the manifest.

    `part` is the index of the recipe's source that names the file; it is recorded if the recipe has rules about rows.
    """
    return Input(
        path=file.name,
        split=file.split,
        format=file.format,
        schema=file.schema,
        columns=dict(file.columns),
        roles=dict(file.roles),
        num_bytes=cut.num_bytes,
        sha256=cut.sha256,
        num_rows=cut.num_rows,
        part=part,
    )


def _refuse_twice(files: Sequence[SourceFile]) -> None:
    seen: set[tuple[str, str]] = set()
    for file in files:
        is_here = isinstance(file.path, Path) and data_name(file.name) is None
        real = (os.path.realpath(file.path) if is_here else file.name, file.split)
        if real in seen:
            raise RecipeError(
                f"sources name {file.name} twice for split '{file.split}'", hint="its rows would be trained on twice"
            )
        seen.add(real)
