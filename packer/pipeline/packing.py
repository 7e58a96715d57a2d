"""From document shards to a finished cache: pack and gather the blocks, then commit everything atomically."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from packer.errors import BusyError, CheckError, InputError, NothingKeptError, PackerError, StorageError
from packer.pack import REASONS
from packer.pipeline.blocks import BlockForm, BlockTask, PackedGroup, block_worker, pack_split
from packer.pipeline.executor import Workers
from packer.pipeline.identity import Provenance
from packer.pipeline.messages.losses import refuse_losses
from packer.pipeline.partition import PartitionResult
from packer.pipeline.record import make_manifest, rejected_lines
from packer.pipeline.selecting import Selected
from packer.progress import Progress
from packer.rejections import CODES
from packer.store.cache import Cache, check_conservation
from packer.store.document_shards import DocumentShards
from packer.store.files import CacheFiles
from packer.store.folder import lock, sweep
from packer.store.manifest import (
    Manifest,
    Shard,
    decode_manifest,
    encode_manifest,
    read_manifest,
    write_manifest,
)
from packer.store.mirror import shown
from packer.store.rejected import is_pending, publish_rejected, rejected_digest, stage_rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The block shards of a cache."""

    shards: tuple[Shard, ...]
    splits: dict[str, list[PackedGroup]]
    """The groups of each split."""


