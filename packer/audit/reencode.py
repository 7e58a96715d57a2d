"""Documents made again from the inputs, compared with those of the cache.

Digests show that a cache is what was written. Only making it again shows that what was written is what its rows yield.
The inputs are read again, whose sha256 must be the manifest's, and cut again; partitions are matched with document
shards. Rows are rendered and encoded by the reference engine, whichever made the cache, with the tokenizer and the
template that the cache keeps. What is compared of a row is the row digest of each of its documents, computed from the
values on both sides, which covers every column; or the code of its rejection.

A sample is some of the rows, chosen by a keyed permutation: the same ones every time.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import cast, get_args

import msgspec
import numpy as np

from packer.audit.check_rows import AskedTraits, TraitComparison, asked_traits
from packer.audit.file_checks import check_input, unreadable
from packer.audit.shard_checks import MAX_ROWS
from packer.audit.verify_report import Finding
from packer.batches import Int32, Int64, RowBatch, UInt64
from packer.errors import CheckError, InputError, PackerError, StorageError, UsageError
from packer.layout import offsets_of
from packer.limits import out_of
from packer.model import TOKENIZER_FILE, Model
from packer.permute import permutation_key, permute
from packer.pipeline.engine import resolve_engine
from packer.pipeline.executor import run_tasks
from packer.pipeline.identity import RULES_VERSION
from packer.pipeline.input_resolution import input_place
from packer.pipeline.kept_tokenizer import kept_model
from packer.pipeline.stages import Stages, named_row, overruns_at, with_role_markers
from packer.progress import Progress
from packer.recipe import Recipe, make_recipe
from packer.source import SCHEMAS, Partition, partition_file
from packer.source.partition import Format
from packer.store.arrow_columns import DocumentRows
from packer.store.manifest import MANIFEST_NAME, Input, Manifest, Shard
from packer.store.numbered_rows import Chunks
from packer.store.rejected import read_rejected, rejected_path
from packer.store.writing import rows_of

_WHAT = "re-encoded"
"""The `what` of findings."""

_KEY = permutation_key("rows that verify encodes again", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """One partition to be compared with its shard."""

    partition: Partition
    entry: Input
    shard: Shard
    rejected: Mapping[int, str] | None
    """Row of the partition → code of its rejection as the cache says; None where rejected.jsonl is damaged."""

    chosen: Int64 | None = None
    """Rows of the partition that are compared, ascending; None for all."""
    traits: AskedTraits | None = None

    @property
    def num_rows(self) -> int:
        return self.partition.num_rows if self.chosen is None else len(self.chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """The result of one partition."""

    num_rows: int
    num_tokens: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reencoded:
    """The result of making documents again."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    num_files: int = 0
    """Inputs of which rows were compared."""

    num_rows: int = 0


class Reencoding:
    """The documents of one cache, to be made again: give it every input with :meth:`cut`, then :meth:`run` it."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._manifest = manifest
        self._partitions: dict[int, tuple[Partition, ...]] = {}
        self._recipe: Recipe | PackerError
        try:
            self._recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
            for entry in manifest.inputs:
                if entry.format not in get_args(Format) or entry.schema not in SCHEMAS:
                    raise CheckError(f"{entry.path}: rows of schema '{entry.schema}' in format '{entry.format}'")
        except PackerError as error:
            self._recipe = error

    def cut(self, source: int) -> list[Finding]:
        """Compare the sha256 of an input with the manifest's and cut it into partitions, in one pass."""
        entry = self._manifest.inputs[source]
        if isinstance(self._recipe, PackerError):
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

    def run(self, *, sample: int | None, damaged: frozenset[str], jobs: int, progress: Progress) -> Reencoded:
        """Make the documents of every partition again, or of some rows, and compare them.

        Args:
            sample: number of rows; None for all.
            damaged: paths with findings. That such a shard cannot be opened is known; where rejected.jsonl is one of
                them, only documents are compared.
            jobs: processes.
            progress: listens; counts rows.

        Raises:
            WorkerDiedError: a process was killed.

        """
        try:
            if isinstance(self._recipe, PackerError):
                raise self._recipe
            recipe = self._recipe
            model = with_role_markers(kept_model(self._folder, self._manifest, recipe), recipe)
            is_whole = rejected_path(self._folder, self._manifest) not in damaged
            rejected = _rejected_codes(self._folder, self._manifest) if is_whole else None
        except PackerError as error:
            expected = "a recipe, a tokenizer and rejections that load"
            return Reencoded(findings=(_finding(MANIFEST_NAME, _WHAT, expected, error.message),))
        tasks, findings = self._tasks(rejected)
        tasks = tasks if sample is None else _sampled(tasks, sample)
        progress.stage("re-encoding", sum(task.num_rows for task in tasks), "rows")
        results: dict[int, _Compared] = {}
        for number, result in run_tasks(_worker, (self._folder, recipe, model), tasks, jobs=jobs):
            results[number] = result
            progress.advance(tasks[number].num_rows, result.num_tokens)
        found = (finding for number in range(len(tasks)) for finding in results[number].findings)
        findings += [each for each in found if not (each.what == "structure" and each.path in damaged)]
        return Reencoded(
            findings=tuple(findings),
            notes=_notes(self._manifest, model),
            num_files=len({tasks[number].entry.path for number, result in results.items() if result.num_rows}),
            num_rows=sum(result.num_rows for result in results.values()),
        )

    def _tasks(self, rejected: Sequence[Sequence[tuple[int, str]]] | None) -> tuple[list[_Task], list[Finding]]:
        """Partitions with their shards, in the order of the manifest; both sides of what does not match."""
        inputs = self._manifest.inputs
        left = {
            (source, partition.first_row, partition.num_rows): partition
            for source, partitions in self._partitions.items()
            for partition in partitions
        }
        tasks: list[_Task] = []
        asked = asked_traits(self._manifest)
        findings: list[Finding] = []
        for shard in self._manifest.shards:
            if shard.kind != "documents" or shard.source is None or shard.source not in self._partitions:
                continue
            partition = left.pop((shard.source, shard.first_row, shard.num_input_rows), None)
            entry = inputs[shard.source]
            if partition is None:
                rows = _named_rows(shard.first_row, shard.num_input_rows)
                findings.append(_finding(shard.path, "partition", "a partition as the recipe cuts it", rows))
                continue
            codes = None
            if rejected is not None:
                own, first = rejected[shard.source], shard.first_row
                begin, end = (bisect_left(own, (row, "")) for row in (first, first + shard.num_input_rows))
                codes = {row - first: code for row, code in own[begin:end]}
            found = asked.get(shard.path)
            tasks.append(_Task(partition=partition, entry=entry, shard=shard, rejected=codes, traits=found))
        missing = [
            _finding(
                inputs[source].path, "partition", _named_rows(first_row, num_rows), "no document shard of these rows"
            )
            for source, first_row, num_rows in left
        ]
        return tasks, [*findings[:MAX_ROWS], *missing[:MAX_ROWS]]


