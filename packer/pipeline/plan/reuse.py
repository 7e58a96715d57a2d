"""Find out what exists already: whether a cache is up to date, and which partitions need no work."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from packer.errors import CheckError
from packer.media.places import OF_FILES
from packer.pipeline.identity import Provenance, same_traits
from packer.pipeline.partition import PartitionResult, PartitionTask, RejectedRow, read_journal
from packer.progress import Progress
from packer.store.files import CacheFiles
from packer.store.manifest import MANIFEST_NAME, Manifest, Shard, StoredTable, read_manifest
from packer.store.media_shards import MediaShards
from packer.store.rejected import rejected_path, rejected_rows


def existing(folder: Path, progress: Progress) -> Manifest | None:
    try:
        return None if CacheFiles(folder).size(MANIFEST_NAME) is None else read_manifest(folder)
    except CheckError as error:
        progress.note(f"{error.message}; building again")
        return None


def up_to_date(folder: Path, manifest: Manifest, wanted: Provenance, tasks: Iterable[PartitionTask]) -> bool:
    if manifest.recipe_fingerprint != wanted.recipe_fingerprint or not same_traits(manifest, wanted.recipe):
        return False
    read = [(entry.path, entry.split, entry.sha256) for entry in manifest.inputs]
    if read != [(entry.path, entry.split, entry.sha256) for entry in wanted.inputs]:
        return False  # same bytes, other names: nothing to tokenize, but the manifest has to change
    media = {table.key: table for table in manifest.media or ()}
    return (
        _is_as_committed(folder, manifest)
        and OF_FILES.isdisjoint(manifest.totals.rejected)
        and all(same_images(folder, media[task.key], task) for task in tasks if task.key in media)
    )


def _is_as_committed(folder: Path, manifest: Manifest) -> bool:
    """Whether every file of a cache exists and has its recorded length."""
    sizes = [(file.path, file.num_bytes) for file in manifest.stored]
    sizes += [(f"model/{file.path}", file.num_bytes) for file in manifest.model.files]
    files = CacheFiles(folder)
    there = files.sizes(path for path, _ in sizes)
    try:
        rejected = rejected_path(folder, manifest)
        if files.size(rejected) is None or files.sha256(rejected) != manifest.rejected_sha256:
            return False  # every build uses the same name, so the file may be another build's
    except CheckError:
        return False
    return all(there[path] == size for path, size in sizes)


def reusable(
    folder: Path, manifest: Manifest | None, tasks: Sequence[PartitionTask], *, repair: bool
) -> tuple[dict[str, PartitionResult], dict[str, StoredTable]]:
    """Return existing results and traits for tasks, by key: from unfinished builds, and from a finished cache."""
    rows = [(task, task.partition.num_rows) for task in tasks]
    results = read_journal(folder, PartitionResult, {task.key: number for task, number in rows})
    traits = read_journal(folder, StoredTable, {task.traits.key: number for task, number in rows if task.traits})
    if manifest is not None:
        results |= {result.shard.key or "": result for result in committed(folder, manifest)}
        traits |= {each.key or "": each for each in (manifest.selection.traits if manifest.selection else ())}
    media = [result.media for result in results.values() if result.media is not None]
    stored: list[Shard | StoredTable] = [*(result.shard for result in results.values()), *traits.values(), *media]
    whole = _whole(folder, stored, every_byte=repair)

    def is_as_it_was(result: PartitionResult, task: PartitionTask) -> bool:
        images = result.media
        return (
            result.shard.path in whole
            # What a file lacked that a row named is written nowhere, so it is looked at again.
            and not any(row.code in OF_FILES for row in result.rejected)
            and (images is None or (images.path in whole and same_images(folder, images, task)))
        )

    # Partitions of one key may be in folders with other images.
    changed = {task.key for task in tasks if task.key in results and not is_as_it_was(results[task.key], task)}
    return (
        {key: result for key, result in results.items() if key not in changed},
        {key: each for key, each in traits.items() if each.path in whole},
    )


def same_images(folder: Path, table: StoredTable, task: PartitionTask) -> bool:
    """Whether the files that the rows of a partition name as images still hold what a cache has of them."""
    files = task.image_files
    try:
        return all(files.digest(name) == digest for name, digest in MediaShards(folder, [table]).names())
    except CheckError:
        return False


def committed(folder: Path, manifest: Manifest) -> list[PartitionResult]:
    """Return the result of every partition of a finished cache, in order.

    If rejected.jsonl is damaged, only partitions without rejected rows: the reasons are recorded nowhere else.
    """
    documents, media = manifest.document_shards, {table.key: table for table in manifest.media or ()}
    try:
        rejected = rejected_rows(folder, manifest)
    except CheckError:
        documents = [shard for shard in documents if not shard.num_rejected]
        rejected = [[] for _ in documents]
    results = []
    for shard, lines in zip(documents, rejected, strict=True):
        own = tuple(RejectedRow(line.row - shard.first_row, line.code, line.reason, line.line) for line in lines)
        try:
            results.append(PartitionResult(shard=shard, rejected=own, media=media.get(shard.key)))
        except ValueError:  # what no build writes: nothing of such a cache is taken over
            return []
    return results


def _whole(folder: Path, stored: Sequence[Shard | StoredTable], *, every_byte: bool) -> set[str]:
    """Return the paths of files that exist with their recorded length or, with `every_byte`, their digest."""
    files = CacheFiles(folder)
    sizes = files.sizes(each.path for each in stored)
    there = [each for each in stored if sizes[each.path] == each.num_bytes]
    return {each.path for each in there if not every_byte or files.xxh3(each.path) == each.xxh3}


def reuse(result: PartitionResult, task: PartitionTask) -> PartitionResult:
    """Move the shard of an earlier build to its place in this one, with the line numbers of rejected rows."""
    partition, moved = task.partition, task.partition.first_line - result.shard.first_line
    shard = msgspec.structs.replace(
        result.shard,
        split=task.file.split,
        source=task.source,
        first_row=partition.first_row,
        first_line=partition.first_line,
    )
    rejected = tuple(
        row if row.line is None else msgspec.structs.replace(row, line=row.line + moved) for row in result.rejected
    )
    return PartitionResult(shard=shard, rejected=rejected, media=result.media)
