"""Plan a build: read the inputs once for their digests and partitions, load the model, key every partition."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from packer.curate import TraitRules
from packer.display import Progress
from packer.errors import InputError, RecipeError
from packer.media.processor import processor_of
from packer.model.model import TOKENIZER_FILE, Model, load_model
from packer.pipeline.identity import RULES_VERSION, Engine, Provenance, key_of, model_record, resolve_engine
from packer.pipeline.images import with_processor
from packer.pipeline.messages.suggestions import templates_hint
from packer.pipeline.partition import PartitionTask, TraitsTask
from packer.pipeline.plan.input_resolution import no_tokenizer, resolve_sources, tokenizer_place
from packer.pipeline.plan.inputs import MIN_PARALLEL_BYTES, open_inputs, read_whole
from packer.pipeline.plan.open_keys import settled
from packer.pipeline.plan.unread_fields import Questions
from packer.pipeline.stages import overruns_at, with_role_markers
from packer.pipeline.workers import Workers
from packer.pipeline.workers.executor import ALONE, Processes
from packer.recipe.groups import Pack, declared
from packer.recipe.recipe import Recipe
from packer.recipe.row_rules import WHERE
from packer.source.detect import has_field
from packer.source.file_bytes import FilePath, FileStatus
from packer.source.partition import FilePartitions, partition_file
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

    known_fields: tuple[frozenset[str], ...]
    """Of each source, the fields of its first rows."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        return self.provenance.inputs


def plan_build(
    recipe: Recipe, progress: Progress, *, before: Manifest | None = None, workers: Workers = ALONE
) -> BuildPlan:
    """Read the inputs once and determine all work.

    The recipe has commits in names of the Hub and digests of benchmarks. `before` is the manifest of the existing
    cache, if there is one. Large files are read by `workers`. What cannot be built is a RecipeError, an InputError or a
    TemplateError.
    """
    is_here = isinstance(workers, Processes)
    paths = resolve_sources(recipe, copied=is_here)
    model = load_recipe_model(recipe)
    engine = resolve_engine(recipe.engine, model.files[TOKENIZER_FILE], before=before.engine if before else None)
    _note_engine(engine, before, progress)
    recipe = msgspec.structs.replace(recipe, engine=engine.name)
    trait_rules = rules_of_sources(recipe)
    statuses = {file.path: FileStatus.of(file.path) for file in paths}
    num_bytes = sum(status.num_bytes for status in statuses.values())
    # Inputs in other places are read by the nodes of a cluster. Those here are opened here, and read there if large.
    is_local = is_here or all(isinstance(path, Path) for path in statuses)
    openers = ALONE if is_local else workers
    readers = ALONE if is_local and num_bytes < MIN_PARALLEL_BYTES else workers
    progress.stage("reading", num_bytes, "bytes")
    questions = Questions(recipe, model)
    files = [*open_inputs(paths, recipe, progress.note, questions, openers)]
    questions.refuse(are_chats=any(SCHEMAS[file.schema].is_templated for file in files))
    for file in files:
        refuse_untemplated(file, model, recipe)
    for note in questions.notes():
        progress.note(note)
    with overruns_at(recipe):
        recipe, settled_keys = settled(recipe, model, [(recipe.sources[file.source], file) for file in files])
    sizes = [statuses[file.path].num_bytes for file in files]
    cuts = read_whole(partial(_cut_file, recipe.partition_bytes), files, sizes, readers, progress)
    inputs = [_input_of(file, cut, with_part=bool(trait_rules)) for file, cut in zip(files, cuts, strict=True)]
    _refuse_absent(recipe, files, progress.note)
    asked_pack, recipe = recipe.pack, suited(recipe, inputs)
    _note_without_effect(asked_pack, recipe, model, progress)
    provenance = Provenance(
        recipe=recipe,
        engine=engine.name,
        engine_version=engine.version,
        rules_version=RULES_VERSION,
        model=model_record(model),
        inputs=tuple(inputs),
    )
    return BuildPlan(
        recipe=recipe,
        model=model,
        provenance=provenance,
        files=tuple((file.path, statuses[file.path]) for file in files),
        tasks=tuple(_tasks(files, cuts, provenance, trait_rules)),
        settled_keys=settled_keys,
        known_fields=tuple(map(questions.names, recipe.sources)),
    )


