"""Documents made again from the inputs, compared with those of the cache.

Digests show that a cache is what was written. Only making it again shows that what was written is what its rows yield.
The inputs are read again, whose sha256 must be the manifest's, and cut again; partitions are matched with document
shards. Rows are rendered and encoded by the reference engine, whichever made the cache, with the tokenizer and the
template that the cache keeps. What is compared of a row is the row digest of each of its documents, worked out from the
values on both sides, which covers every column; or the code of its rejection.

A sample is some of the rows, chosen by a keyed permutation: the same ones every time.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import cast, get_args

import msgspec
import numpy as np

from packer.audit.cache_files import check_input, unreadable
from packer.audit.reencoded_partition import WHAT, Compared, Comparison, Task, between, named_rows
from packer.audit.shard_checks import MAX_ROWS
from packer.audit.verify_report import Checked, Finding
from packer.curate import TraitRules
from packer.errors import CheckError, InputError, PackerError, RecipeError, StorageError, UsageError
from packer.layout import offsets_of
from packer.model import TOKENIZER_FILE, Model
from packer.permute import permutation_key, permute
from packer.pipeline.engine import resolve_engine
from packer.pipeline.executor import local_executor
from packer.pipeline.identity import RULES_VERSION
from packer.pipeline.input_resolution import input_place
from packer.pipeline.kept_tokenizer import kept_model
from packer.pipeline.progress import Progress
from packer.pipeline.stages import Stages, named_row, overruns_at, with_role_markers
from packer.recipe import Recipe, make_recipe
from packer.source import SCHEMAS, Partition, partition_file
from packer.source.partition import Format
from packer.store.manifest import MANIFEST_NAME, Input, Manifest, StoredTable
from packer.store.rejected import read_rejected

_KEY = permutation_key("rows that verify encodes again", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reencoded:
    """The result of making documents again."""

    checked: Checked
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


class Reencoding:
    """The documents of one cache, to be made again: give it every input with :meth:`cut`, then :meth:`run` it."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._manifest = manifest
        self._partitions: dict[int, tuple[Partition, ...]] = {}
        self._recipe: Recipe | RecipeError
        try:
            self._recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
        except RecipeError as error:
            self._recipe = error

    def cut(self, source: int) -> list[Finding]:
        """Compare the sha256 of an input with the manifest's and cut it into partitions, in one pass."""
        entry = self._manifest.inputs[source]
        if isinstance(self._recipe, RecipeError) or not _is_known(entry):
            return check_input(entry.path, sha256=entry.sha256)
        try:
            cut = partition_file(
                input_place(entry.path),
                format=cast("Format", entry.format),
                partition_bytes=self._recipe.partition_bytes,
                limit=entry.num_rows,  # whatever left rows out, those that were taken are the first
            )
        except (InputError, UsageError) as error:
            return check_input(entry.path, sha256=entry.sha256) or [_input_finding(entry, error.message)]
        if cut.sha256 != entry.sha256:
            return [_input_finding(entry, f"sha256 {cut.sha256}")]
        self._partitions[source] = cut.partitions
        return []

    def run(
        self, *, sample: int | None, rejected_is_whole: bool, damaged: frozenset[str], jobs: int, progress: Progress
    ) -> Reencoded:
        """Make the documents of every partition again, or of some rows, and compare them.

        Args:
            sample: number of rows; None for all.
            rejected_is_whole: whether rejected.jsonl can be believed; where not, only documents are compared.
            damaged: paths with findings; that such a shard cannot be opened is known.
            jobs: processes.
            progress: listens; counts rows.

        Raises:
            WorkerDiedError: a process was killed.

        """
        try:
            recipe, model = self._rules()
            rejected = _rejected_codes(self._folder, self._manifest) if rejected_is_whole else None
        except PackerError as error:
            return _result([_rules_finding(error)], (), [])
        tasks, findings = self._tasks(rejected)
        tasks = tasks if sample is None else _sampled(tasks, sample)
        progress.stage("re-encoding", sum(task.num_rows for task in tasks), "rows")
        results: dict[int, Compared] = {}
        executor = local_executor(min(jobs, len(tasks)))
        for number, result in executor.run(_worker, (self._folder, recipe, model), tasks):
            results[number] = result
            progress.advance(tasks[number].num_rows, result.num_tokens)
        compared = [(task.entry.path, results[number]) for number, task in enumerate(tasks)]
        findings += [
            finding
            for _, result in compared
            for finding in result.findings
            if not (finding.what == "structure" and finding.path in damaged)
        ]
        return _result(findings, _notes(self._manifest, model), compared)

    def _rules(self) -> tuple[Recipe, Model]:
        """The recipe, and the model as the build had it.

        Raises:
            PackerError: they do not load.

        """
        if isinstance(self._recipe, RecipeError):
            raise self._recipe
        for entry in self._manifest.inputs:
            if not _is_known(entry):
                raise CheckError(f"{entry.path}: rows of schema '{entry.schema}' in format '{entry.format}'")
        return self._recipe, with_role_markers(kept_model(self._folder, self._manifest, self._recipe), self._recipe)

    def _tasks(self, rejected: Sequence[Sequence[tuple[int, str]]] | None) -> tuple[list[Task], list[Finding]]:
        """Partitions with their shards, in the order of the manifest; both sides of what does not match."""
        inputs = self._manifest.inputs
        left = {
            (source, partition.first_row, partition.num_rows): partition
            for source, partitions in self._partitions.items()
            for partition in partitions
        }
        tasks: list[Task] = []
        findings: list[Finding] = []
        traits = self._traits()
        for shard in self._manifest.shards:
            if shard.kind != "documents" or shard.source is None or shard.source not in self._partitions:
                continue
            partition = left.pop((shard.source, shard.first_row, shard.num_input_rows), None)
            entry = inputs[shard.source]
            if partition is None:
                rows = named_rows(shard.first_row, shard.num_input_rows)
                findings.append(_partition_finding(shard.path, "a partition as the recipe cuts it", rows))
                continue
            codes = None if rejected is None else _codes_of(rejected[shard.source], partition)
            tasks.append(
                Task(partition=partition, entry=entry, shard=shard, rejected=codes, traits=traits.get(shard.path))
            )
        missing = [
            _partition_finding(inputs[source].path, named_rows(first_row, num_rows), "no document shard of these rows")
            for source, first_row, num_rows in left
        ]
        return tasks, [*findings[:MAX_ROWS], *missing[:MAX_ROWS]]

    def _traits(self) -> dict[str, tuple[TraitRules, StoredTable]]:
        """What was asked of the rows of each document shard, by its path, and the table of it."""
        selection, recipe = self._manifest.selection, self._recipe
        if selection is None or isinstance(recipe, RecipeError):
            return {}
        documents = [shard for shard in self._manifest.shards if shard.kind == "documents"]
        parts = [
            self._manifest.inputs[shard.source].part or 0 if shard.source is not None else 0 for shard in documents
        ]
        return {
            shard.path: (TraitRules.of(recipe.row_rules, part), table)
            for shard, part, table in zip(documents, parts, selection.traits, strict=False)
        }