def reference_stages(recipe: Recipe, model: Model) -> Stages:
    """What documents are made again with: the reference engine, and each row rendered."""
    stages = Stages(msgspec.structs.replace(recipe, engine="reference"), model)
    stages.renderer = stages.renderer.by_reference()
    return stages


def _worker(folder: Path, recipe: Recipe, model: Model) -> Callable[[_Task], _Compared]:
    """The function that compares partitions, in this or in another process."""
    stages = reference_stages(recipe, model)
    special_ids = np.array(model.special_ids, np.int32)

    def compare(task: _Task) -> _Compared:
        try:
            with overruns_at(lambda row: named_row(task.partition, row, recipe)):
                return _compare_partition(task, folder, stages, special_ids, recipe.rows.max_bytes)
        except InputError as error:
            # Another process does not know where this one keeps standard input.
            findings = (_input_finding(task.entry, error.message.replace(str(task.partition.path), task.entry.path)),)
        except (CheckError, StorageError) as error:
            findings = (unreadable(task.shard.path, error),)
        return _Compared(num_rows=0, num_tokens=0, findings=findings)

    return compare


def _compare_partition(task: _Task, folder: Path, stages: Stages, special_ids: Int32, max_row_bytes: int) -> _Compared:
    """Make every row of a partition again, or every chosen one, and compare it with what is stored.

    Raises:
        InputError: the input is not what it was when it was cut.
        CheckError, StorageError: the shard cannot be read.

    """
    stored, weighted = _stored_documents(folder, task.shard)
    traits = TraitComparison(folder, task.traits)
    partition, entry, first, num_tokens = task.partition, task.entry, 0, 0
    differing: list[tuple[int, str, str]] = []
    for batch in traits.read(task.partition, entry, max_row_bytes):
        differing += traits.differences(batch, first)
        stop = first + batch.num_rows
        numbers = np.arange(first, stop) if task.chosen is None else _between(task.chosen, first, stop)
        if len(numbers):
            done = stages.run(batch if len(numbers) == batch.num_rows else _only(batch, numbers))
            special = np.isin(done.documents.input_ids, special_ids)
            made = _Documents.of(rows_of(done.documents, special=special, weighted=weighted))
            codes = {rejection.row: rejection.code for rejection in done.rejections}
            differing += _differences(numbers, made, codes, stored, codes if task.rejected is None else task.rejected)
            num_tokens += len(done.documents.input_ids)
        first = stop
        # Where rows differ, reading goes on: at its end it is seen whether the input changed meanwhile.
        if task.chosen is not None and stop > task.chosen[-1] and not differing:
            break
    findings = [
        _finding(entry.path, _WHAT, expected, found, partition.first_row + row)
        for row, expected, found in differing[:MAX_ROWS]
    ]
    if len(differing) > MAX_ROWS:
        rows = _named_rows(partition.first_row, partition.num_rows)
        found = f"{len(differing) - MAX_ROWS:,} more of {rows} with something else"
        findings.append(_finding(entry.path, _WHAT, "the same documents and rejections", found))
    return _Compared(num_rows=task.num_rows, num_tokens=num_tokens, findings=tuple(findings))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Documents:
    """The documents of a partition, in the order of its rows. D documents."""

    row: Int32  # [D] of the partition, ascending
    length: Int32  # [D] tokens
    digest: UInt64  # [D] of every column

    @classmethod
    def of(cls, rows: DocumentRows) -> "_Documents":
        return cls(row=rows.row, length=rows.length, digest=rows.digests())

    def outcome(self, row: int, code: str | None) -> str:
        """Describe the result of a row: `2 documents, 118 tokens`, `rejected: empty`, or both."""
        own = self.length[self.of_row(row)]
        parts = [f"{len(own)} document{'s' * (len(own) > 1)}, {int(own.sum()):,} tokens"] if len(own) else []
        parts += [] if code is None else [f"rejected: {code}"]
        return "; and ".join(parts) or "no document"

    def of_row(self, row: int) -> slice:
        return slice(*np.searchsorted(self.row, (row, row + 1)).tolist())


