"""From document shards to a finished cache: blocks are packed and gathered, then everything is committed at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packer.build.blocks import BlockForm, BlockTask, PackedSplit, block_worker, pack_split
from packer.build.partition import PartitionResult
from packer.build.pool import Pool
from packer.build.progress import Progress
from packer.build.provenance import Provenance
from packer.build.record import make_manifest, rejected_lines
from packer.errors import NothingKeptError
from packer.recipe import Pack
from packer.store.conservation import check_conservation
from packer.store.document_shards import DocumentShards
from packer.store.folder import sweep, write_atomically
from packer.store.manifest import Manifest, Shard, write_manifest
from packer.store.rejected import REJECTED_NAME, rejected_digest, write_rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The block shards of a cache."""

    shards: tuple[Shard, ...]
    splits: dict[str, PackedSplit]


def pack_documents(
    folder: Path, documents: Sequence[Shard], provenance: Provenance, *, jobs: int, progress: Progress
) -> Packed:
    """Pack the documents of a cache, every split by itself, and write its block shards.

    Raises:
        NothingKeptError: no document is in a block.
        RecipeError: mode ``eos`` without an EOS.
        CheckError: a document is damaged.
        StorageError: the disk refuses.

    """
    recipe, model = provenance.recipe, provenance.model
    if recipe.pack.mode == "none":
        return Packed(shards=(), splits={})
    form = BlockForm.of(recipe.pack, pad_id=model.pad_id, eos_id=model.eos_id, stop_ids=model.stop_ids)
    packed: dict[str, PackedSplit] = {}
    for split in dict.fromkeys(shard.split for shard in documents):
        own = DocumentShards(folder, [shard for shard in documents if shard.split == split])
        packed[split] = pack_split(split, own, recipe.pack, stop_ids=model.stop_ids, shard_bytes=recipe.shard_bytes)
        if not packed[split].num_blocks:
            progress.note(f"split '{split}' has no block: nothing of its {len(own):,} documents could be packed")
    tasks = [task for split in packed.values() for task in split.tasks]
    if not tasks:
        raise _nothing_packed(sum(shard.num_rows for shard in documents), packed, recipe.pack)
    progress.stage("blocks", sum(split.num_blocks for split in packed.values()), "blocks")
    pool: Pool[BlockTask, Shard] = Pool(block_worker, (folder, documents, form), jobs)
    made: dict[int, Shard] = {}
    for number, shard in pool.run(tasks):
        made[number] = shard
        progress.advance(shard.num_rows, shard.num_tokens)
    return Packed(shards=tuple(made[number] for number in range(len(tasks))), splits=packed)


def commit(folder: Path, provenance: Provenance, results: Sequence[PartitionResult], packed: Packed) -> Manifest:
    """Write rejected.jsonl and the manifest, whose appearance is the commit, and remove what it does not name.

    Raises:
        CheckError: a conservation law is broken.
        StorageError: the disk refuses; the cache that was there is as it was.

    """
    rejected = rejected_lines(folder, provenance.inputs, results, packed.splits)
    manifest = make_manifest(
        provenance, folder, results, packed.shards, packed.splits, rejected_sha256=rejected_digest(rejected)
    )
    check_conservation(manifest)
    with _old_rejected_back(folder):
        write_rejected(folder, rejected)
        write_manifest(folder, manifest)
    sweep(folder, manifest)
    return manifest


@contextmanager
def _old_rejected_back(folder: Path) -> Iterator[None]:
    """rejected.jsonl and the manifest change together: where the second cannot be written, the first is put back."""
    path = folder / REJECTED_NAME
    before = path.read_bytes() if path.is_file() else None
    try:
        yield
    except BaseException:
        if before is not None:
            write_atomically(path, before)
        raise


def _nothing_packed(num_documents: int, packed: dict[str, PackedSplit], pack: Pack) -> NothingKeptError:
    counts = {code: sum(split.losses[code].num_documents for split in packed.values()) for code in _WHY}
    told = ", ".join(f"{count} {_WHY[code].format(pack=pack)}" for code, count in counts.items() if count)
    return NothingKeptError(
        f"nothing kept: of {num_documents} documents {told}",
        hint="; ".join(_WAYS_OUT[code] for code, count in counts.items() if count),
    )


_WAYS_OUT = {
    "overlong": "--block-len N makes blocks longer, --set pack.overlong=split cuts documents",
    "too_short": "--set pack.min_length=1 keeps short documents",
    "untrained": "--block-len N makes blocks longer, so that a piece holds what is trained",
    "truncated": "--block-len N makes blocks longer",
}

_WHY = {
    "overlong": "are longer than pack.block_len ({pack.block_len})",
    "too_short": "are shorter than pack.min_length ({pack.min_length})",
    "untrained": "have no piece of pack.block_len ({pack.block_len}) tokens in which something is trained",
    "truncated": "are cut away",
}
