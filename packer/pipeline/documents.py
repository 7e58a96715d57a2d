"""Provide the documents of a build: what a cache and unfinished builds have is reused, the rest is made by workers."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from packer.display import Progress
from packer.errors import CheckError, UsageError
from packer.host.files import path_errors
from packer.media.images import CODES_OF_FILES
from packer.model.backend import is_worth_loading
from packer.model.model import TOKENIZER_FILE
from packer.names import is_address, refuse_address, shown
from packer.pipeline.identity import Provenance, same_traits
from packer.pipeline.messages.left_out import RejectedInput, refuse_cost, refuse_early, rejected_inputs
from packer.pipeline.partition import (
    SHOWN_KEY,
    PartitionResult,
    PartitionTask,
    RejectedRow,
    TaskOutput,
    partition_worker,
    read_journal,
    write_journal,
)
from packer.pipeline.plan.build_plan import BuildPlan
from packer.pipeline.workers import Workers
from packer.pipeline.workers.executor import HERE, Processes
from packer.questions.question_fields import list_names
from packer.recipe.recipe import Recipe
from packer.store.files import CacheFiles
from packer.store.folder import PRIVATE
from packer.store.manifest import MANIFEST_NAME, Manifest, Shard, StoredTable, read_manifest
from packer.store.media_shards import MediaShards
from packer.store.place import build_place
from packer.store.row_tables import rejected_path, rejected_rows
from packer.tokenize.fast import compare


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Where and how a cache is built, independent of its content; :func:`packer.build` explains each option."""

    folder: Path
    progress: Progress
    workers: Workers = HERE
    fail_above: float | None = None
    force: bool = False
    repair: bool = False
    dry_run: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    """Time of its parts so far."""

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time spent inside the context to a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - began


_SAMPLED_INPUTS = 16
"""Inputs whose first partitions show what rewritten history costs."""