def _stored_documents(folder: Path, shard: Shard) -> tuple[_Documents, bool]:
    """The documents of a shard, with digests computed from their values; and whether it has a column of weights."""
    try:
        chunks: Chunks[DocumentRows] = Chunks(folder, (shard,), kind="documents")
        parts = [_Documents.of(rows) for rows, _ in chunks]
        weighted = chunks.mapped(0).weighted
    except (OSError, ValueError, IndexError, MemoryError, OverflowError) as error:
        # Flipped bits can name any length and any place; whatever breaks, the shard is damaged.
        if (limit := out_of(error, f"cannot read {shard.path}")) is not None:
            raise limit from error
        raise CheckError(f"{shard.path}: {error}") from error
    row = np.concatenate([np.zeros(0, np.int32), *(part.row for part in parts)])
    if len(row) and ((row[1:] < row[:-1]).any() or row[0] < 0 or row[-1] >= shard.num_input_rows):
        raise CheckError(f"{shard.path}: its documents are not in the order of the partition's rows")
    length = np.concatenate([np.zeros(0, np.int32), *(part.length for part in parts)])
    digest = np.concatenate([np.zeros(0, np.uint64), *(part.digest for part in parts)])
    return _Documents(row=row, length=length, digest=digest), weighted


def _differences(
    numbers: Int64, made: _Documents, codes: Mapping[int, str], stored: _Documents, stored_codes: Mapping[int, str]
) -> Iterator[tuple[int, str, str]]:
    """Rows that yield something else than is stored, what they yield, and what is stored."""
    for row in numbers.tolist():
        code, stored_code = codes.get(row), stored_codes.get(row)
        ours, theirs = made.digest[made.of_row(row)], stored.digest[stored.of_row(row)]
        if code == stored_code and np.array_equal(ours, theirs):
            continue
        expected, found = made.outcome(row, code), stored.outcome(row, stored_code)
        yield row, expected, found if found != expected else f"{found}, with other values"


def _only(rows: RowBatch, numbers: Int64) -> RowBatch:
    """Some rows of a batch."""
    wanted = set(numbers.tolist())
    return RowBatch(
        samples=tuple(sample for sample in rows.samples if sample.row in wanted),
        rejections=tuple(rejection for rejection in rows.rejections if rejection.row in wanted),
        num_rows=len(wanted),
    )


def _between(numbers: Int64, first: int, stop: int) -> Int64:
    """Those of ascending numbers that lie in ``[first, stop)``."""
    return numbers[slice(*np.searchsorted(numbers, (first, stop)).tolist())]


def _sampled(tasks: Sequence[_Task], sample: int) -> list[_Task]:
    """The tasks that hold chosen rows, with them.

    Worked example: partitions of 3 and 4 rows, chosen 1 and 5 of the 7: row 1 of the first, row 2 of the second.
    """
    bounds = offsets_of([task.partition.num_rows for task in tasks])
    total = int(bounds[-1])
    if sample >= total:
        return list(tasks)
    chosen = np.sort(permute(np.arange(sample), total, _KEY))
    own = [_between(chosen, first, stop) - first for first, stop in pairwise(bounds.tolist())]
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


def _notes(manifest: Manifest, model: Model) -> tuple[str, ...]:
    """Note where software or rules are not those that the cache was made by."""
    here = resolve_engine("reference", model.files[TOKENIZER_FILE])
    # The version of any engine ends with that of the reference, which renders for it and checks it.
    if manifest.engine_version.endswith(here.version) and manifest.rules_version == RULES_VERSION:
        return ()
    made = f"made by engine {manifest.engine} ({manifest.engine_version}; rules {manifest.rules_version})"
    return (f"versions differ: {made}, made again by {here.name} ({here.version}; rules {RULES_VERSION})",)


def _named_rows(first: int, number: int) -> str:
    return f"rows {first:,} to {first + number - 1:,}"


def _finding(path: str, what: str, expected: str, found: str, row: int | None = None) -> Finding:
    return Finding(path=path, row=row, what=what, expected=expected, found=found)


def _input_finding(entry: Input, found: str) -> Finding:
    return _finding(entry.path, "input", f"sha256 {entry.sha256}", found)
