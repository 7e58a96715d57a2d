"""Random documents written one after another, and small caches of them, for tests of batches made of documents."""

from functools import cache
from itertools import pairwise

import msgspec
import numpy as np
from small_blocks import PAD_ID, manifest_of, random_documents, temporary_folder

from packer.batches import DocumentBatch
from packer.store.cache import Cache
from packer.store.manifest import write_manifest
from packer.store.writing import write_documents


def documents_of(num_documents, *, longest=20, seed=0):
    """Documents of 2 to `longest` tokens."""
    rng = np.random.default_rng(seed)
    return random_documents(rng, rng.integers(2, longest + 1, num_documents))


def batch_of(documents):
    """The same documents as the stages hand them on: every stretch of trained tokens is a run."""
    starts, ends, counts = [], [], []
    for document in documents:
        trained = document.labels != -100
        boundaries = [0, *(np.flatnonzero(np.diff(trained)) + 1).tolist(), len(trained)]
        runs = [(a, b) for a, b in pairwise(boundaries) if trained[a]]
        counts.append(len(runs))
        starts += [start for start, _ in runs]
        ends += [end for _, end in runs]
    lengths = [len(document.input_ids) for document in documents]
    return DocumentBatch(
        input_ids=np.concatenate([document.input_ids for document in documents]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        sample=np.arange(len(documents), dtype=np.int32),
        sample_id=(None,) * len(documents),
        run_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        run_start=np.array(starts, np.int32),
        run_end=np.array(ends, np.int32),
        run_message=np.zeros(len(starts), np.int32),
    )


def write_document_cache(folder, parts, *, fingerprint="d0c5"):
    """A finished cache with one document shard for each list of documents."""
    shards, first_row = [], 0
    for documents in parts:
        shard = write_documents(folder, [batch_of(documents)], split="train")
        shards.append(msgspec.structs.replace(shard, first_row=first_row))
        first_row += len(documents)
    write_manifest(folder, manifest_of(shards, fingerprint=fingerprint))
    return folder


def small_document_cache(num_documents, *, longest=20, seed=0, fingerprint="d0c5"):
    """An open cache of random documents in two shards, and the documents; the same for the same arguments."""
    documents = documents_of(num_documents, longest=longest, seed=seed)
    return Cache.open(_folder(num_documents, longest, seed, fingerprint)), documents


@cache
def _folder(num_documents, longest, seed, fingerprint):
    documents = documents_of(num_documents, longest=longest, seed=seed)
    half = num_documents // 2
    parts = [part for part in (documents[:half], documents[half:]) if part]
    return write_document_cache(
        temporary_folder() / f"{num_documents}-{longest}-{seed}-{fingerprint}",
        parts,
        fingerprint=fingerprint,
    )


__all__ = ["PAD_ID", "documents_of", "small_document_cache", "write_document_cache"]
