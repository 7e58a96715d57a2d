"""Block caches of a wished size to read from, written in seconds: real blocks again and again."""

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from packer.batches import BlockBatch
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.starter import write_starter
from packer.store import writing as stored
from packer.store.cache import Cache
from packer.store.manifest import write_manifest

REAL = Path(os.environ.get("PACKER_REAL", Path(__file__).parents[3] / "shared" / "real"))
_BATCH_TOKENS = 2**20
"""Tokens of a record batch, as in a build."""

_BATCHES_PER_SHARD = 20


def seed_rows(folder: Path) -> tuple[Path, Path, str]:
    """The Alpaca rows and a tokenizer where they lie, else those of the starter; and what the rows are called."""
    corpus, tokenizer = REAL / "corpora" / "alpaca_en_52k.jsonl", REAL / "tokenizers" / "llama-3"
    if corpus.exists() and tokenizer.exists():
        return corpus, tokenizer, "Alpaca rows"
    write_starter(folder / "starter")
    return folder / "starter" / "data" / "alpaca.jsonl", folder / "starter" / "tokenizer", "rows of the starter"


def seed_cache(folder: Path, *, block_len: int) -> tuple[Cache, str]:
    """A cache that packer builds from the Alpaca rows where they lie, else from the starter; and what its rows are."""
    corpus, tokenizer, name = seed_rows(folder)
    recipe = {"sources": [{"path": str(corpus)}], "tokenizer": str(tokenizer), "pack": {"block_len": block_len}}
    build(make_recipe(recipe), folder / "seed")
    return Cache.open(folder / "seed"), name


def repeated(cache: Cache, num_bytes: int) -> Iterator[BlockBatch]:
    """The blocks of a cache again and again, until their three token columns have so many bytes."""
    blocks = cache.blocks("train")
    num_blocks, size = num_bytes // (12 * blocks.block_len), _BATCH_TOKENS // blocks.block_len
    for first in range(0, num_blocks, size):
        yield blocks.read(np.arange(first, min(first + size, num_blocks)) % len(blocks))


def write_blocks(folder: Path, batches: Iterable[BlockBatch], *, like: Cache) -> Path:
    """A cache of these blocks alone, in shards of about as many bytes as a build's, with the other's manifest."""
    shards, num_blocks, rest = [], 0, iter(batches)
    for index in itertools.count():
        part = list(itertools.islice(rest, _BATCHES_PER_SHARD))
        if not part:
            break
        block_len = part[0].input_ids.shape[1]
        shard = stored.write_blocks(folder, part, block_len=block_len, split="train", index=index)
        shards.append(msgspec.structs.replace(shard, first_row=num_blocks))
        num_blocks += sum(batch.num_blocks for batch in part)
    manifest = like.manifest
    totals = msgspec.structs.replace(manifest.totals, blocks=num_blocks, documents=0)
    write_manifest(folder, msgspec.structs.replace(manifest, shards=tuple(shards), totals=totals))
    return folder