def reference_stages(recipe: Recipe, model: Model) -> Stages:
    """What documents are made again with: the reference engine, and each row rendered."""
    stages = Stages(msgspec.structs.replace(recipe, engine="reference"), model)
    stages.renderer = stages.renderer.by_reference()
    return stages


def _worker(folder: Path, recipe: Recipe, model: Model) -> Callable[[Task], Compared]:
    """The function that compares partitions, in this or in another process."""
    stages = reference_stages(recipe, model)
    special_ids = np.array(model.special_ids, np.int32)

    def compare(task: Task) -> Compared:
        try:
            comparison = Comparison(task, folder, stages, special_ids)
            with overruns_at(lambda row: named_row(task.partition, row, recipe)):
                return comparison.run(recipe.rows.max_bytes)
        except InputError as error:
            # Another process does not know where this one keeps standard input.
            findings = (_input_finding(task.entry, error.message.replace(str(task.partition.path), task.entry.path)),)
        except (CheckError, StorageError) as error:
            findings = (unreadable(task.shard.path, error),)
        return Compared(num_rows=0, num_tokens=0, findings=findings)

    return compare


def _sampled(tasks: Sequence[Task], sample: int) -> list[Task]:
    """The tasks that hold chosen rows, with them.

    Worked example: partitions of 3 and 4 rows, chosen 1 and 5 of the 7: row 1 of the first, row 2 of the second.
    """
    bounds = offsets_of([task.partition.num_rows for task in tasks])
    total = int(bounds[-1])
    if sample >= total:
        return list(tasks)
    chosen = np.sort(permute(np.arange(sample), total, _KEY))
    own = [between(chosen, first, stop) - first for first, stop in pairwise(bounds.tolist())]
    return [replace(task, chosen=rows) for task, rows in zip(tasks, own, strict=True) if len(rows)]


