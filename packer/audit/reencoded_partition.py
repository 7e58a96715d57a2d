"""One partition made again, row by row, beside the documents and the rejections the cache has of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.audit.shard_checks import MAX_ROWS
from packer.audit.verify_report import Finding
from packer.batches import Int32, Int64, RowBatch
from packer.curate import TraitMaker, TraitRules
from packer.errors import CheckError
from packer.limits import out_of
from packer.pipeline.stages import Stages
from packer.source import Partition, read_rows
from packer.store.arrow_columns import DocumentRows, Ragged
from packer.store.manifest import Input, Shard, StoredTable
from packer.store.numbered_rows import Chunks
from packer.store.row_tables import read_table
from packer.store.writing import rows_of

WHAT = "re-encoded"
"""What a finding compared."""

_Place: TypeAlias = tuple[DocumentRows, int]
"""A document: rows, and which of them it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One partition to be compared with its shard."""

    partition: Partition
    entry: Input
    shard: Shard
    rejected: Mapping[int, str] | None
    """Row of the partition → code of its rejection as the cache says; None where rejected.jsonl is damaged."""

    chosen: Int64 | None = None
    """Rows of the partition that are compared, ascending; None for all."""

    traits: tuple[TraitRules, StoredTable] | None = None
    """What is asked of the rows, and what the cache has of it; None where it has no rules about rows."""

    @property
    def num_rows(self) -> int:
        return self.partition.num_rows if self.chosen is None else len(self.chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The result of one partition."""

    num_rows: int
    num_tokens: int
    findings: tuple[Finding, ...]


class Comparison:
    """One partition made again, a batch of rows at a time."""

    def __init__(self, task: Task, folder: Path, stages: Stages, special_ids: Int32) -> None:
        self._task = task
        self._stages = stages
        self._special_ids = special_ids
        self._stored = _StoredDocuments(folder, task.shard)
        self._num_tokens = 0
        self._num_different = 0
        self._findings: list[Finding] = []
        self._maker = None if task.traits is None else TraitMaker(task.traits[0])
        self._traits = None if task.traits is None else read_table(folder, task.traits[1])

    def run(self, max_row_bytes: int) -> Compared:
        """Compare every row of the partition, or every chosen one.

        Raises:
            InputError: the input is not what it was when it was cut.
            CheckError, StorageError: the shard cannot be read.

        """
        task, first = self._task, 0
        batches = read_rows(
            task.partition,
            schema=task.entry.schema,
            columns=task.entry.columns,
            max_row_bytes=max_row_bytes,
            fields=() if task.traits is None else task.traits[0].fields,
        )
        for batch in batches:
            self._compare_traits(batch, first)
            stop = first + batch.num_rows
            asked = np.arange(first, stop) if task.chosen is None else between(task.chosen, first, stop)
            if len(asked):
                self._compare(batch if len(asked) == batch.num_rows else _only(batch, asked), asked)
            first = stop
            # Where rows differ, reading goes on: at its end it is seen whether the input changed meanwhile.
            if task.chosen is not None and stop > task.chosen[-1] and not self._num_different:
                break
        more = self._num_different - len(self._findings)
        if more:
            rows = named_rows(task.partition.first_row, task.partition.num_rows)
            found = f"{more:,} more of {rows} with something else"
            self._findings.append(row_finding(task.entry, None, "the same documents and rejections", found))
        return Compared(num_rows=task.num_rows, num_tokens=self._num_tokens, findings=tuple(self._findings))

    def _compare_traits(self, rows: RowBatch, first: int) -> None:
        """Compare the traits of a batch, whichever of its rows were chosen."""
        if self._maker is None or self._traits is None:
            return
        made, stored = self._maker.make(rows, first), self._traits.slice(first, rows.num_rows)
        different = [name for name in made.schema.names if made[name] != stored[name].combine_chunks()]
        if different or made.schema != stored.schema:
            self._num_different += 1
            found = f"{named_rows(first, rows.num_rows)} with other {', '.join(different) or 'columns'}"
            self._findings.append(row_finding(self._task.entry, None, "the same traits", found))

    def _compare(self, rows: RowBatch, asked: Int64) -> None:
        done, stored, rejected = self._stages.run(rows), self._stored, self._task.rejected
        special = np.isin(done.documents.input_ids, self._special_ids)
        made = rows_of(done.documents, special=special, weighted=stored.weighted)
        self._num_tokens += len(done.documents.input_ids)
        digests, codes = made.digests(), {rejection.row: rejection.code for rejection in done.rejections}
        for row in asked.tolist():
            ours, theirs = _of_row(made.row, row), _of_row(stored.row, row)
            code = codes.get(row)
            stored_code = code if rejected is None else rejected.get(row)  # nothing to compare with
            if code == stored_code and np.array_equal(digests[ours], stored.digests[theirs]):
                continue
            self._num_different += 1
            if self._num_different <= MAX_ROWS:
                own = [(made, number) for number in range(ours.start, ours.stop)]
                with _reported_as_damage(self._task.shard.path):
                    pair = _described(own, code, stored.places[theirs], None if rejected is None else stored_code)
                self._findings.append(row_finding(self._task.entry, self._task.partition.first_row + row, *pair))