def _tasks(
    files: Sequence[InputFile],
    cuts: Sequence[FilePartitions],
    provenance: Provenance,
    trait_rules: Sequence[TraitRules],
) -> Iterator[PartitionTask]:
    """Yield a task for every partition."""
    recipe, documents = provenance.recipe, provenance.documents_identity
    for source, (file, cut, entry) in enumerate(zip(files, cuts, provenance.inputs, strict=True)):
        for partition in cut.partitions:
            traits, key = None, key_of(partition, entry, documents=documents)
            if trait_rules:
                rules = trait_rules[file.source]
                asked = {"max_row_bytes": recipe.rows.max_bytes, "rules": msgspec.to_builtins(rules)}
                traits = TraitsTask(rules=rules, key=key_of(partition, entry, traits=asked))
            yield PartitionTask(
                partition=partition, file=file, source=source, key=key, traits=traits, media=recipe.media
            )


def refuse_untemplated(file: InputFile, model: Model, recipe: Recipe) -> None:
    """Refuse an input whose rows need a chat template if the model has none."""
    if SCHEMAS[file.schema].is_templated and model.template is None:
        raise InputError(
            f"{file.name}: rows of schema '{file.schema}' need a chat template, but the tokenizer has none",
            hint=templates_hint(model, recipe),
        )


def suited(recipe: Recipe, inputs: Sequence[Input]) -> Recipe:
    """Return the recipe for these inputs: answers that are compared whole have no blocks, nor have documents with
    images, unless it limits the pixels of a block.

    A cache of several kinds of rows is a RecipeError, as are answers to compare with a mode that cuts or joins
    documents, or trains what is asked.
    """
    first_of: dict[str | None, Input] = {}
    for entry in inputs:
        first_of.setdefault(SCHEMAS[entry.schema].compares, entry)
    if len(first_of) > 1:
        named = ", ".join(f"{entry.path} holds {kind or 'examples to imitate'}" for kind, entry in first_of.items())
        raise RecipeError(
            f"{named}; a cache has one kind of rows", hint="build a cache of each: a trainer reads one kind"
        )
    compared = next(iter(first_of), None)
    if compared is None and not recipe.reads_images:
        return recipe
    if compared is not None and recipe.supervision.turns == "conversation":
        raise RecipeError(
            f"supervision.turns=conversation trains questions, too, and of {compared} only the answers are compared",
            hint="--set supervision.turns=all",
        )
    if recipe.pack.mode == "stream":
        whole = "documents with images, which are" if recipe.reads_images else f"{compared}, which are compared"
        raise RecipeError(f"pack.mode=stream is not for {whole} whole", hint="--set pack.mode=none")
    if compared is None and recipe.pack.max_pixels is not None:
        return recipe
    return msgspec.structs.replace(recipe, pack=msgspec.structs.replace(recipe.pack, mode="none"))


def load_recipe_model(recipe: Recipe) -> Model:
    """Load the model that a recipe names, with its role markers.

    RecipeError: it names no tokenizer, or tokens that this does not have. InputError, TemplateError: one of them cannot
    be used.
    """
    if recipe.tokenizer is None:
        raise no_tokenizer()
    model = load_model(
        tokenizer_place(recipe.tokenizer),
        template=recipe.template.path,
        stop=recipe.supervision.stop,
        pad_id=recipe.pack.pad_id,
        processor=recipe.reads_images,
    )
    model = with_role_markers(model, recipe)
    return with_processor(model) if recipe.reads_images else model


