"""One build, from the recipe to the commit.

Order of work: plan; document shards of the missing partitions; blocks; the tokenizer's files; then rejected.jsonl under
a temporary name, and the manifest, whose appearance is the commit; finally, files that the manifest does not name are
removed, and rejected.jsonl is renamed into place.
Until the commit the existing cache stays as it was. Finished partitions are reused by the next build, however this one
ends.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeGuard

import msgspec

from packer.errors import CheckError
from packer.host.files import path_errors
from packer.model.backend import load_fast_meanwhile
from packer.model.model import TOKENIZER_FILE, read_model_files
from packer.names import shown
from packer.pipeline.blocks import (
    BlockTask,
    PackedBlocks,
    PackedGroup,
    block_worker,
    cuts_of,
    pack_split,
    tokens_per_shard,
)
from packer.pipeline.columns import join_columns, pin_columns, refuse_lacking
from packer.pipeline.commit import Built, commit, finish, finish_if_free
from packer.pipeline.documents import Build, by_reference, existing, make_documents, reusable, target_folder, up_to_date
from packer.pipeline.identity import Provenance, remember, write_model
from packer.pipeline.messages.build_result import BuildResult
from packer.pipeline.messages.changes import Changes, changes
from packer.pipeline.messages.left_out import LeftOutError, refuse_existing, refuse_lost_tokens
from packer.pipeline.partition import journal_entries
from packer.pipeline.plan.build_plan import BuildPlan, plan_build
from packer.pipeline.plan.input_resolution import pin_benchmarks, pin_recipe, resolve_sources, tokenizer_place
from packer.pipeline.plan.inputs import refuse_changed
from packer.pipeline.selecting import Selected, select
from packer.pipeline.workers import Workers
from packer.pipeline.workers.executor import Processes, in_order
from packer.pipeline.workers.fork_server import fork_server, jobs_for
from packer.recipe.groups import declared
from packer.recipe.recipe import Recipe
from packer.source.file_bytes import FileStatus
from packer.source.partition import smallest_partition
from packer.store.entries import InNoBlock
from packer.store.files import CacheFiles
from packer.store.folder import inside, lock, refuse_busy, sweep_temporary
from packer.store.manifest import MANIFEST_NAME, Manifest, Shard
from packer.store.row_tables import split_documents
from packer.store.shards import DocumentShards
from packer.tokenize.fast import EngineDiffersError, ReferenceFailsError

_MOST_IN_NO_BLOCK = 0.1
"""Share of tokens in no block above which a build stops, unless `--fail-above` sets another limit."""


def build_recipe(recipe: Recipe, build: Build) -> BuildResult:
    """Build the cache of a recipe, or bring it up to date; its public entry point is :func:`packer.build`."""
    build = replace(build, folder=target_folder(build.folder, is_dry=build.dry_run))
    folder, progress = build.folder, build.progress
    with path_errors():
        if not build.dry_run:
            refuse_busy(folder)
        found = existing(folder, progress)
        if build.repair and found is not None and not build.dry_run:
            CacheFiles(folder).remove_damaged(found.digests)
        with build.timed("plan"):
            recipe = pin_benchmarks(pin_recipe(recipe, progress.note), progress.note)
            recipe = pin_columns(recipe) if declared(recipe) else recipe
        is_new = found is None and not build.dry_run
        with _loading(recipe, build.workers) if is_new else nullcontext():
            plan = _plan(recipe, found, build)
            if _is_done(found, plan, build):
                if not build.dry_run:
                    finish_if_free(folder, found)
                return _nothing_to_do(found, plan, build)
            if build.dry_run:
                return _dry_run(plan, found, build)
            try:
                return _build_checked(plan, build)
            except EngineDiffersError as error:
                progress.note(f"{error.message}; building with the reference engine")
                if not isinstance(error, ReferenceFailsError):
                    remember(plan.model.files[TOKENIZER_FILE], agrees=False)
            return _build_checked(_plan(by_reference(recipe), found, build), build)


def _plan(recipe: Recipe, found: Manifest | None, build: Build) -> BuildPlan:
    with build.timed("plan"):
        return plan_build(recipe, build.progress, before=found, workers=build.workers)


def _is_done(found: Manifest | None, plan: BuildPlan, build: Build) -> TypeGuard[Manifest]:
    """Whether there is nothing to do: a build of the plan would make the cache that is there."""
    return found is not None and not build.repair and up_to_date(build.folder, found, plan.provenance, plan.tasks)


def _build_checked(plan: BuildPlan, build: Build) -> BuildResult:
    """Build; if a check fails, build again without what an unfinished build had left, which may be damaged or forged.

    Only sizes are compared before that is used, as reading every byte would take a good part of what it saves.
    """
    left = journal_entries(build.folder)
    try:
        return _build(plan, build)
    except CheckError as error:
        if not left or isinstance(error, LeftOutError):
            raise
        build.progress.note(f"{error.message}; making again what an unfinished build left")
    with lock(build.folder):
        for entry in left:
            inside(build.folder, entry).unlink(missing_ok=True)
    return _build(plan, build)


def _build(plan: BuildPlan, build: Build) -> BuildResult:
    """Make the cache, or find that it is up to date."""
    wanted, folder, progress = plan.provenance, build.folder, build.progress
    with lock(folder):
        sweep_temporary(folder)
        # Read before it is decoded: if another command updates it in between, the commit is refused, as it must be.
        before = CacheFiles(folder).before_commit(MANIFEST_NAME)
        found = existing(folder, progress)
        if _is_done(found, plan, build):
            finish(folder, found)
            return _nothing_to_do(found, plan, build)
        replaced = _replaced(found, wanted, build)
        if replaced is not None and replaced.leaving:
            progress.note(f"{shown(folder)} {replaced.sentences()[-1]}")
        with build.timed("documents"):
            made = make_documents(plan, found, build)
            shards, lacking = [result.shard for result in made.results], None
            if any(each.rule.file for each in declared(wanted.recipe)) or any(shard.joined for shard in shards):
                shards, lacking = join_columns(folder, wanted.recipe, shards)
        pairs = zip(made.results, shards, strict=True)
        results = [msgspec.structs.replace(result, shard=shard) for result, shard in pairs]
        selection = Selected(documents=split_documents(folder, shards, None))
        if wanted.recipe.chooses_rows:
            with build.timed("rows"):
                progress.stage("selecting", 0, "rows")
                selection = select(folder, wanted, shards, made.traits)
        if lacking:
            refuse_lacking(lacking, selection.documents.values())
        with build.timed("blocks"):
            packed = pack_documents(selection.documents, wanted, build)
        with build.timed("commit"):
            write_model(folder, wanted.model, plan.model.files)
            refuse_changed(plan.files, plan.inputs)
            built = Built(provenance=wanted, results=results, packed=packed, selected=selection)
            manifest = commit(folder, built, before=before, fail_above=build.fail_above)
    return BuildResult.of_cache(
        folder,
        manifest,
        num_built=made.num_built,
        built=True,
        settled_keys=plan.settled_keys,
        rejected_inputs=made.rejected_inputs,
        seconds=build.seconds,
    )


def pack_documents(documents: Mapping[str, DocumentShards], provenance: Provenance, build: Build) -> PackedBlocks:
    """Pack the documents of a cache, each split separately, and write its block shards."""
    recipe, progress = provenance.recipe, build.progress
    if recipe.pack.mode == "none":
        return PackedBlocks(shards=(), groups=[])
    limit = _MOST_IN_NO_BLOCK if build.fail_above is None else build.fail_above
    groups: list[PackedGroup] = []
    num_tokens = sum(own.num_tokens for own in documents.values())

    def tasks() -> Iterator[BlockTask]:
        lost = InNoBlock(cuts={}, of_tokens=num_tokens)
        for split, own in documents.items():
            num_blocks = 0
            planned = pack_split(split, own, recipe.pack, shard_bytes=recipe.shard_bytes)
            for packed, shard_tasks in planned:
                groups.append(packed)
                lost = replace(lost, cuts=cuts_of([packed], lost.cuts))
                num_blocks += packed.num_blocks
                if lost.share <= limit:  # once it is above, the rest is only planned, to say how much is lost
                    yield from shard_tasks
            if not num_blocks and lost.share <= limit:
                progress.note(f"split '{split}' has no block: nothing of its {len(own):,} documents could be packed")
        if not lost.is_within(limit):
            refuse_lost_tokens(lost, documents.values(), msgspec.to_builtins(recipe.pack), limit)

    num_tasks = max(1, len(documents)) + num_tokens // tokens_per_shard(recipe.shard_bytes)
    progress.stage("blocks", num_tokens, "tokens")
    shards: list[Shard] = []
    made = build.workers.run(
        partial(block_worker, build.folder, recipe.pack, provenance.model.pad_id),
        tasks(),
        # Copying four tokens, some 32 bytes, takes about as long as making documents of one byte of rows.
        sizes=[num_tokens // 4 // num_tasks] * num_tasks,
        folder=build.folder,
    )
    for shard in in_order(made):
        shards.append(shard)
        progress.advance(shard.num_tokens, shard.num_tokens)
    return PackedBlocks(shards=shards, groups=groups)


def _replaced(found: Manifest | None, wanted: Provenance, build: Build) -> Changes | None:
    """Return what would be replaced in the existing cache, if there is one."""
    replaced = None if found is None else changes(found, wanted)
    if replaced is not None and not build.force:
        replaced.refuse(build.folder)
    return replaced


def _nothing_to_do(found: Manifest, plan: BuildPlan, build: Build) -> BuildResult:
    if build.fail_above is not None:
        refuse_existing(build.folder, found, build.fail_above)
    return BuildResult.of_cache(build.folder, found, settled_keys=plan.settled_keys)


def _dry_run(plan: BuildPlan, found: Manifest | None, build: Build) -> BuildResult:
    """Say what a build of the plan would do."""
    finished, _ = reusable(build.folder, found, plan.tasks, repair=build.repair)
    missing = sum(task.key not in finished for task in plan.tasks)
    return BuildResult(
        folder=build.folder,
        manifest=None,
        num_partitions_built=missing,
        num_partitions_reused=len(plan.tasks) - missing,
        replaced=_replaced(found, plan.provenance, build),
        settled_keys=plan.settled_keys,
    )


def _loading(recipe: Recipe, workers: Workers) -> AbstractContextManager[None]:
    """Begin to load the encoder while the build is planned: in the fork server if workers will be used, or here."""
    if not isinstance(workers, Processes):
        return nullcontext()
    size = sum(FileStatus.of(file.path).num_bytes for file in resolve_sources(recipe))
    assert recipe.tokenizer is not None  # resolve_sources requires one
    tokenizer = tokenizer_place(recipe.tokenizer)
    content = read_model_files(tokenizer)[TOKENIZER_FILE]
    if (workers.jobs or jobs_for(size)) > 1 and size > smallest_partition(recipe.partition_bytes):
        return fork_server(tokenizer, engine=recipe.engine, images=recipe.reads_images)
    load_fast_meanwhile(recipe.engine, content, size)
    return nullcontext()
