"""The task of one partition: make the document shard of its rows, their traits, or both, and write journal entries.

The shard is a pure function of the partition's bytes, how its rows are read, and the documents half of the recipe. The
traits are a function of the partition's bytes, how its rows are read, and the rules that need traits. A journal entry
(:data:`JOURNALS`) is written after each file, so that after a crash the next build can reuse what was finished. That of
a shard may be left to the caller, who first compares some of its ids with the reference.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Annotated, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Meta

from packer.batches import DocumentBatch, RowBatch
from packer.curate import TraitRules
from packer.layout import distinct
from packer.media.images import ImageFiles
from packer.model.model import Model
from packer.pipeline.columns import run_with_columns
from packer.pipeline.plan.input_resolution import questions_of
from packer.pipeline.stages import Stages, SupervisedRows, overruns_at
from packer.recipe.groups import declared
from packer.recipe.recipe import Recipe
from packer.recipe.row_rules import MediaRules
from packer.rejections import CODES
from packer.source.partition import Partition
from packer.source.rows import InputFile, folder_of, read_rows
from packer.store.files import CacheFiles
from packer.store.folder import PRIVATE
from packer.store.manifest import Shard, StoredTable
from packer.store.media_shards import MediaWriter
from packer.store.row_tables import write_table
from packer.store.writing import write_documents
from packer.tokenize.fast import Sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class TraitsTask:
    """Which traits of a partition's rows to record."""

    rules: TraitRules
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """A partition whose shard, traits or both are to be made."""

    partition: Partition
    file: InputFile
    """How its rows are read, and the split they belong to."""

    source: int
    """Index of the file among the inputs."""

    key: str
    traits: TraitsTask | None = None
    """None if the recipe has no rules about rows, or the traits exist already."""

    has_documents: bool = False
    """Whether the shard exists already, so that only the traits have to be made."""

    media: MediaRules

    @property
    def image_files(self) -> ImageFiles:
        """What opens the images that its rows name."""
        return ImageFiles.of(folder_of(self.partition.path), self.media)

    def __str__(self) -> str:
        first, number = self.partition.first_row, self.partition.num_rows
        return f"{self.file.name}, rows {first:,} to {first + number - 1:,}"


class RejectedRow(msgspec.Struct, frozen=True, array_like=True):
    """A rejection as stored in the journal."""

    row: int
    code: str
    reason: Annotated[str, Meta(max_length=2**16)]
    line: int | None = None
    """Line number in the file, from 1, if its rows are lines."""


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of a partition."""

    shard: Shard
    rejected: tuple[RejectedRow, ...]
    unread: tuple[Annotated[str, Meta(max_length=2**16)], ...] = ()
    """Fields of its rows that are not read; of a partition that was reused, none."""

    media: StoredTable | None = None
    """The images of its documents; None if they have none."""

    def __post_init__(self) -> None:
        """Refuse counts of rows that do not add up, and rejections that the partition cannot have."""
        shard, rows = self.shard, [each.row for each in self.rejected]
        if shard.kind != "documents" or shard.source is None or shard.key is None:
            raise ValueError("its shard is not that of a partition")
        if not len(rows) == shard.num_rejected == shard.num_input_rows - shard.num_kept:
            raise ValueError("its rows are not those that were kept and those that were rejected")
        if not all(0 <= row < shard.num_input_rows for row in rows):
            raise ValueError("it rejects a row that it does not have")
        if not all(each.line is None or 0 < each.line < 2**53 for each in self.rejected):
            raise ValueError("it rejects a line that no file has")
        if not CODES.keys() >= {each.code for each in self.rejected}:
            raise ValueError("it rejects a row for no known reason")
        if not bool(shard.num_tokens) <= shard.num_last_tokens <= shard.num_tokens:
            raise ValueError("its last tokens are not some of its tokens")


Finished = TypeVar("Finished", PartitionResult, StoredTable)

JOURNALS: Mapping[type, str] = {PartitionResult: f"{PRIVATE}/partitions", StoredTable: f"{PRIVATE}/traits"}
"""Folders with the journal entries of finished shards and finished traits: one file for each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutput:
    """What a task has made."""

    result: PartitionResult | None
    """None if the shard existed already."""

    traits: StoredTable | None
    sampled: tuple[Sampled, ...] = ()
    """Texts to be compared with the reference before the shard is journaled, if that is left to the caller."""


_MOST_KEYS = 32
"""Number of unread fields reported of a partition: rows may use names or dates as keys."""

SHOWN_KEY = 40
"""Characters of the name of such a field that are kept."""

_BATCH_ROWS = 1024
_BATCH_ROWS_WITH_IMAGES = 64
"""Images of the rows of a batch are in memory together."""


