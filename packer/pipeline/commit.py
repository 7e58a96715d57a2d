"""The commit: rejected.jsonl and the manifest are written, the manifest last, and what it does not name is removed."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from packer.errors import BusyError, CheckError, InputError, PackerError, StorageError
from packer.names import shown
from packer.pipeline.blocks import PackedBlocks
from packer.pipeline.identity import Provenance
from packer.pipeline.messages.losses import refuse_rejected_rows
from packer.pipeline.partition import PartitionResult
from packer.pipeline.record import make_manifest, rejected_lines
from packer.pipeline.selecting import Selected
from packer.store.cache import Cache, check_conservation
from packer.store.folder import lock, sweep
from packer.store.manifest import Manifest, decode_manifest, encode_manifest, read_manifest, write_manifest
from packer.store.rejected import is_pending, publish_rejected, stage_rejected


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
        StorageError: the disk cannot be written, or did not retain what was written. Until the manifest is replaced,
            the old cache is intact; from then on the new one is complete, and the next build finishes the clean-up.
    """
    rejected_digests = stage_rejected(folder, rejected_lines(provenance.inputs, results, packed.groups, selected))
    manifest = make_manifest(
        provenance,
        folder,
        results,
        packed,
        selected=selected,
        rejected_digests=rejected_digests,
    )
    check_conservation(manifest)
    if fail_above is not None:
        refuse_rejected_rows(folder, manifest, fail_above)
    _refuse_unreadable(folder, manifest)
    write_manifest(folder, manifest, before=before)
    try:
        Cache.open(folder).close()
    except (CheckError, InputError) as error:
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

    The cache is complete before. rejected.jsonl is published last, to show whether the previous build finished.
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
