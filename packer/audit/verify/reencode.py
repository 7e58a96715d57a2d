"""Re-encodes the inputs and compares the resulting documents with those of the cache.

Digests show that a cache is what was written. Only building it again shows that what was written is what its rows
yield. Unchanged inputs are partitioned again (:mod:`input_parts`), and partitions are matched with document shards.
Rows are rendered and encoded by the reference engine, whichever engine made the cache, with the tokenizer and the
template that the cache keeps. For each row, the row digests of its documents, which are computed from the values on
both sides and cover every column, or the code of its rejection are compared.

A sample of rows is chosen by a keyed permutation, so it is the same every time.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from packer.audit.input_parts import InputPart, SourceRoots
from packer.audit.verify.shard_checks import MAX_ROWS
from packer.audit.verify.verify_report import Finding, differing, unreadable
from packer.batches import Int64, RowBatch
from packer.curate import TraitRules, traits_version
from packer.curate.traits import TraitMaker, trait_schema
from packer.display import Progress, plural
from packer.errors import CheckError, InputError, PackerError, StorageError
from packer.host.files import out_of
from packer.layout import offsets_of
from packer.model.model import TOKENIZER_FILE, Model
from packer.permute import permutation_key, permute
from packer.pipeline.columns import run_with_columns
from packer.pipeline.identity import RULES_VERSION, TRAITS_VERSION, kept_model, resolve_engine, same_traits
from packer.pipeline.stages import Stages, overruns_at, with_role_markers
from packer.pipeline.workers import Workers
from packer.recipe.groups import Declared, declared
from packer.recipe.recipe import Recipe, make_recipe
from packer.store.arrow_columns import DocumentRows
from packer.store.manifest import MANIFEST_NAME, Manifest, Shard, StoredTable
from packer.store.place import fresh_place
from packer.store.row_tables import Rejected, read_table, rejected_path, rejected_rows
from packer.store.shards import DocumentShards
from packer.store.writing import rows_of

_WHAT = "re-encoded"

_KEY = permutation_key("rows that verify encodes again", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """One partition to compare with its shard."""

    part: InputPart
    shard: Shard
    rejected: Mapping[int, str] | None
    """Row of the partition → code of its rejection in the cache; None if rejected.jsonl is damaged."""

    chosen: Int64 | None = None
    """Rows of the partition to compare, ascending; None for all."""

    traits: tuple[TraitRules, StoredTable] | None = None
    """The rules for which traits were computed, and the table of the traits; None if there are no rules about rows."""

    @property
    def num_rows(self) -> int:
        return self.part.partition.num_rows if self.chosen is None else len(self.chosen)


_Compared: TypeAlias = tuple[int, int, list[Finding]]
"""The result of one partition: the numbers of rows and of tokens, and findings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reencoded:
    """The result of re-encoding a cache."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    num_files: int = 0
    num_rows: int = 0


def compare_reencoded(
    folder: Path,
    manifest: Manifest,
    parts: Mapping[int, Sequence[InputPart]],
    *,
    roots: SourceRoots,
    sample: int | None,
    damaged: frozenset[str],
    fetched: Path | str,
    workers: Workers,
    progress: Progress,
) -> Reencoded:
    """Make the documents of every partition again, or of a sample of so many rows, and compare them.

    `parts` maps the index of an unchanged input to its partitions. Images are read below the `roots` alone. `damaged`
    are the paths with findings: that such a shard cannot be opened is not reported again; if rejected.jsonl is one of
    them, only documents are compared. Workers get shards from `fetched`: the folder, or the URL that it mirrors.
    """
    try:
        recipe = roots.images(make_recipe(manifest.recipe, where="the manifest's recipe"))
        model = with_role_markers(kept_model(folder, manifest, recipe), recipe)
        rejected = rejected_rows(folder, manifest) if rejected_path(folder, manifest) not in damaged else None
    except PackerError as error:
        expected = "a recipe, a tokenizer and rejections that load"
        return Reencoded(findings=(*differing(MANIFEST_NAME, (_WHAT, expected, error.message)),))
    tasks, findings = _tasks(manifest, recipe, parts, rejected)
    tasks = tasks if sample is None else _sampled(tasks, sample)
    progress.stage("re-encoding", sum(task.num_rows for task in tasks), "rows")
    results: dict[int, _Compared] = {}
    sizes = [task.part.partition.num_bytes for task in tasks]
    for number, result in workers.run(partial(_worker, fetched, recipe, model), tasks, sizes=sizes):
        results[number] = result
        progress.advance(tasks[number].num_rows, result[1])
    found = (finding for number in range(len(tasks)) for finding in results[number][2])
    findings += [each for each in found if not (each.what == "structure" and each.path in damaged)]
    return Reencoded(
        findings=tuple(findings),
        notes=_notes(manifest, model, recipe),
        num_files=len({tasks[number].part.entry.path for number, (num_rows, *_) in results.items() if num_rows}),
        num_rows=sum(num_rows for num_rows, *_ in results.values()),
    )


def _tasks(
    manifest: Manifest,
    recipe: Recipe,
    parts: Mapping[int, Sequence[InputPart]],
    rejected: Sequence[Sequence[Rejected]] | None,
) -> tuple[list[_Task], list[Finding]]:
    """Pair partitions with their shards, in the order of the manifest; report those without a counterpart."""
    left = {
        (source, part.partition.first_row, part.partition.num_rows): part
        for source, own in parts.items()
        for part in own
    }
    shards = manifest.document_shards
    traits = () if manifest.selection is None else manifest.selection.traits
    tasks: list[_Task] = []
    findings: list[Finding] = []
    for number, shard in enumerate(shards):
        if shard.source is None or shard.source not in parts:
            continue
        part = left.pop((shard.source, shard.first_row, shard.num_input_rows), None)
        if part is None:
            rows = _named_rows(shard.first_row, shard.num_input_rows)
            findings += differing(shard.path, ("partition", "a partition as the recipe cuts it", rows))
            continue
        codes = None if rejected is None else {line.row - shard.first_row: line.code for line in rejected[number]}
        table = traits[number] if traits else None
        asked = None if table is None else (TraitRules.of(recipe.row_rules, part.entry.part or 0), table)
        tasks.append(_Task(part=part, shard=shard, rejected=codes, traits=asked))
    del findings[MAX_ROWS:]
    for source, first_row, num_rows in list(left)[:MAX_ROWS]:
        missing = ("partition", _named_rows(first_row, num_rows), "no document shard of these rows")
        findings += differing(manifest.inputs[source].path, missing)
    return tasks, findings


def _worker(cache: Path | str, recipe: Recipe, model: Model) -> Callable[[_Task], _Compared]:
    """Return the function that compares partitions, in this or in another process, using only the reference engine."""
    stages = Stages(msgspec.structs.replace(recipe, engine="reference"), model)
    stages.renderer = stages.renderer.by_reference()
    columns = [each for each in declared(recipe) if each.rule.file is None]

    def compare(task: _Task) -> _Compared:
        try:
            with fresh_place(cache) as folder, overruns_at(recipe, task.part.partition):
                return _compare_partition(task, folder, stages, columns, recipe.rows.max_bytes)
        except InputError as error:
            entry = task.part.entry
            reason = error.message.replace(str(task.part.partition.path), entry.path)
            findings = differing(entry.path, ("input", f"sha256 {entry.sha256}", reason))
        except (CheckError, StorageError) as error:
            findings = [unreadable(task.shard.path, error)]
        return 0, 0, findings

    return compare


def _compare_partition(
    task: _Task, folder: Path, stages: Stages, columns: Sequence[Declared], max_row_bytes: int
) -> _Compared:
    """Make every row of a partition again, or every chosen one, and compare it with what is stored."""
    stored = _stored_documents(folder, task.shard)
    traits = None
    if task.traits is not None:
        rules, table = task.traits
        traits = TraitMaker(rules), read_table(folder, table, trait_schema(rules))
    partition, path, num_tokens = task.part.partition, task.part.entry.path, 0
    differences: list[tuple[int, str, str]] = []
    run = partial(run_with_columns, columns, stages) if columns else stages.run
    fields = (*(() if task.traits is None else task.traits[0].fields), *(each.field for each in columns))
    for batch in task.part.rows(max_row_bytes, fields):
        differences += [] if traits is None else _other_traits(*traits, batch)
        stop = batch.first + batch.num_rows
        numbers = np.arange(batch.first, stop) if task.chosen is None else _between(task.chosen, batch.first, stop)
        if len(numbers):
            done = run(batch if len(numbers) == batch.num_rows else _only(batch, numbers))
            made = _documents_of_rows(rows_of(done.documents))
            codes = {rejection.row: rejection.code for rejection in done.rejections}
            stored_codes = codes if task.rejected is None else task.rejected
            for row in numbers.tolist():
                ours, theirs = (made[row], codes.get(row)), (stored[row], stored_codes.get(row))
                if ours != theirs:
                    expected, found = _outcome(*ours), _outcome(*theirs)
                    differences.append((row, expected, found if found != expected else f"{found}, with other values"))
            num_tokens += len(done.documents.input_ids)
        # After a difference, read to the end: only there is a change of the input since it was cut detected.
        if task.chosen is not None and stop > task.chosen[-1] and not differences:
            break
    findings = [
        Finding(path=path, row=partition.first_row + row, what=_WHAT, expected=expected, found=found)
        for row, expected, found in differences[:MAX_ROWS]
    ]
    if len(differences) > MAX_ROWS:
        rows = _named_rows(partition.first_row, partition.num_rows)
        found = f"{len(differences) - MAX_ROWS:,} more of {rows} with something else"
        findings += differing(path, (_WHAT, "the same documents and rejections", found))
    return task.num_rows, num_tokens, findings


_Documents: TypeAlias = defaultdict[int, list[tuple[int, int]]]
"""Row of the partition → of each of its documents, the row digest, over every column, and the number of tokens."""


def _documents_of_rows(*parts: DocumentRows) -> _Documents:
    found: _Documents = defaultdict(list)
    for part in parts:
        digests = zip(part.digests().tolist(), part.length.tolist(), strict=True)
        for row, document in zip(part.row.tolist(), digests, strict=True):
            found[row].append(document)
    return found


def _outcome(documents: Sequence[tuple[int, int]], code: str | None) -> str:
    """Describe the result of a row: `2 documents, 118 tokens`, `rejected: empty`, or both."""
    tokens = sum(length for _, length in documents)
    parts = [f"{plural(len(documents), 'document')}, {tokens:,} tokens"] if documents else []
    parts += [] if code is None else [f"rejected: {code}"]
    return "; and ".join(parts) or "no document"


def _stored_documents(folder: Path, shard: Shard) -> _Documents:
    """Read the documents of a shard, with digests computed from their values."""
    try:
        shards = DocumentShards(folder, (shard,))
        documents = _documents_of_rows(*(rows.without_joined() for rows, _ in shards.chunks()))
        row = shards.stored("row", np.int32)
    except (OSError, ValueError, IndexError, MemoryError, OverflowError) as error:
        # Flipped bits can produce any length or offset; whatever fails, the shard is damaged.
        if (limit := out_of(error, f"cannot read {shard.path}")) is not None:
            raise limit from error
        raise CheckError(f"{shard.path}: {error}") from error
    if len(row) and ((row[1:] < row[:-1]).any() or row[0] < 0 or row[-1] >= shard.num_input_rows):
        raise CheckError(f"{shard.path}: its documents are not in the order of the partition's rows")
    return documents


def _other_traits(maker: TraitMaker, table: pa.Table, rows: RowBatch) -> Iterator[tuple[int, str, str]]:
    """Compare the traits of a batch with the stored ones; yield at most one difference, at the batch's first row.

    Matches of benchmark questions are not compared, as benchmarks are not read again.
    """
    made, stored = maker.make(rows), table.slice(rows.first, rows.num_rows)
    others = [name for name in made.schema.names if made[name] != stored[name].combine_chunks()]
    if others:
        yield rows.first, "the same traits of its rows", f"other {', '.join(others)}"


def _only(rows: RowBatch, numbers: Int64) -> RowBatch:
    """Return the given rows of a batch."""
    wanted = set(numbers.tolist())
    return RowBatch(
        samples=tuple(sample for sample in rows.samples if sample.row in wanted),
        rejections=tuple(rejection for rejection in rows.rejections if rejection.row in wanted),
        num_rows=len(wanted),
        first=rows.first,
        fields=rows.fields,
    )


def _between(numbers: Int64, first: int, stop: int) -> Int64:
    """Return those of some ascending numbers that are in ``[first, stop)``."""
    return numbers[slice(*np.searchsorted(numbers, (first, stop)).tolist())]


def _sampled(tasks: Sequence[_Task], sample: int) -> list[_Task]:
    """Choose a sample of rows; return the tasks that contain any of them, restricted to them.

    Worked example: partitions of 3 and 4 rows, chosen 1 and 5 of the 7: row 1 of the first, row 2 of the second.
    """
    bounds = offsets_of([task.part.partition.num_rows for task in tasks])
    total = int(bounds[-1])
    if sample >= total:
        return list(tasks)
    chosen = np.sort(permute(np.arange(sample), total, _KEY))
    own = [_between(chosen, first, stop) - first for first, stop in pairwise(bounds.tolist())]
    return [replace(task, chosen=rows) for task, rows in zip(tasks, own, strict=True) if len(rows)]


def _notes(manifest: Manifest, model: Model, recipe: Recipe) -> tuple[str, ...]:
    """Return notes if the software or rules differ from those that the cache was made with."""
    here, notes = resolve_engine("reference", model.files[TOKENIZER_FILE]), []
    # Every engine's version ends with the version of the reference engine, which renders for it and checks it.
    if not manifest.engine_version.endswith(here.version) or manifest.rules_version != RULES_VERSION:
        made = f"made by engine {manifest.engine} ({manifest.engine_version}; rules {manifest.rules_version})"
        notes.append(f"versions differ: {made}, made again by {here.name} ({here.version}; rules {RULES_VERSION})")
    if not same_traits(manifest, recipe):
        made = manifest.versions.get(TRAITS_VERSION, "an earlier one")
        notes.append(f"versions of traits differ: made by {made}, made again by {traits_version(recipe.row_rules)}")
    return tuple(notes)


def _named_rows(first: int, number: int) -> str:
    return f"rows {first:,} to {first + number - 1:,}"
