"""Blocks against the documents they were packed from: the same tokens, every document once.

Pieces are found by doc_id. Identical documents have the same one; which of them a piece is does not matter.
"""

from pathlib import Path
from typing import cast

import numpy as np

from packer.audit.findings import Finding
from packer.audit.shards import MAX_ROWS, open_chunks
from packer.batches import Int32, Int64
from packer.errors import PackerError
from packer.layout import MASKED
from packer.store.chunks import Chunks
from packer.store.columns import BlockRows, DocumentRows
from packer.store.manifest import Manifest, Shard


def check_pieces(folder: Path, manifest: Manifest, split: str) -> list[Finding]:
    """Compare a split's blocks with its documents.

    Call it only for shards whose digests and rows were found to be right: this is what digests cannot tell.
    """
    own = [shard for shard in manifest.shards if shard.split == split]
    documents = tuple(shard for shard in own if shard.kind == "documents")
    blocks = tuple(shard for shard in own if shard.kind == "blocks")
    pack = manifest.recipe["pack"]
    try:
        comparison = _Comparison(folder, documents)
        findings, packed = comparison.compare(cast("Chunks[BlockRows]", open_chunks(folder, blocks, "blocks")))
    except PackerError as error:
        return [Finding(path=f"blocks of {split}", row=None, what="pieces", expected="readable", found=str(error))]
    fits = (comparison.length >= pack["min_length"]) & (comparison.length <= pack["block_len"])
    missing, surplus = _difference(comparison.doc_id[fits], packed)
    for what, count in (("documents in no block", missing), ("documents in blocks twice", surplus)):
        if count:
            findings.append(
                Finding(path=f"blocks of {split}", row=None, what=what, expected="none", found=f"{count:,}")
            )
    return findings


class _Comparison:
    """The documents of a split by identity."""

    def __init__(self, folder: Path, shards: tuple[Shard, ...]) -> None:
        self._chunks = cast("Chunks[DocumentRows]", open_chunks(folder, shards, "documents"))
        self.doc_id: Int64 = np.concatenate([np.zeros(0, np.int64), *(rows.doc_id for rows, _ in self._chunks)])
        self.length: Int32 = np.concatenate([np.zeros(0, np.int32), *(rows.length for rows, _ in self._chunks)])
        self._order = np.argsort(self.doc_id, kind="stable")
        self._sorted = self.doc_id[self._order]

    def compare(self, blocks: "Chunks[BlockRows]") -> tuple[list[Finding], Int64]:
        """Findings, and the doc_ids of all pieces."""
        findings: list[Finding] = []
        packed: list[Int64] = [np.zeros(0, np.int64)]
        for chunk, (rows, _) in enumerate(blocks):
            for row in range(len(rows.length)):
                ids = rows.doc_ids.row(row)
                packed.append(ids)
                wrong = self._compare_block(rows, row)
                if wrong is not None and len(findings) < MAX_ROWS:
                    place = blocks.row_in_shard(chunk, row)
                    expected = "the tokens of its document"
                    findings.append(
                        Finding(path=blocks.path_of(chunk), row=place, what="piece", expected=expected, found=wrong)
                    )
        return findings, np.concatenate(packed)

    def _compare_block(self, rows: BlockRows, row: int) -> str | None:
        """What is wrong with the first piece that differs."""
        lengths = rows.seq_lengths.row(row).tolist()
        at = 0
        for doc_id, start, length in zip(
            rows.doc_ids.row(row).tolist(), rows.doc_starts.row(row).tolist(), lengths, strict=False
        ):
            place = int(np.searchsorted(self._sorted, doc_id))
            if place == len(self._sorted) or int(self._sorted[place]) != doc_id:
                return f"document {doc_id}, which is in no document shard"
            chunk, document = self._chunks.locate(self._order[place : place + 1])
            source = self._chunks[int(chunk[0])][0]
            ids = source.input_ids.row(int(document[0]))[start : start + length]
            labels = source.labels.row(int(document[0]))[start : start + length].copy()
            labels[:1] = MASKED
            same = np.array_equal(ids, rows.input_ids[row, at : at + length])
            if not same or not np.array_equal(labels, rows.labels[row, at : at + length]):
                return f"other tokens or labels than document {doc_id}"
            at += length
        return None


def _difference(expected: Int64, found: Int64) -> tuple[int, int]:
    """How many of the expected are not found, and how many found are not expected, as multisets."""
    names, codes = np.unique(np.concatenate([expected, found]), return_inverse=True)
    wanted = np.bincount(codes[: len(expected)], minlength=len(names))
    there = np.bincount(codes[len(expected) :], minlength=len(names))
    return int(np.maximum(wanted - there, 0).sum()), int(np.maximum(there - wanted, 0).sum())
