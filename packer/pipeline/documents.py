"""Provide the documents of a build: reuse finished partitions, and make the others here or in worker processes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from packer.errors import InputError
from packer.model import TOKENIZER_FILE
from packer.pipeline import engine
from packer.pipeline.executor import HERE, Processes, Workers
from packer.pipeline.inputs import note_later_fields
from packer.pipeline.partition import (
    SHOWN_KEY,
    Documents,
    PartitionResult,
    PartitionTask,
    PartitionWork,
    TaskOutput,
    publish_finished,
)
from packer.pipeline.plan import BuildPlan
from packer.pipeline.rejected_inputs import RejectedInput, rejected_inputs
from packer.pipeline.reuse import finished, reusable, reuse
from packer.pipeline.rewrite_cost import check_rewrite_cost, refuse_early, sampled_tasks
from packer.pipeline.timing import Clock
from packer.progress import Progress
from packer.recipe import Recipe
from packer.store.files import CacheFiles
from packer.store.manifest import Manifest, StoredTable
from packer.tokenize import compare


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How a cache is built, independent of its content; :func:`packer.build` explains each option."""

    workers: Workers = HERE
    copies_inputs: bool = True
    """Whether to copy inputs in buckets to this machine first, which pays if it reads all of them more than once."""

    on_error: str = "reject"
    fail_above: float | None = None
    force: bool = False
    repair: bool = False
    dry_run: bool = False


def by_reference(recipe: Recipe) -> Recipe:
    """Return the recipe with the reference engine."""
    return msgspec.structs.replace(recipe, engine="reference")


class RowDocuments:
    """The documents of a build: made from rows, or reused from earlier builds."""

    def __init__(self, plan: BuildPlan, folder: Path, options: BuildOptions, progress: Progress) -> None:
        self.stages = Clock()
        self.processes = 0
        self.rejected_inputs: tuple[RejectedInput, ...] = ()
        self._plan = plan
        self._folder = folder
        self._options = options
        self._progress = progress

    def documents(self, found: Manifest | None) -> Documents:
        """Return the result of every partition, in order, reusing finished ones and making the rest."""
        plan = self._plan
        there, tables = reusable(self._folder, found, plan.tasks, repair=self._options.repair)
        results: dict[int, PartitionResult] = {}
        traits: dict[int, StoredTable] = {}
        for number, task in enumerate(plan.tasks):
            if task.traits is not None and task.traits.key in tables:
                traits[number] = tables[task.traits.key]
            if task.key in there:
                results[number] = reuse(self._folder, there[task.key], task)
                self._check_rejected(results[number])
        refuse_early(plan, results)
        num_built = len(plan.tasks) - len(results)
        for number, made in self._make(self._missing(there, tables)):
            self.stages.add(made.seconds)
            if made.traits is not None:
                traits[number] = made.traits
            if made.result is not None:
                results[number] = made.result
                self._check_rejected(made.result)
                refuse_early(plan, results)
            shard = results[number].shard
            self._progress.advance(shard.num_input_rows, 0 if made.result is None else shard.num_tokens)
        ordered = [results[number] for number in range(len(plan.tasks))]
        self.rejected_inputs = rejected_inputs(plan, ordered)
        self._note_later_fields(ordered)
        check_rewrite_cost(plan, [result.shard for result in ordered])
        return Documents(results=ordered, traits=[traits[number] for number in sorted(traits)], num_built=num_built)

    def _missing(
        self, there: Mapping[str, PartitionResult], tables: Mapping[str, StoredTable]
    ) -> dict[int, PartitionTask]:
        """Return tasks for the partitions that lack something, each reduced to what is missing."""
        tasks = {}
        for number, task in enumerate(self._plan.tasks):
            traits = None if task.traits is None or task.traits.key in tables else task.traits
            if task.key not in there or traits is not None:
                tasks[number] = replace(task, has_documents=task.key in there, traits=traits)
        return tasks

    def _make(self, wanted: Mapping[int, PartitionTask]) -> Iterator[tuple[int, TaskOutput]]:
        """Run the tasks; yield the number of each and what it made, in order of completion."""
        plan, missing, workers = self._plan, list(wanted), self._options.workers
        self._progress.stage("documents", sum(task.partition.num_rows for task in wanted.values()), "rows")
        if not missing:
            return
        sizes = {number: task.partition.num_bytes for number, task in wanted.items()}
        jobs = workers.number(list(sizes.values()))
        if self._options.on_error != "fail":
            # First the tasks that show the cost of rewritten history, then the largest ones, so that no long task
            # runs alone at the end.
            soon = sampled_tasks(plan)
            missing = sorted(missing, key=lambda number: (number not in soon, -sizes[number] if jobs > 1 else number))
        self.processes = jobs
        # Both engines produce the same ids. For few rows the reference finishes before the fast encoder is loaded.
        few = sum(sizes.values()) < engine.WORTH_LOADING_BYTES
        recipe = by_reference(plan.recipe) if few and jobs == 1 else plan.recipe
        # Only this process has loaded the reference. Each machine of a cluster uploads what it makes, so it journals.
        is_here = isinstance(workers, Processes) and CacheFiles(self._folder).url is None
        apart = recipe.engine == "fast" and jobs > 1 and is_here
        for i, made in workers.run(
            partial(PartitionWork, journals=not apart),
            (self._folder, recipe, plan.model),
            [wanted[number] for number in missing],
            sizes=[sizes[number] for number in missing],
            folder=self._folder,
            finished=partial(finished, self._folder, repair=self._options.repair),
        ):
            if apart and made.result is not None:
                compare(plan.model.files[TOKENIZER_FILE], made.sampled)
                publish_finished(self._folder, plan.tasks[missing[i]].key, made.result)
            yield missing[i], made

    def _note_later_fields(self, results: Sequence[PartitionResult]) -> None:
        found: dict[int, set[str]] = {}
        for task, result in zip(self._plan.tasks, results, strict=True):
            found.setdefault(task.source, set()).update(result.unread)
        known = [(source, {name[:SHOWN_KEY] for name in fields}) for source, fields in self._plan.known_fields]
        note_later_fields(found, self._plan.inputs, known, self._progress.note)

    def _check_rejected(self, result: PartitionResult) -> None:
        if self._options.on_error != "fail" or not result.rejected:
            return
        first, shard = result.rejected[0], result.shard
        assert shard.source is not None
        entry = self._plan.inputs[shard.source]
        number = shard.first_row + first.row
        place = entry.path if first.line is None else f"{entry.path}:{first.line}"
        raise InputError(
            f"{place}: {first.code}: {first.reason} (row {number})",
            hint="without --on-error fail such rows are left out and listed in rejected.jsonl",
        )