def pack_documents(
    folder: Path,
    documents: Mapping[str, DocumentShards],
    provenance: Provenance,
    *,
    workers: Workers,
    progress: Progress,
) -> Packed:
    """Pack the documents of a cache, each split separately, and write its block shards.

    Raises:
        NothingKeptError: no document is in a block.
        RecipeError: mode ``eos`` without an EOS.
        CheckError: a document is damaged.
        StorageError: the disk cannot be read or written.
    """
    recipe, model = provenance.recipe, provenance.model
    if recipe.pack.mode == "none":
        return Packed(shards=(), splits={})
    form = BlockForm.of(recipe.pack, pad_id=model.pad_id, eos_id=model.eos_id, stop_ids=model.stop_ids)
    packed: dict[str, list[PackedGroup]] = {split: [] for split in documents}
    planned = {
        split: pack_split(split, own, recipe.pack, stop_ids=model.stop_ids, shard_bytes=recipe.shard_bytes)
        for split, own in documents.items()
    }
    # Plan the first group of each split now; most splits have only one.
    begun = {split: next(groups, None) for split, groups in planned.items()}
    num_blocks, num_tasks = _expected([each for each in begun.values() if each is not None], documents)
    fetches = CacheFiles(folder).url is not None

    def tasks() -> Iterator[BlockTask]:
        for split, groups in planned.items():
            for group, task in chain(filter(None, [begun.pop(split)]), groups):
                packed[split].append(group)
                of_group = group.group
                if fetches and of_group.end - of_group.first < len(documents[split]):
                    # The worker plans the group again after fetching the documents, as plans of groups of millions of
                    # documents are too large to send.
                    yield from [replace(task, plan=of_group)] if group.num_blocks else []
                else:
                    yield from task.by_shard()
            if not sum(group.num_blocks for group in packed[split]):
                progress.note(
                    f"split '{split}' has no block: nothing of its {len(documents[split]):,} documents could be packed"
                )

    progress.stage("blocks", num_blocks, "blocks")
    shards: dict[int, tuple[Shard, ...]] = {}
    for number, done in workers.run(
        block_worker,
        (folder, form, recipe.pack, model.stop_ids),
        tasks(),
        # Copying four tokens, some 32 bytes, takes about as long as making documents of one byte of rows.
        jobs=workers.number([num_blocks * form.block_len // 4 // max(1, num_tasks)] * max(1, num_tasks)),
        folder=folder,
    ):
        shards[number] = done
        for shard in done:
            progress.advance(shard.num_rows, shard.num_tokens)
    if not shards:
        raise _nothing_packed(documents, packed)
    return Packed(shards=tuple(shard for number in sorted(shards) for shard in shards[number]), splits=packed)


def _expected(
    begun: Sequence[tuple[PackedGroup, BlockTask]], documents: Mapping[str, DocumentShards]
) -> tuple[int, int]:
    """Estimate the blocks and block shards of all splits from the first group of each."""
    num_blocks = num_shards = 0
    for group, task in begun:
        of_split = group.num_blocks * len(documents[task.split]) // (group.group.end - group.group.first)
        num_blocks += of_split
        num_shards += -(-of_split // task.blocks_per_shard)
    return num_blocks, num_shards


def commit(
    folder: Path,
    provenance: Provenance,
    results: Sequence[PartitionResult],
    packed: Packed,
    selected: Selected,
    *,
    before: bytes | None = None,
    fail_above: float | None = None,
) -> Manifest:
    """Write rejected.jsonl and the manifest, whose appearance is the commit, and remove files that it does not name.

    A manifest that readers would refuse is not committed, and in a bucket none in place of another than `before`, the
    manifest that the build began with. After the commit, the cache is opened as readers open it.

    Raises:
        CheckError: a conservation law is broken, or more is left out than `fail_above`.
        UsageError: the manifest would be larger than readers accept.
        StorageError: the disk cannot be written, or did not retain what was written. Until the manifest is replaced,
            the old cache is intact; from then on the new one is complete, and the next build finishes the clean-up.
    """
    rejected = partial(rejected_lines, provenance.inputs, results, packed.splits, selected)
    manifest = make_manifest(
        provenance,
        folder,
        results,
        packed.shards,
        packed=packed.splits,
        selected=selected,
        rejected_sha256=rejected_digest(rejected()),
    )
    check_conservation(manifest)
    refuse_losses(manifest, fail_above)
    _refuse_unreadable(folder, manifest)
    stage_rejected(folder, rejected(), manifest)
    write_manifest(folder, manifest, before=before)
    try:
        Cache.open(folder).close()
    except PackerError as error:
        if isinstance(error, StorageError) and CacheFiles(folder).url is not None:
            raise  # a network error says nothing about the bytes written
        raise StorageError(
            f"{shown(folder)} was built, but does not open: {error.message}",
            hint="the disk did not keep what was written; run the same command with --repair, on another disk",
        ) from error
    finish(folder, manifest)
    return manifest


def _refuse_unreadable(folder: Path, manifest: Manifest) -> None:
    try:
        decode_manifest(folder, encode_manifest(manifest))
    except CheckError as error:
        raise PackerError(
            f"readers would refuse what was built: {error.message}",
            hint="this is a bug in packer; please report it with the recipe. Nothing was committed",
        ) from error


def finish(folder: Path, manifest: Manifest) -> None:
    """Finish a commit after the manifest is written; a no-op if that has been done. Call it with the lock held.

    rejected.jsonl is published last, so that it shows whether the previous build finished.

    Raises:
        StorageError: the disk cannot be written; the cache is complete nevertheless.
    """
    if is_pending(folder, manifest):
        sweep(folder, manifest.named_files)
        publish_rejected(folder, manifest)


def finish_if_free(folder: Path, manifest: Manifest) -> None:
    """Finish the commit if the lock is free. If the folder is busy or read-only, the cache is complete nevertheless."""
    if not is_pending(folder, manifest):
        return
    with suppress(BusyError, StorageError, CheckError, InputError), lock(folder):
        finish(folder, read_manifest(folder))  # another build may have replaced it meanwhile


def _nothing_packed(
    documents: Mapping[str, DocumentShards], packed: Mapping[str, Sequence[PackedGroup]]
) -> NothingKeptError:
    num_documents = sum(len(own) for own in documents.values())
    groups = [group for split in packed.values() for group in split]
    counts = {code: sum(group.losses[code].num_documents for group in groups) for code in REASONS}
    reasons = ", ".join(f"{count:,} × {code} ({CODES[code]})" for code, count in counts.items() if count)
    return NothingKeptError(
        f"nothing kept: of {num_documents:,} documents {reasons}",
        hint="--block-len N makes blocks longer, "
        "--set pack.overlong=split cuts documents, --set pack.min_length=1 keeps short ones",
    )
