"""Pack the documents of a cache, and gather their blocks."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from packer.pipeline.blocks import (
    BlockForm,
    BlockTask,
    PackedBlocks,
    PackedGroup,
    block_worker,
    cuts_of,
    pack_split,
    tokens_per_shard,
)
from packer.pipeline.identity import Provenance
from packer.pipeline.messages.losses import LIMIT, InNoBlock, refuse_lost_tokens
from packer.pipeline.workers.executor import Workers, in_order
from packer.progress import Progress
from packer.store.document_shards import DocumentShards
from packer.store.manifest import Shard


def pack_documents(
    folder: Path,
    documents: Mapping[str, DocumentShards],
    provenance: Provenance,
    *,
    workers: Workers,
    progress: Progress,
    fail_above: float | None = None,
) -> PackedBlocks:
    """Pack the documents of a cache, each split separately, and write its block shards."""
    recipe, model = provenance.recipe, provenance.model
    pack = msgspec.to_builtins(recipe.pack)
    if recipe.pack.mode == "none":
        return PackedBlocks(shards=(), groups=[])
    form = BlockForm.of(recipe.pack, pad_id=model.pad_id)
    limit = LIMIT if fail_above is None else fail_above
    groups: list[PackedGroup] = []
    num_tokens = sum(own.num_tokens for own in documents.values())

    def lost() -> InNoBlock:
        return InNoBlock(cuts=cuts_of(groups), of_tokens=num_tokens)

    def tasks() -> Iterator[BlockTask]:
        for split, own in documents.items():
            num_blocks = 0
            planned = pack_split(split, own, recipe.pack, shard_bytes=recipe.shard_bytes)
            for packed, shard_tasks in planned:
                groups.append(packed)
                num_blocks += packed.num_blocks
                if lost().share <= limit:  # once it is above, the rest is only planned, to say how much is lost
                    yield from shard_tasks
            if not num_blocks and lost().share <= limit:
                progress.note(f"split '{split}' has no block: nothing of its {len(own):,} documents could be packed")
        refuse_lost_tokens(lost(), documents.values(), pack, limit)

    num_tasks = max(1, len(documents)) + num_tokens // tokens_per_shard(recipe.shard_bytes)
    progress.stage("blocks", num_tokens, "tokens")
    shards: list[Shard] = []
    made = workers.run(
        block_worker,
        (folder, form),
        tasks(),
        # Copying four tokens, some 32 bytes, takes about as long as making documents of one byte of rows.
        sizes=[num_tokens // 4 // num_tasks] * num_tasks,
        folder=folder,
    )
    for shard in in_order(made):
        shards.append(shard)
        progress.advance(shard.num_tokens, shard.num_tokens)
    return PackedBlocks(shards=shards, groups=groups)
