"""Pack the documents of a cache, and gather their blocks."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packer.errors import NothingKeptError
from packer.pack import REASONS
from packer.pipeline.blocks import (
    BlockForm,
    BlockTask,
    GroupTask,
    PackedBlocks,
    PackedGroup,
    block_worker,
    pack_split,
    tokens_per_shard,
)
from packer.pipeline.identity import Provenance
from packer.pipeline.workers.executor import Workers
from packer.progress import Progress
from packer.rejections import CODES
from packer.store.document_shards import DocumentShards
from packer.store.manifest import Shard


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
    are_apart = workers.are_apart(folder)

    def tasks() -> Iterator[BlockTask | GroupTask]:
        for split, own in documents.items():
            num_blocks = 0
            found = pack_split(split, own, recipe.pack, stop_ids=model.stop_ids, shard_bytes=recipe.shard_bytes)
            for packed, group, of_shards in found:
                groups.append(packed)
                num_blocks += packed.num_blocks
                is_one_of_several = are_apart and len(own) > recipe.pack.group_documents and packed.num_blocks
                yield from [group] if is_one_of_several else of_shards
            if not num_blocks:
                progress.note(f"split '{split}' has no block: nothing of its {len(own):,} documents could be packed")

    num_tokens = sum(own.num_tokens for own in documents.values())
    num_tasks = max(1, len(documents)) + num_tokens // tokens_per_shard(recipe.shard_bytes)
    progress.stage("blocks", num_tokens, "tokens")
    shards: dict[int, tuple[Shard, ...]] = {}
    for number, made in workers.run(
        block_worker,
        (folder, form, recipe.pack, model.stop_ids),
        tasks(),
        # Copying four tokens, some 32 bytes, takes about as long as making documents of one byte of rows.
        sizes=[num_tokens // 4 // num_tasks] * num_tasks,
        folder=folder,
    ):
        shards[number] = made
        num_made = sum(shard.num_tokens for shard in made)
        progress.advance(num_made, num_made)
    if not shards:
        raise _nothing_packed(documents, groups)
    return PackedBlocks(shards=tuple(shard for number in sorted(shards) for shard in shards[number]), groups=groups)


def _nothing_packed(documents: Mapping[str, DocumentShards], groups: Sequence[PackedGroup]) -> NothingKeptError:
    num_documents = sum(len(own) for own in documents.values())
    counts = {code: sum(group.losses[code].num_documents for group in groups) for code in REASONS}
    reasons = ", ".join(f"{count:,} × {code} ({CODES[code]})" for code, count in counts.items() if count)
    return NothingKeptError(
        f"nothing kept: of {num_documents:,} documents {reasons}",
        hint="--block-len N makes blocks longer, "
        "--set pack.overlong=split cuts documents, --set pack.min_length=1 keeps short ones",
    )
