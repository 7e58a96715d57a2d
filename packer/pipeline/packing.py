"""From document shards to a finished cache: pack and gather the blocks, then commit everything atomically."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from packer.errors import BusyError, CheckError, InputError, NothingKeptError, PackerError, StorageError
from packer.pack import REASONS
from packer.pipeline.blocks import (
    BlockForm,
    BlockTask,
    PackedBlocks,
    PackedGroup,
    block_worker,
    pack_split,
    tokens_per_shard,
)
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


def pack_documents(
    folder: Path,
    documents: Mapping[str, DocumentShards],
    provenance: Provenance,
    *,
    workers: Workers,
    progress: Progress,
) -> PackedBlocks:
    """Pack the documents of a cache, each split separately, and write its block shards.

    Raises:
        NothingKeptError: no document is in a block.
        RecipeError: mode ``eos`` without an EOS.
        CheckError: a document is damaged.
        StorageError: the disk cannot be read or written.
    """
    recipe, model = provenance.recipe, provenance.model
    if recipe.pack.mode == "none":
        return PackedBlocks(shards=(), groups=[])
    form = BlockForm.of(recipe.pack, pad_id=model.pad_id, eos_id=model.eos_id, stop_ids=model.stop_ids)
    groups: list[PackedGroup] = []
    fetches = CacheFiles(folder).url is not None

    def tasks() -> Iterator[BlockTask]:
        for split, own in documents.items():
            num_blocks = 0
            for packed, task in pack_split(
                split, own, recipe.pack, stop_ids=model.stop_ids, shard_bytes=recipe.shard_bytes
            ):
                groups.append(packed)
                num_blocks += packed.num_blocks
                if fetches and packed.group.end - packed.group.first < len(own):
                    # The worker plans the group again after fetching the documents, as plans of groups of millions of
                    # documents are too large to send.
                    yield from [replace(task, plan=packed.group)] if packed.num_blocks else []
                else:
                    yield from task.by_shard()
            if not num_blocks:
                progress.note(f"split '{split}' has no block: nothing of its {len(own):,} documents could be packed")

    num_tokens = sum(own.num_tokens for own in documents.values())
    num_tasks = max(1, len(documents)) + num_tokens // tokens_per_shard(recipe.shard_bytes)
    progress.stage("blocks", num_tokens, "tokens")
    shards: dict[int, tuple[Shard, ...]] = {}
    for number, done in workers.run(
        block_worker,
        (folder, form, recipe.pack, model.stop_ids),
        tasks(),
        # Copying four tokens, some 32 bytes, takes about as long as making documents of one byte of rows.
        jobs=workers.number([num_tokens // 4 // num_tasks] * num_tasks),
        folder=folder,
    ):
        shards[number] = done
        for shard in done:
            progress.advance(shard.num_tokens, shard.num_tokens)
    if not shards:
        raise _nothing_packed(documents, groups)
    return PackedBlocks(shards=tuple(shard for number in sorted(shards) for shard in shards[number]), groups=groups)


def commit(
    folder: Path,
    provenance: Provenance,
    results: Sequence[PartitionResult],
    packed: PackedBlocks,
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
    rejected = partial(rejected_lines, provenance.inputs, results, packed.groups, selected)
    manifest = make_manifest(
        provenance,
        folder,
        results,
        packed,
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


def _nothing_packed(documents: Mapping[str, DocumentShards], groups: Sequence[PackedGroup]) -> NothingKeptError:
    num_documents = sum(len(own) for own in documents.values())
    counts = {code: sum(group.losses[code].num_documents for group in groups) for code in REASONS}
    reasons = ", ".join(f"{count:,} × {code} ({CODES[code]})" for code, count in counts.items() if count)
    return NothingKeptError(
        f"nothing kept: of {num_documents:,} documents {reasons}",
        hint="--block-len N makes blocks longer, "
        "--set pack.overlong=split cuts documents, --set pack.min_length=1 keeps short ones",
    )
