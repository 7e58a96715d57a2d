"""Provide the documents of a build: reuse finished partitions, and make the others here or in worker processes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from packer.model.backend import is_worth_loading
from packer.model.model import TOKENIZER_FILE
from packer.pipeline.messages.losses import (
    RejectedInput,
    check_rewrite_cost,
    refuse_early,
    rejected_inputs,
    sampled_tasks,
)
from packer.pipeline.partition import (
    SHOWN_KEY,
    PartitionResult,
    PartitionTask,
    PartitionWork,
    TaskOutput,
    write_journal,
)
from packer.pipeline.plan.build_plan import BuildPlan
from packer.pipeline.plan.reuse import reusable, reuse
from packer.pipeline.workers.executor import HERE, Processes, Workers
from packer.progress import Progress
from packer.recipe.recipe import Recipe
from packer.source.question_fields import list_names
from packer.store.manifest import Manifest, StoredTable
from packer.tokenize import compare


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How a cache is built, independent of its content; :func:`packer.build` explains each option."""

    workers: Workers = HERE
    fail_above: float | None = None
    force: bool = False
    repair: bool = False
    dry_run: bool = False


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


def make_documents(
    plan: BuildPlan, folder: Path, found: Manifest | None, options: BuildOptions, progress: Progress
) -> BuiltDocuments:
    """Return the result of every partition, in order, reusing finished ones and making the rest."""
    there, tables = reusable(folder, found, plan.tasks, repair=options.repair)
    results: dict[int, PartitionResult] = {}
    traits: dict[int, StoredTable] = {}
    missing: dict[int, PartitionTask] = {}
    for number, task in enumerate(plan.tasks):
        lacking = task.traits
        if lacking is not None and lacking.key in tables:
            traits[number], lacking = tables[lacking.key], None
        if task.key in there:
            results[number] = reuse(there[task.key], task)
        if number not in results or lacking is not None:
            missing[number] = replace(task, has_documents=number in results, traits=lacking)
    refuse_early(plan, results)
    num_built = len(plan.tasks) - len(results)
    jobs = options.workers.number([task.partition.num_bytes for task in missing.values()]) if missing else 0
    progress.stage("documents", sum(task.partition.num_rows for task in missing.values()), "rows")
    for number, made in _run(plan, missing, jobs, folder, options):
        if made.traits is not None:
            traits[number] = made.traits
        if made.result is not None:
            results[number] = made.result
            refuse_early(plan, results)
        shard = results[number].shard
        progress.advance(shard.num_input_rows, 0 if made.result is None else shard.num_tokens)
    ordered = [results[number] for number in range(len(plan.tasks))]
    rejected = rejected_inputs(plan, ordered)
    _note_later_fields(plan, ordered, progress.note)
    check_rewrite_cost(plan, [result.shard for result in ordered])
    return BuiltDocuments(
        results=ordered,
        traits=[traits[number] for number in sorted(traits)],
        num_built=num_built,
        rejected_inputs=rejected,
    )


def _run(
    plan: BuildPlan, wanted: Mapping[int, PartitionTask], jobs: int, folder: Path, options: BuildOptions
) -> Iterator[tuple[int, TaskOutput]]:
    """Run the tasks; yield the number of each and what it made, in order of completion."""
    sizes = {number: task.partition.num_bytes for number, task in wanted.items()}
    # First the tasks that show the cost of rewritten history, then the largest ones, so that no long task runs alone at
    # the end.
    soon = sampled_tasks(plan)
    order = sorted(wanted, key=lambda number: (number not in soon, -sizes[number] if jobs > 1 else number))
    # Both engines produce the same ids. For few rows the reference finishes before the fast encoder is loaded.
    many = is_worth_loading(sum(sizes.values()), plan.model.files[TOKENIZER_FILE])
    recipe = plan.recipe if many or jobs > 1 else by_reference(plan.recipe)
    # Of the processes of this machine, only this one has loaded the reference; each node of a cluster has.
    apart = recipe.engine == "fast" and jobs > 1 and isinstance(options.workers, Processes)
    for i, made in options.workers.run(
        partial(PartitionWork, journals=not apart),
        (folder, recipe, plan.model),
        [wanted[number] for number in order],
        sizes=[sizes[number] for number in order],
        folder=folder,
    ):
        if apart and made.result is not None:
            compare(plan.model.files[TOKENIZER_FILE], made.sampled)
            write_journal(folder, plan.tasks[order[i]].key, made.result)
        yield order[i], made


def _note_later_fields(plan: BuildPlan, results: Sequence[PartitionResult], note: Callable[[str], None]) -> None:
    """Report fields that nothing reads and that the first rows of a source did not have, in one note for each source.

    They were not asked about: by now, everything is built.
    """
    later: dict[int, tuple[str, set[str]]] = {}
    for task, result in zip(plan.tasks, results, strict=True):
        source, known = plan.known_fields[task.source]
        if left := {*result.unread}.difference(name[:SHOWN_KEY] for name in known):
            later.setdefault(source, (plan.inputs[task.source].path, set()))[1].update(left)
    for path, names in later.values():
        note(f"{path}: fields of later rows that are not read: {list_names(sorted(names))}; `--columns` maps them")