class _StoredDocuments:
    """The documents of one shard, in the order of its rows, with digests worked out from their values.

    Raises:
        CheckError: the shard cannot be read.

    """

    def __init__(self, folder: Path, shard: Shard) -> None:
        with _reported_as_damage(shard.path):
            chunks: Chunks[DocumentRows] = Chunks(folder, (shard,), kind="documents")
            batches = [rows for rows, _ in chunks]
            self.weighted = chunks.mapped(0).weighted
            self.row = np.concatenate([np.zeros(0, np.int32), *(rows.row for rows in batches)])
            self.digests = np.concatenate([np.zeros(0, np.uint64), *(rows.digests() for rows in batches)])
            self.places = [(rows, number) for rows in batches for number in range(len(rows.row))]
        ascending = not (self.row[1:] < self.row[:-1]).any()
        if len(self.row) and not (ascending and self.row[0] >= 0 and self.row[-1] < shard.num_input_rows):
            raise CheckError(f"{shard.path}: its documents are not in the order of the partition's rows")


@contextmanager
def _reported_as_damage(path: str) -> Iterator[None]:
    """Flipped bits can name any length and any place; whatever breaks, the shard is damaged."""
    try:
        yield
    except (OSError, ValueError, IndexError, MemoryError, OverflowError) as error:
        if (limit := out_of(error, f"cannot read {path}")) is not None:
            raise limit from error
        raise CheckError(f"{path}: {error}") from error


def _described(ours: list[_Place], code: str | None, theirs: list[_Place], stored_code: str | None) -> tuple[str, str]:
    """What a row should have yielded, and what is stored: of as many documents, the first that is another one."""
    if not ours or len(ours) != len(theirs):
        return _outcome(ours, code), _outcome(theirs, stored_code)
    columns = [_other_columns(*our, *their) for our, their in zip(ours, theirs, strict=True)]
    first = next((i for i, names in enumerate(columns) if names), 0)
    which = "document" if len(ours) == 1 else f"document {first + 1} of {len(ours)}"
    others = f"; other {' and '.join(columns[first])}" if columns[first] else ""
    rejected = "" if stored_code is None else f"; and rejected: {stored_code}"
    return f"{which} {_of_document(*ours[first])}", f"{which} {_of_document(*theirs[first])}{others}{rejected}"


def _outcome(documents: list[_Place], code: str | None) -> str:
    parts = [] if code is None else [f"rejected: {code}"]
    if len(documents) == 1:
        parts.insert(0, f"document {_of_document(*documents[0])}")
    elif documents:
        parts.insert(0, f"{len(documents)} documents, the first {_of_document(*documents[0])}")
    return "; and ".join(parts) or "no document"


def _of_document(rows: DocumentRows, number: int) -> str:
    return f"with {int(rows.length[number]):,} tokens, doc_id {int(rows.doc_id[number])}"


def _other_columns(made: DocumentRows, number: int, stored: DocumentRows, stored_number: int) -> list[str]:
    """Names of the columns in which two documents differ; of ids and labels also from which token on."""
    names = []
    for column in ("input_ids", "labels", "special_tokens_mask", "loss_weights", "spans", "num_trained", "sample_id"):
        ours, theirs = _values(made, column, number), _values(stored, column, stored_number)
        if np.array_equal(ours, theirs):
            continue
        shared = min(len(ours), len(theirs))
        differing = np.flatnonzero(ours[:shared] != theirs[:shared])
        place = int(differing[0]) if len(differing) else shared
        names.append(f"{column} from token {place} on" if column in {"input_ids", "labels"} else column)
    pairs = ((name, getattr(made, name)[number], getattr(stored, name)[stored_number]) for name in ("doc_id", "length"))
    return names or [name for name, ours, theirs in pairs if ours != theirs]


def _values(rows: DocumentRows, column: str, number: int) -> npt.NDArray[Any]:
    """What a document has in a column, as one flat array."""
    if column == "spans":
        spans = (rows.span_message, rows.span_start, rows.span_end)
        return np.concatenate([Ragged(values=values, offsets=rows.span_offsets).row(number) for values in spans])
    if column == "special_tokens_mask":
        return rows.special_tokens(number)
    if column == "sample_id":
        return np.append(rows.sample_id.row(number), rows.has_sample_id[number])
    if column == "num_trained":
        return rows.num_trained[number : number + 1]
    values: Ragged | None = getattr(rows, column)
    return np.zeros(0, np.float32) if values is None else values.row(number)


def _only(rows: RowBatch, asked: Int64) -> RowBatch:
    """Some rows of a batch."""
    wanted = set(asked.tolist())
    return RowBatch(
        samples=tuple(sample for sample in rows.samples if sample.row in wanted),
        rejections=tuple(rejection for rejection in rows.rejections if rejection.row in wanted),
        num_rows=len(wanted),
    )


def between(numbers: Int64, first: int, stop: int) -> Int64:
    """Those of ascending numbers that lie in ``[first, stop)``."""
    return numbers[slice(*np.searchsorted(numbers, (first, stop)).tolist())]


def _of_row(rows: Int32, row: int) -> slice:
    """Where a row's documents stand among ascending rows."""
    return slice(*np.searchsorted(rows, (row, row + 1)).tolist())


def named_rows(first: int, number: int) -> str:
    return f"rows {first:,} to {first + number - 1:,}"


def row_finding(entry: Input, row: int | None, expected: str, found: str) -> Finding:
    return Finding(path=entry.path, row=row, what=WHAT, expected=expected, found=found)