def _note_without_effect(asked: Pack, recipe: Recipe, model: Model, progress: Progress) -> None:
    """Report what of `pack` the inputs make void, and blocks that training cannot use."""
    if recipe.pack != asked != Pack():
        what = "a cache with images, without pack.max_pixels," if recipe.reads_images else "a cache of pairs or ratings"
        progress.note(f"{what} is not packed: `pack` has no effect; to leave out long rows, filter by `tokens`")
    if recipe.reads_images and recipe.pack.mode != "none" and (why := processor_of(model.files).wrong_when_packed):
        progress.note(f"train with batching='padded', which reads no blocks: this model {why}")


def _note_engine(engine: Engine, before: Manifest | None, progress: Progress) -> None:
    """Say what other than the recipe causes everything to be tokenized again."""
    if before is None:
        return
    decides = (
        ("the engine", before.engine, engine.name),
        ("the engine", before.engine_version, engine.version),
        ("the version of packer's rules", before.rules_version, RULES_VERSION),
    )
    for what, was, now in [each for each in decides if each[1] != each[2]][:1]:
        progress.note(f"{what} was {was} and is {now}: everything is tokenized again")


def _cut_file(partition_bytes: int, file: InputFile) -> FilePartitions:
    return partition_file(file.path, format=file.format, partition_bytes=partition_bytes, limit=file.limit)


def _input_of(file: InputFile, cut: FilePartitions, *, with_part: bool) -> Input:
    """Return a file's entry in the manifest; with the recipe's source, for a recipe with rules about rows."""
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
        part=file.source if with_part else None,
    )


def rules_of_sources(recipe: Recipe) -> tuple[TraitRules, ...]:
    """Return the rules about the rows of each source, or none; RecipeError if a regular expression cannot be used."""
    if not recipe.chooses_rows:
        return ()
    from packer.curate.traits import TraitMaker  # noqa: PLC0415 - not loaded by builds without rules

    trait_rules = tuple(TraitRules.of(recipe.row_rules, source) for source in range(len(recipe.sources)))
    for each in trait_rules:
        TraitMaker(each)  # refuses what cannot be used
    return trait_rules


def _refuse_absent(recipe: Recipe, files: Sequence[InputFile], note: Callable[[str], None]) -> None:
    """Refuse a rule or a column about a field that no row has, before any partition is built.

    Only for a field that no first row of any file has are the files read, and this is noted: their rows may be of
    several kinds, one after the other.
    """
    askers: dict[tuple[str, int | None], str] = {}
    for field, source, asker in _asked_fields(recipe):
        if source is not None or all(asked != field for asked, _ in askers):
            askers.setdefault((field, source), asker)
    for (field, source), asker in askers.items():
        own = [file for file in files if source in (None, file.source)]
        if any(has_field(file, field) for file in own):
            continue
        note(f"the first rows have no field '{field}': looking for it in all rows")
        if not any(has_field(file, field, max_rows=None) for file in own):
            raise InputError(
                f"{asker}: no row has a field '{field}'",
                hint="fields are named as the files have them, as in metadata.user_id",
            )


def _asked_fields(recipe: Recipe) -> Iterator[tuple[str, int | None, str]]:
    """Yield fields, the source whose rows must have each, or None if any may, and what asks for it."""
    rules = recipe.row_rules
    for source, where in enumerate(rules.where):
        yield from ((field, source, f"sources[{source}].{WHERE}") for field in where)
    yield from ((each.field, None, f"filter '{each.name}'") for each in rules.filters if each.field is not None)
    if rules.split is not None:
        asked = {"split.group": rules.split.group, "split.time": rules.split.time}
        yield from ((field, None, key) for key, field in asked.items() if field is not None)
    for column in declared(recipe):
        if column.rule.file is None:
            yield column.field, None, f"column '{column.name}'"
