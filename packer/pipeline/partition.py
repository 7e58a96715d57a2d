"""The task of one partition: its bytes become a document shard and a journal entry.

A pure function of the partition's bytes, how its rows are read, and the documents half of the recipe. The journal entry
(`.packer/partitions/<key>.json`) is written after the shard, so a build that is killed finds what it finished.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import msgspec
import numpy as np

from packer.batches import DocumentBatch, RowBatch
from packer.errors import StorageError
from packer.model import Model
from packer.pipeline.stages import Stages, named_row, overruns_at
from packer.recipe import Recipe
from packer.source import Partition, read_rows, unused_keys
from packer.source.partition import Format
from packer.store.files import CacheFiles
from packer.store.folder import PRIVATE
from packer.store.manifest import Shard
from packer.store.writing import write_documents

JOURNAL = f"{PRIVATE}/partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """One partition to be made into a shard."""

    partition: Partition
    schema: str
    columns: dict[str, str | None]
    roles: Mapping[str, str]
    split: str
    source: int
    index: int
    """Number of the shard in its split."""

    key: str

    @property
    def path(self) -> Path:
        return self.partition.path

    @property
    def format(self) -> Format:
        return self.partition.format


class RejectedRow(msgspec.Struct, frozen=True, array_like=True):
    """A rejection as the journal keeps it."""

    row: int
    code: str
    reason: str
    line: int | None = None
    """Of the file, from 1, where its rows are lines."""


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of a partition."""

    shard: Shard
    rejected: tuple[RejectedRow, ...]


Made: TypeAlias = tuple[PartitionResult, dict[str, float]]
"""The result of a partition, and the seconds of each stage."""


_MOST_KEYS = 32
"""Unused keys of a partition that are counted: rows may have names or dates for keys."""

_SHOWN_KEY = 40


class PartitionWork:
    """Partitions become shards, in one process."""

    def __init__(self, folder: Path, recipe: Recipe, model: Model) -> None:
        self._folder = folder
        self._recipe = recipe
        self._model = model
        self._stages = Stages(recipe, model)

    def __call__(self, task: PartitionTask) -> Made:
        """Make the shard of one partition.

        Raises:
            InputError: the file changed since it was planned.
            StorageError: the disk refuses.
            TemplateOverrunError: the template goes on for too long with a row.
            EngineDiffersError: the fast encoder does not take this tokenizer.

        """
        with overruns_at(lambda row: named_row(task.partition, row, self._recipe)):
            batches = read_rows(
                task.partition,
                schema=task.schema,
                columns=task.columns,
                roles=task.roles,
                max_row_bytes=self._recipe.rows.max_bytes,
            )
            result = run_partition(task, batches, folder=self._folder, model=self._model, stages=self._stages)
        return result, self._stages.clock.take()


def run_partition(
    task: PartitionTask,
    batches: Iterable[RowBatch],
    *,
    folder: Path,
    model: Model,
    stages: Stages,
) -> PartitionResult:
    """Make the shard of one partition from its rows."""
    rejected: list[RejectedRow] = []
    num_rows = num_kept = num_merged = num_skipped = 0
    unused: Counter[str] = Counter()
    documents: list[DocumentBatch] = []
    for rows in stages.clock.each("read", batches):
        done = stages.run(rows)
        documents.append(done.documents)
        rejected += (
            RejectedRow(r.row, r.code, r.reason, None if rows.lines is None else rows.lines[r.row - num_rows])
            for r in done.rejections
        )
        unused.update(key[:_SHOWN_KEY] for key in unused_keys(rows.samples))
        num_rows += rows.num_rows
        num_kept += len(np.unique(done.documents.sample))
        num_merged += done.num_merged
        num_skipped += done.num_skipped
    with stages.clock.of("write"):
        special_ids = np.array(model.special_ids, np.int32)
        written = write_documents(folder, documents, special_ids=special_ids, split=task.split, index=task.index)
    shard = msgspec.structs.replace(
        written,
        first_row=task.partition.first_row,
        first_line=task.partition.first_line,
        source=task.source,
        key=task.key,
        num_kept=num_kept,
        num_input_rows=num_rows,
        num_rejected=len(rejected),
        num_merged=num_merged,
        num_skipped=num_skipped,
        unused_keys=dict(unused.most_common(_MOST_KEYS)),
    )
    result = PartitionResult(shard=shard, rejected=tuple(rejected))
    write_journal(folder, task.key, result)
    return result


def write_journal(folder: Path, key: str, result: PartitionResult) -> None:
    """Say that a partition is finished; its shard is there already."""
    CacheFiles(folder).write(f"{JOURNAL}/{key}.json", msgspec.json.encode(result))


def read_journal(folder: Path) -> dict[str, PartitionResult]:
    """Results of a build that did not finish, by key; entries that cannot be read are as good as missing."""
    entries: dict[str, PartitionResult] = {}
    files = CacheFiles(folder)
    for name in files.names(JOURNAL, ".json"):
        with suppress(StorageError, msgspec.MsgspecError):
            entries[PurePosixPath(name).stem] = msgspec.json.decode(files.read(name), type=PartitionResult)
    return entries
