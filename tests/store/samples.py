"""Seeded documents, blocks and whole small caches for the tests of the store."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from rejected_lines import write_rejected
from small_blocks import manifest_of

from packer.batches import BlockBatch, DocumentBatch
from packer.layout import MASKED
from packer.store import writing
from packer.store.entries import Cut
from packer.store.manifest import Manifest, ModelFile, Shard, write_manifest
from packer.store.row_tables import Rejected


def document_batch(
    num_documents: int,
    *,
    seed: int = 0,
    max_length: int = 40,
    row_of: Callable[[int], int] = lambda i: i,
) -> DocumentBatch:
    """Documents of random ids, each with one or two trained runs; every third has no sample_id."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, max_length + 1, num_documents)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    starts, ends, counts = [], [], []
    for length in lengths.tolist():
        cut = int(rng.integers(2, length))
        runs = [(1, cut)] if length - cut < 2 else [(1, cut), (cut + 1, length)]
        counts.append(len(runs))
        starts += [run[0] for run in runs]
        ends += [run[1] for run in runs]
    return DocumentBatch(
        input_ids=rng.integers(0, 1000, int(offsets[-1])).astype(np.int32),
        offsets=offsets,
        sample=np.array([row_of(i) for i in range(num_documents)], np.int32),
        sample_id=tuple(None if i % 3 == 0 else f"häuser-{seed}-{i}" for i in range(num_documents)),
        run_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        run_start=np.array(starts, np.int32),
        run_end=np.array(ends, np.int32),
        run_message=rng.integers(0, 9, len(starts)).astype(np.int32),
    )


def block_batch(num_blocks: int, *, block_len: int = 32, seed: int = 0) -> BlockBatch:
    """Blocks of two to four sequences, the last one padding."""
    rng = np.random.default_rng(seed)
    B, L = num_blocks, block_len
    counts = rng.integers(2, 5, B)
    rows = [np.sort(rng.choice(np.arange(1, L), int(count) - 1, replace=False)) for count in counts]
    seq_lengths = [np.diff(np.concatenate([[0], row, [L]])) for row in rows]
    labels = rng.integers(0, 1000, (B, L)).astype(np.int32)
    labels[rng.random((B, L)) < 0.5] = MASKED
    num_pieces = counts - 1
    return BlockBatch(
        input_ids=rng.integers(0, 1000, (B, L)).astype(np.int32),
        labels=labels,
        position_ids=rng.integers(0, L, (B, L)).astype(np.int32),
        seq_lengths=np.concatenate([*seq_lengths, np.zeros(0)]).astype(np.int32),
        seq_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        doc_ids=rng.integers(-(2**63), 2**63 - 1, int(num_pieces.sum())),
        doc_starts=rng.integers(0, 9, int(num_pieces.sum())).astype(np.int32),
        doc_lengths=rng.integers(1, 9, int(num_pieces.sum())).astype(np.int32),
        doc_places=rng.integers(0, 9, int(num_pieces.sum())).astype(np.int32),
        doc_offsets=np.concatenate([[0], np.cumsum(num_pieces)]).astype(np.int64),
        length=np.array([L - row[-1] for row in seq_lengths], np.int32),
        num_trained=(labels != MASKED).sum(axis=1).astype(np.int32),
    )


def write_documents(folder: Path, batches: Sequence[DocumentBatch]) -> Shard:
    return writing.write_documents(folder, batches, split="train")


def write_blocks(folder: Path, batches: Sequence[BlockBatch], *, index: int = 0) -> Shard:
    block_len = batches[0].input_ids.shape[1]
    return writing.write_blocks(folder, batches, block_len=block_len, split="train", index=index)


def small_manifest(**changes: Any) -> Manifest:
    """A manifest of nothing, with some fields changed."""
    bare = manifest_of([], fingerprint="02")
    file = ModelFile(path="tokenizer.json", num_bytes=2, sha256="44")
    columns = {"content": None, "messages": "chat"}
    source = replace(bare.inputs[0], path="a.jsonl", columns=columns, num_bytes=9, sha256="ab", num_rows=100)
    cut = {"overlong": Cut(documents=0, parts=0, tokens=0, trained=0)}
    fields: dict[str, Any] = {
        "recipe": {"version": 1, "pack": {"block_len": 32, "mode": "isolated"}},
        "model": replace(bare.model, files=(file,), vocab_size=1000, stop_ids=(2,), control_ids=(2, 7)),
        "inputs": (source, source),
        "totals": replace(bare.totals, rejected={"empty": 1}, cut=cut),
        "versions": {"packer": "0"},
    }
    return replace(bare, **fields | changes)


def _partition(shard: Shard, **place: Any) -> Shard:
    return replace(shard, num_input_rows=20, num_last_tokens=shard.num_tokens, **place)


def small_cache(folder: Path, *, num_blocks: int = 12) -> Manifest:
    """A finished cache: two document shards, two block shards, a model file and one rejected row."""
    written = [write_documents(folder, [document_batch(20, seed=i)]) for i in range(2)]
    packed = [
        write_blocks(folder, [block_batch(num_blocks, seed=10 * i + j) for j in range(2)], index=i) for i in range(2)
    ]
    (folder / "model").mkdir()
    (folder / "model" / "tokenizer.json").write_text("{}")
    manifest = small_manifest(
        shards=(
            _partition(written[0], first_row=0, source=0, key="aa"),
            _partition(written[1], first_row=50, source=1, key="bb"),
            *(replace(shard, first_row=i * 2 * num_blocks) for i, shard in enumerate(packed)),
        ),
        **write_rejected(folder, [Rejected(source="a.jsonl", row=3, code="empty", reason="the row has no messages")]),
    )
    write_manifest(folder, manifest)
    return manifest
