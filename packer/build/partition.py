"""The task of one partition: its bytes become a document shard and a journal entry.

A pure function of the partition's bytes, how its rows are read, and the documents half of the recipe. The journal entry
(`.packer/partitions/<key>.json`) is written after the shard, so a build that is killed finds what it finished.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from packer.batches import RowBatch, TurnBatch
from packer.build.stages import Stages
from packer.model import Model
from packer.recipe import Recipe
from packer.source import Partition, Schema, read_rows, unused_keys
from packer.store.documents import DocumentShardWriter
from packer.store.folder import write_atomically
from packer.store.manifest import Shard

JOURNAL = Path(".packer") / "partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """One partition to be made into a shard."""

    partition: Partition
    schema: Schema
    columns: dict[str, str | None]
    split: str
    source: int
    index: int
    """Number of the shard in its split."""

    key: str


class RejectedRow(msgspec.Struct, frozen=True, array_like=True):
    """A rejection as the journal keeps it."""

    row: int
    code: str
    reason: str
    line: int | None = None
    """Of the file, from 1, where its rows are lines."""


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a partition came to."""

    shard: Shard
    rejected: tuple[RejectedRow, ...]


Made: TypeAlias = tuple[PartitionResult, dict[str, float]]
"""What a partition came to, and the seconds of each stage."""


_Rendered: TypeAlias = tuple[RowBatch, TurnBatch]


@dataclass(slots=True)
class Ahead:
    """What was rendered of a partition before its turn."""

    batches: list[_Rendered] = field(default_factory=list)
    is_whole: bool = False


_AHEAD_BYTES = 64 * 2**20
"""Of texts, or of rows, that are there before an encoder is; in memory they take a few times as much."""

_MOST_KEYS = 32
"""Unused keys of a partition that are counted: rows may have names or dates for keys."""

_SHOWN_KEY = 40

_ROW_BYTES = 1024
"""What a row counts beside that."""


class PartitionWork:
    """Partitions become shards, in one process."""

    def __init__(self, folder: Path, recipe: Recipe, model: Model) -> None:
        self._folder = folder
        self._recipe = recipe
        self._model = model
        self._stages = Stages(recipe, model, meanwhile=True)
        self._ahead_bytes = 0
        self._process = os.getpid()

    def is_waiting(self) -> bool:
        """Whether there is no encoder yet, and room for what is rendered meanwhile."""
        return not self._stages.is_loaded and self._ahead_bytes <= _AHEAD_BYTES

    def ahead(self, task: PartitionTask) -> Ahead:
        """Read and render of a partition what can be while it is waited.

        Raises:
            PackerError: as for the task itself.

        """
        done = Ahead()
        row_bytes = _ROW_BYTES + task.partition.num_bytes // max(task.partition.num_rows, 1)
        for rows, turns in self._rendered(task):
            done.batches.append((rows, turns))
            self._ahead_bytes += max(len(turns.text), row_bytes * rows.num_rows)
            if not self.is_waiting():
                return done
        done.is_whole = True
        return done

    def settle(self) -> None:
        """Wait for what is being loaded.

        Raises:
            EngineDiffersError: the fast encoder does not take this tokenizer.

        """
        self._stages.tokenizing  # noqa: B018 - made where it is asked for

    def __call__(self, task: PartitionTask, ahead: Ahead | None = None) -> Made:
        """Make the shard of one partition; `ahead`: what was done of it.

        Raises:
            InputError: the file changed since it was planned.
            StorageError: the disk refuses.
            TemplateOverrunError: the template goes on for too long with a row.

        """
        if self._process != os.getpid():  # a copy: what was spent until then is the other's to tell
            self._process = os.getpid()
            self._stages.clock.take()
        ahead = ahead or Ahead()
        result = run_partition(
            task,
            ahead.batches if ahead.is_whole else self._rendered(task, ahead.batches),
            folder=self._folder,
            model=self._model,
            stages=self._stages,
        )
        return result, self._stages.clock.take()

    def _rendered(self, task: PartitionTask, ahead: Sequence[_Rendered] = ()) -> Iterator[_Rendered]:
        """Batches of a partition, and their texts; the first of them may be there."""
        batches = read_rows(
            task.partition,
            schema=task.schema,
            columns=task.columns,
            max_row_bytes=self._recipe.rows.max_bytes,
        )
        for number, rows in enumerate(self._stages.clock.each("read", batches)):
            yield ahead[number] if number < len(ahead) else (rows, self._stages.render(rows))


def run_partition(
    task: PartitionTask,
    batches: Iterable[_Rendered],
    *,
    folder: Path,
    model: Model,
    stages: Stages,
) -> PartitionResult:
    """Make the shard of one partition from its rows and what they were rendered to."""
    rejected: list[RejectedRow] = []
    num_rows = num_kept = num_merged = num_skipped = 0
    unused: Counter[str] = Counter()
    with DocumentShardWriter(folder, special_ids=np.array(model.special_ids, np.int32)) as writer:
        for rows, turns in batches:
            done = stages.run(rows, turns)
            with stages.clock.of("write"):
                writer.append(done.documents)
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
            written = writer.finish(split=task.split, index=task.index)
    shard = written.as_shard(
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
    write_atomically(folder / JOURNAL / f"{key}.json", msgspec.json.encode(result))


def read_journal(folder: Path) -> dict[str, PartitionResult]:
    """Results of a build that did not finish, by key; entries that cannot be read are as good as missing."""
    entries: dict[str, PartitionResult] = {}
    for path in sorted((folder / JOURNAL).glob("*.json")):
        try:
            entries[path.stem] = msgspec.json.decode(path.read_bytes(), type=PartitionResult)
        except (OSError, msgspec.MsgspecError):
            continue
    return entries