def _rejected_codes(folder: Path, manifest: Manifest) -> list[list[tuple[int, str]]]:
    """Rejected rows of every input with their codes, ascending.

    Where two inputs are the same file (for two splits), the lines of the first come first, as many as its shards say.
    """
    lines: dict[str, list[tuple[int, str]]] = {}
    for line in read_rejected(folder, manifest):
        if line.document is None:
            lines.setdefault(line.source, []).append((line.row, line.code))
    counts = Counter[int]()
    for shard in manifest.shards:
        if shard.source is not None:
            counts[shard.source] += shard.num_rejected
    last = {entry.path: source for source, entry in enumerate(manifest.inputs)}
    found = []
    for source, entry in enumerate(manifest.inputs):
        left = lines.get(entry.path, [])
        num_own = len(left) if last[entry.path] == source else counts[source]
        found.append(sorted(left[:num_own]))
        lines[entry.path] = left[num_own:]
    return found


def _codes_of(rejected: Sequence[tuple[int, str]], partition: Partition) -> dict[int, str]:
    first, stop = partition.first_row, partition.first_row + partition.num_rows
    begin, end = (bisect_left(rejected, row, key=lambda line: line[0]) for row in (first, stop))
    return {row - first: code for row, code in rejected[begin:end]}


def _notes(manifest: Manifest, model: Model) -> tuple[str, ...]:
    """That the documents were made again by other software or rules than the cache was made by."""
    here = resolve_engine("reference", model.files[TOKENIZER_FILE])
    # The version of any engine ends with that of the reference, which renders for it and checks it.
    if manifest.engine_version.endswith(here.version) and manifest.rules_version == RULES_VERSION:
        return ()
    made = f"made by engine {manifest.engine} ({manifest.engine_version}; rules {manifest.rules_version})"
    return (f"versions differ: {made}, made again by {here.name} ({here.version}; rules {RULES_VERSION})",)


def _result(findings: Sequence[Finding], notes: tuple[str, ...], compared: Sequence[tuple[str, Compared]]) -> Reencoded:
    num_rows = sum(result.num_rows for _, result in compared)
    checked = Checked(
        kind=WHAT,
        num_files=len({path for path, result in compared if result.num_rows}),
        num_rows=num_rows,
        num_bytes=0,
        num_damaged=len({finding.path for finding in findings}),
    )
    return Reencoded(checked=checked, findings=tuple(findings), notes=notes)


def _is_known(entry: Input) -> bool:
    return entry.format in get_args(Format) and entry.schema in SCHEMAS


def _partition_finding(path: str, expected: str, found: str) -> Finding:
    return Finding(path=path, row=None, what="partition", expected=expected, found=found)


def _input_finding(entry: Input, found: str) -> Finding:
    return Finding(path=entry.path, row=None, what="input", expected=f"sha256 {entry.sha256}", found=found)


def _rules_finding(error: PackerError) -> Finding:
    expected = "a recipe, a tokenizer and rejections that load"
    return Finding(path=MANIFEST_NAME, row=None, what=WHAT, expected=expected, found=error.message)