def by_reference(recipe: Recipe) -> Recipe:
    """Return the recipe with the reference engine."""
    return msgspec.structs.replace(recipe, engine="reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltDocuments:
    """The documents of a cache."""

    results: list[PartitionResult]
    """One for every partition, in order."""

    traits: list[StoredTable]
    """One for every partition if there are rules about rows; else empty."""

    num_built: int
    rejected_inputs: tuple[RejectedInput, ...]


def make_documents(plan: BuildPlan, before: Manifest | None, build: Build) -> BuiltDocuments:
    """Return the result of every partition, in order, reusing finished ones and making the rest.

    `before` is the manifest of the cache that is there, if any.
    """
    progress = build.progress
    finished, finished_traits = reusable(build.folder, before, plan.tasks, repair=build.repair)
    tasks = [*enumerate(plan.tasks)]
    results = {number: reuse(finished[task.key], task) for number, task in tasks if task.key in finished}
    keys = {number: task.traits.key for number, task in tasks if task.traits is not None}
    traits = {number: finished_traits[key] for number, key in keys.items() if key in finished_traits}
    missing = {
        number: replace(task, has_documents=number in results, traits=None if number in traits else task.traits)
        for number, task in tasks
        if number not in results or (number in keys and number not in traits)
    }
    _stop_early(plan, results)
    num_built = len(plan.tasks) - len(results)
    jobs = build.workers.number([task.partition.num_bytes for task in missing.values()]) if missing else 0
    progress.stage("documents", sum(task.partition.num_rows for task in missing.values()), "rows")
    for number, made in _run(plan, missing, jobs, build):
        if made.traits is not None:
            traits[number] = made.traits
        if made.result is not None:
            results[number] = made.result
            _stop_early(plan, results)
        shard = results[number].shard
        progress.advance(shard.num_input_rows, 0 if made.result is None else shard.num_tokens)
    ordered = [results[number] for number in range(len(plan.tasks))]
    rejected = rejected_inputs(plan, ordered) if any(result.rejected for result in ordered) else ()
    _note_later_fields(plan, ordered, progress.note)
    if any(map(_is_rewritten, ordered)):
        sizes = [(result.shard.num_tokens, result.shard.num_last_tokens) for result in ordered]
        refuse_cost(plan.recipe, plan.model, sizes)
    return BuiltDocuments(
        results=ordered,
        traits=[traits[number] for number in sorted(traits)],
        num_built=num_built,
        rejected_inputs=rejected,
    )


def sampled_tasks(plan: BuildPlan) -> tuple[int, ...]:
    """Return tasks that show early what rewritten history costs: the first partition of each of the first inputs."""
    if plan.recipe.supervision.history_rewrite is not None:
        return ()
    first = {task.source: number for number, task in reversed(list(enumerate(plan.tasks)))}
    return tuple(sorted(first.values())[:_SAMPLED_INPUTS])


def _stop_early(plan: BuildPlan, results: Mapping[int, PartitionResult]) -> None:
    """Stop a long build before all is made, where its first partitions show what rewritten history costs."""
    soon = sampled_tasks(plan)
    if any(number in results and _is_rewritten(results[number]) for number in soon):
        refuse_early(plan, results, soon)


def _is_rewritten(result: PartitionResult) -> bool:
    """Whether the template rewrites earlier turns of some rows, of which all documents together are longer then."""
    return result.shard.num_tokens > result.shard.num_last_tokens


def _run(
    plan: BuildPlan, tasks: Mapping[int, PartitionTask], jobs: int, build: Build
) -> Iterator[tuple[int, TaskOutput]]:
    """Run the tasks; yield the number of each and what it made, in order of completion."""
    sizes = {number: task.partition.num_bytes for number, task in tasks.items()}
    # First the tasks that show the cost of rewritten history, then the largest ones, so that no long task runs alone at
    # the end.
    soon = sampled_tasks(plan)
    order = sorted(tasks, key=lambda number: (number not in soon, -sizes[number] if jobs > 1 else number))
    # Both engines produce the same ids. For few rows the reference finishes before the fast encoder is loaded.
    many = is_worth_loading(sum(sizes.values()), plan.model.files[TOKENIZER_FILE])
    recipe = plan.recipe if many or jobs > 1 else by_reference(plan.recipe)
    # Of the processes of this machine, only this one has loaded the reference; each node of a cluster has.
    compares_here = recipe.engine == "fast" and jobs > 1 and isinstance(build.workers, Processes)
    for i, made in build.workers.run(
        partial(partition_worker, build.folder, recipe, plan.model, journals=not compares_here),
        [tasks[number] for number in order],
        sizes=[sizes[number] for number in order],
        folder=build.folder,
    ):
        if compares_here and made.result is not None:
            compare(plan.model.files[TOKENIZER_FILE], made.sampled)
            write_journal(build.folder, plan.tasks[order[i]].key, made.result)
        yield order[i], made


def _note_later_fields(plan: BuildPlan, results: Sequence[PartitionResult], note: Callable[[str], None]) -> None:
    """Report fields that nothing reads and that the first rows of a source did not have, in one note for each source.

    They were not asked about: by now, everything is built.
    """
    known = [{name[:SHOWN_KEY] for name in names} for names in plan.known_fields]
    later: dict[int, tuple[str, set[str]]] = {}
    for task, result in zip(plan.tasks, results, strict=True):
        if left := {*result.unread} - known[task.file.source]:
            later.setdefault(task.file.source, (task.file.name, set()))[1].update(left)
    for path, names in later.values():
        note(f"{path}: fields of later rows that are not read: {list_names(sorted(names))}; `--columns` maps them")


# What is there already


def target_folder(folder: Path, *, is_dry: bool = False) -> Path:
    """Return the folder to build in, of a cache or empty: of an address, what stands for it on this machine."""
    refuse_address(os.fspath(folder), place="cache")
    if is_address(shown(folder)):
        return build_place(folder, is_dry=is_dry)
    with path_errors():
        if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
            what = "a file" if folder.exists() else "a link to nothing"
            raise UsageError(f"{folder} is {what}", hint="a cache is a folder: give another path")
        is_cache = (folder / MANIFEST_NAME).exists() or (folder / PRIVATE).exists()
        if folder.is_dir() and not is_cache and any(folder.iterdir()):
            raise UsageError(f"{folder} contains other files and is not a cache", hint="choose another folder")
    return folder


def existing(folder: Path, progress: Progress) -> Manifest | None:
    """Return the manifest of the cache in a folder; None if there is none, or a damaged one, which is noted."""
    try:
        return None if CacheFiles(folder).size(MANIFEST_NAME) is None else read_manifest(folder)
    except CheckError as error:
        progress.note(f"{error.message}; building again")
        return None


def up_to_date(folder: Path, manifest: Manifest, wanted: Provenance, tasks: Iterable[PartitionTask]) -> bool:
    """Whether a cache is what a build would make of these inputs, with all of its files."""
    if manifest.recipe_fingerprint != wanted.recipe_fingerprint or not same_traits(manifest, wanted.recipe):
        return False
    named = [(entry.path, entry.split, entry.sha256) for entry in manifest.inputs]
    if named != [(entry.path, entry.split, entry.sha256) for entry in wanted.inputs]:
        return False  # same bytes, other names: nothing to tokenize, but the manifest has to change
    media = {table.key: table for table in manifest.media or ()}
    return (
        _is_as_committed(folder, manifest)
        and CODES_OF_FILES.isdisjoint(manifest.totals.rejected)
        and all(same_images(folder, media[task.key], task) for task in tasks if task.key in media)
    )


def _is_as_committed(folder: Path, manifest: Manifest) -> bool:
    """Whether every file of a cache exists and has its recorded length."""
    sizes = [(file.path, file.num_bytes) for file in manifest.stored]
    sizes += [(f"model/{file.path}", file.num_bytes) for file in manifest.model.files]
    files = CacheFiles(folder)
    there = files.sizes(path for path, _ in sizes)
    try:
        rejected = rejected_path(folder, manifest)
        if files.size(rejected) is None or files.sha256(rejected) != manifest.rejected_sha256:
            return False  # every build uses the same name, so the file may be another build's
    except CheckError:
        return False
    return all(there[path] == size for path, size in sizes)


def reusable(
    folder: Path, manifest: Manifest | None, tasks: Sequence[PartitionTask], *, repair: bool
) -> tuple[dict[str, PartitionResult], dict[str, StoredTable]]:
    """Return existing results and traits for tasks, by key: from unfinished builds, and from a finished cache."""
    num_rows = {task.key: task.partition.num_rows for task in tasks}
    results = read_journal(folder, PartitionResult, num_rows)
    traits = read_journal(folder, StoredTable, {task.traits.key: num_rows[task.key] for task in tasks if task.traits})
    if manifest is not None:
        results |= {result.shard.key or "": result for result in committed(folder, manifest)}
        traits |= {each.key or "": each for each in (manifest.selection.traits if manifest.selection else ())}
    media = [result.media for result in results.values() if result.media is not None]
    stored: list[Shard | StoredTable] = [*(result.shard for result in results.values()), *traits.values(), *media]
    whole = _whole(folder, stored, every_byte=repair)

    def is_as_it_was(result: PartitionResult, task: PartitionTask) -> bool:
        images = result.media
        return (
            result.shard.path in whole
            # What a file lacked that a row named is written nowhere, so it is looked at again.
            and not any(row.code in CODES_OF_FILES for row in result.rejected)
            and (images is None or (images.path in whole and same_images(folder, images, task)))
        )

    # Partitions of one key may be in folders with other images.
    changed = {task.key for task in tasks if task.key in results and not is_as_it_was(results[task.key], task)}
    return (
        {key: result for key, result in results.items() if key not in changed},
        {key: each for key, each in traits.items() if each.path in whole},
    )


def same_images(folder: Path, table: StoredTable, task: PartitionTask) -> bool:
    """Whether the files that the rows of a partition name as images still hold what a cache has of them."""
    files = task.image_files
    try:
        return all(files.digest(name) == digest for name, digest in MediaShards(folder, [table]).names())
    except CheckError:
        return False


def committed(folder: Path, manifest: Manifest) -> list[PartitionResult]:
    """Return the result of every partition of a finished cache, in order.

    If rejected.jsonl is damaged, only partitions without rejected rows: the reasons are recorded nowhere else.
    """
    documents, media = manifest.document_shards, {table.key: table for table in manifest.media or ()}
    try:
        rejected = rejected_rows(folder, manifest)
    except CheckError:
        documents = [shard for shard in documents if not shard.num_rejected]
        rejected = [[] for _ in documents]
    results = []
    for shard, lines in zip(documents, rejected, strict=True):
        own = tuple(RejectedRow(line.row - shard.first_row, line.code, line.reason, line.line) for line in lines)
        try:
            results.append(PartitionResult(shard=shard, rejected=own, media=media.get(shard.key)))
        except ValueError:  # what no build writes: nothing of such a cache is taken over
            return []
    return results


def _whole(folder: Path, stored: Sequence[Shard | StoredTable], *, every_byte: bool) -> set[str]:
    """Return the paths of files that exist with their recorded length or, with `every_byte`, their digest."""
    files = CacheFiles(folder)
    sizes = files.sizes(each.path for each in stored)
    there = [each for each in stored if sizes[each.path] == each.num_bytes]
    return {each.path for each in there if not every_byte or files.xxh3(each.path) == each.xxh3}


def reuse(result: PartitionResult, task: PartitionTask) -> PartitionResult:
    """Move the shard of an earlier build to its place in this one, with the line numbers of rejected rows."""
    partition, moved = task.partition, task.partition.first_line - result.shard.first_line
    shard = msgspec.structs.replace(
        result.shard,
        split=task.file.split,
        source=task.source,
        first_row=partition.first_row,
        first_line=partition.first_line,
    )
    rejected = tuple(
        row if row.line is None else msgspec.structs.replace(row, line=row.line + moved) for row in result.rejected
    )
    return PartitionResult(shard=shard, rejected=rejected, media=result.media)
