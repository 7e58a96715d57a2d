"""Random documents laid out in blocks one by one, and small caches of them, for tests of the reader."""

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from packer.batches import BlockBatch
from packer.store.cache import Cache
from packer.store.entries import Totals
from packer.store.manifest import Input, Manifest, ModelRecord, write_manifest
from packer.store.writing import write_blocks

PAD_ID = 0


@dataclass(frozen=True)
class Document:
    input_ids: np.ndarray  # int32[n]
    labels: np.ndarray  # int32[n]; the first is -100


def random_documents(rng, lengths, vocab_size=50):
    """Documents with random ids from 1 on and random trained positions, never the first."""
    documents = []
    for length in lengths:
        ids = rng.integers(1, vocab_size, length).astype(np.int32)
        trained = rng.random(length) < 0.6
        trained[0] = False
        documents.append(Document(ids, np.where(trained, ids, -100).astype(np.int32)))
    return documents


def pack_literally(rows, block_len):
    """Blocks with the documents of `rows` (a list of lists of documents) laid out one after another, then padding."""
    B, L = len(rows), block_len
    ids, labels, positions = (
        np.full((B, L), PAD_ID, np.int32),
        np.full((B, L), -100, np.int32),
        np.zeros((B, L), np.int32),
    )
    seq_lengths, seq_counts, doc_counts, doc_lengths, doc_places = [], [], [], [], []
    for row, documents in enumerate(rows):
        place = 0
        for document in documents:
            n = len(document.input_ids)
            ids[row, place : place + n] = document.input_ids
            labels[row, place : place + n] = document.labels
            positions[row, place : place + n] = np.arange(n)
            seq_lengths.append(n)
            doc_lengths.append(n)
            doc_places.append(place)
            place += n
        assert place <= L
        positions[row, place:] = np.arange(L - place)
        if place < L:
            seq_lengths.append(L - place)
        seq_counts.append(len(documents) + (place < L))
        doc_counts.append(len(documents))
    return BlockBatch(
        input_ids=ids,
        labels=labels,
        position_ids=positions,
        seq_lengths=np.array(seq_lengths, np.int32),
        seq_offsets=np.concatenate([[0], np.cumsum(seq_counts)]).astype(np.int64),
        doc_ids=np.arange(sum(doc_counts), dtype=np.int64),
        doc_starts=np.zeros(sum(doc_counts), np.int32),
        doc_lengths=np.array(doc_lengths, np.int32),
        doc_places=np.array(doc_places, np.int32),
        doc_offsets=np.concatenate([[0], np.cumsum(doc_counts)]).astype(np.int64),
        length=np.array([sum(len(d.input_ids) for d in documents) for documents in rows], np.int32),
        num_trained=(labels != -100).sum(axis=1).astype(np.int32),
    )


def random_blocks(num_blocks, block_len=8, *, seed=0):
    """Blocks of random documents, some with padding."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(num_blocks):
        lengths = []
        while sum(lengths) < block_len:
            lengths.append(int(rng.integers(1, block_len - sum(lengths) + 1)))
        rows.append(random_documents(rng, lengths[: max(1, len(lengths) - int(rng.integers(0, 2)))]))
    return pack_literally(rows, block_len)


def manifest_of(shards, *, num_blocks=0, fingerprint="f00d"):
    """A manifest that names these shards, documents as those of one input, and little else."""
    shards, num_rows = [*shards], 0
    for place, shard in enumerate(shards):
        if shard.kind == "documents" and shard.source is None:
            of_input = {"source": 0, "first_row": num_rows, "num_last_tokens": shard.num_tokens}
            shards[place] = msgspec.structs.replace(shard, num_input_rows=shard.num_rows, **of_input)
            num_rows += shard.num_rows
    entry = {"split": "train", "format": "jsonl", "schema": "messages", "columns": {}, "num_bytes": 0, "sha256": "00"}
    zeros = dict.fromkeys(("rows", "kept", "documents", "tokens", "trained", "masked", "merged"), 0)
    return Manifest(
        format="packer-cache",
        format_version=6,
        label_shift="none",
        recipe={"version": 1, "pack": {"block_len": 8, "mode": "isolated"}},
        engine="reference",
        engine_version="1",
        rules_version=1,
        model=ModelRecord(files=(), vocab_size=50, pad_id=PAD_ID, eos_id=None, stop_ids=(), control_ids=()),
        inputs=(Input(path="rows.jsonl", num_rows=num_rows, **entry),),
        shards=tuple(shards),
        rejected_sha256="00",
        rejected_content="03",
        totals=Totals(**zeros, rejected={}, packed=0, cut={}, piece_starts=0, blocks=num_blocks, slots=0, padding=0),
        recipe_fingerprint="01",
        content_fingerprint=fingerprint,
        versions={},
    )


def write_cache(folder, batches, *, fingerprint="f00d"):
    """A finished cache with one block shard a batch."""
    shards, first_row = [], 0
    for index, batch in enumerate(batches):
        block_len = batch.input_ids.shape[1]
        shard = write_blocks(folder, [batch], block_len=block_len, split="train", index=index)
        shards.append(msgspec.structs.replace(shard, first_row=first_row))
        first_row += batch.num_blocks
    write_manifest(folder, manifest_of(shards, num_blocks=first_row, fingerprint=fingerprint))
    return folder


def small_cache(num_blocks, block_len=8, *, fingerprint="f00d"):
    """An open cache of random blocks in three shards, the same for the same arguments."""
    return Cache.open(_small_folder(num_blocks, block_len, fingerprint))


@cache
def _small_folder(num_blocks, block_len, fingerprint):
    sizes = [num_blocks // 3, num_blocks // 2 - num_blocks // 3, num_blocks - num_blocks // 2]
    batches = [random_blocks(size, block_len, seed=i) for i, size in enumerate(sizes)]
    return write_cache(temporary_folder() / f"{num_blocks}-{block_len}-{fingerprint}", batches, fingerprint=fingerprint)


@cache
def temporary_folder():
    folder = Path(tempfile.mkdtemp(prefix="packer-tests-"))
    atexit.register(shutil.rmtree, folder)
    return folder