def partition_worker(
    folder: Path, recipe: Recipe, model: Model, *, journals: bool = True
) -> Callable[[PartitionTask], TaskOutput]:
    """Return the function that makes the shard of a partition and the traits of its rows, in one process.

    The tokenizer is loaded on first use. `journals`: whether shards are journaled here. Otherwise the caller compares
    :attr:`TaskOutput.sampled` with the reference, which then need not be loaded in every process, and journals.
    """
    sampled: list[Sampled] = []
    stages = cache(lambda: Stages(recipe, model, check=None if journals else sampled.extend))
    questions = cache(lambda: questions_of(recipe))
    columns = [each for each in declared(recipe) if each.rule.file is None]

    def traits_of(rules: TraitRules, batches: Iterable[RowBatch], found: list[pa.RecordBatch]) -> Iterator[RowBatch]:
        """Yield the batches unchanged, appending their traits to a list."""
        from packer.curate.traits import TraitMaker  # noqa: PLC0415 - not loaded by builds without rules

        maker = TraitMaker(rules, questions())
        for rows in batches:
            found.append(maker.make(rows))
            yield rows

    def make(task: PartitionTask) -> TaskOutput:
        """Raises what stops a build: an InputError of a file that changed, and errors of engine, template and disk."""
        result, stored, found = None, None, list[pa.RecordBatch]()
        fields = () if task.traits is None else task.traits.rules.fields
        with overruns_at(recipe, task.partition):
            batches: Iterable[RowBatch] = read_rows(
                task.partition,
                schema=task.file.schema,
                columns=task.file.columns,
                roles=task.file.roles,
                max_row_bytes=task.file.max_row_bytes,
                batch_rows=_BATCH_ROWS_WITH_IMAGES if recipe.reads_images else _BATCH_ROWS,
                fields=(*fields, *(each.field for each in columns)),
            )
            if task.traits is not None:
                batches = traits_of(task.traits.rules, batches, found)
            if task.has_documents:
                for _ in batches:  # for their traits, and for the digest, which is checked behind the last row
                    pass
            else:
                run = partial(run_with_columns, columns, stages()) if columns else stages().run
                result = _made(task, ((rows, run(rows)) for rows in batches), folder=folder)
                if journals:
                    write_journal(folder, task.key, result)
        if task.traits is not None:
            stored = write_table(folder, found, kind="traits", key=task.traits.key)
            write_journal(folder, task.traits.key, stored)
        own = tuple(sampled)
        sampled.clear()
        return TaskOutput(result=result, traits=stored, sampled=own)

    return make


def _made(task: PartitionTask, batches: Iterable[tuple[RowBatch, SupervisedRows]], *, folder: Path) -> PartitionResult:
    """Make the shard of one partition from its rows and what the stages made of them, and that of its images."""
    rejected: list[RejectedRow] = []
    num_rows = num_kept = num_merged = num_skipped = 0
    names: set[str] = set()
    documents: list[DocumentBatch] = []
    images: MediaWriter | None = None
    with ExitStack() as opened:
        for rows, done in batches:
            documents.append(done.documents)
            if done.images:
                images = images or opened.enter_context(MediaWriter(folder, key=task.key, keep=task.media.keep))
                images.add(done.images)
            for each in done.rejections:
                line = None if rows.lines is None else rows.lines[each.row - rows.first]
                rejected.append(RejectedRow(each.row, each.code, each.reason, line))
            names |= rows.names
            num_rows += rows.num_rows
            num_kept += len(distinct(done.documents.sample))
            num_merged += done.num_merged
            num_skipped += done.num_skipped
        media = None if images is None else images.commit()
    written = write_documents(folder, documents, split=task.file.split)
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
    )
    unread = sorted(task.file.unread(names))[:_MOST_KEYS]
    return PartitionResult(
        shard=shard,
        rejected=tuple(rejected),
        unread=tuple(name[:SHOWN_KEY] for name in unread),
        media=media,
    )


def write_journal(folder: Path, key: str, finished: PartitionResult | StoredTable) -> None:
    """Record that a shard or a table of traits, whose file is on the disk, is finished."""
    CacheFiles(folder).write(f"{JOURNALS[type(finished)]}/{key}.json", msgspec.json.encode(finished))


def journal_entries(folder: Path) -> list[str]:
    """Return the names of all entries that are in the folder of a cache."""
    return [name for journal in JOURNALS.values() for name in CacheFiles(folder).names(journal, ".json")]


def read_journal(folder: Path, kind: type[Finished], num_rows: Mapping[str, int]) -> dict[str, Finished]:
    """Return what unfinished builds have finished, by key, of partitions whose rows are `num_rows` by key.

    Entries that no build writes count as missing.
    """
    entries: dict[str, Finished] = {}
    for name, content in CacheFiles(folder).contents(JOURNALS[kind], [f"{key}.json" for key in num_rows]):
        with suppress(msgspec.MsgspecError):
            key, entry = PurePosixPath(name).stem, msgspec.json.decode(content, type=kind)
            stored = entry if isinstance(entry, StoredTable) else entry.shard
            if (stored.key, num_rows[key]) == (key, getattr(stored, "num_input_rows", stored.num_rows)):
                entries[key] = entry
    return entries
