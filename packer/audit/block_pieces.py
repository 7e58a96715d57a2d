"""Blocks against the documents they were packed from: every token of every document once, in a block or in the ledger.

Pieces are found by doc_id. Identical documents have the same one; which of them a piece is does not matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from packer.audit.shard_checks import MAX_ROWS, open_chunks
from packer.audit.verify_report import Finding
from packer.batches import Int32, Int64
from packer.errors import PackerError
from packer.layout import MASKED
from packer.pipeline.blocks import BlockForm
from packer.store.arrow_columns import BlockRows, DocumentRows
from packer.store.manifest import MANIFEST_NAME, Manifest, Shard, Totals
from packer.store.numbered_rows import Chunks
from packer.store.rejected import read_rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecesAudit:
    """What was found in the blocks of one split, and what was counted there."""

    findings: tuple[Finding, ...]
    separators: int = 0
    padding: int = 0
    piece_starts: int = 0
    """Trained tokens that are masked as the first of a piece."""

    cut_trained: int = 0
    """Trained tokens of the parts in the ledger."""


def check_pieces(folder: Path, manifest: Manifest, split: str, form: BlockForm) -> PiecesAudit:
    """Compare a split's blocks with its documents.

    Call it only for shards whose digests and rows were found to be right: this is what digests cannot tell.
    """
    own = [shard for shard in manifest.shards if shard.split == split]
    documents = tuple(shard for shard in own if shard.kind == "documents")
    blocks = tuple(shard for shard in own if shard.kind == "blocks")
    try:
        comparison = _Comparison(folder, documents, form)
        packed = comparison.compare(cast("Chunks[BlockRows]", open_chunks(folder, blocks, "blocks")))
        ledger = _ledger(folder, manifest, split)
        untiled = count_untiled(comparison.doc_id, comparison.length, np.concatenate([packed, ledger]))
        cut_trained = 0 if untiled else comparison.trained_in(ledger)
    except PackerError as error:
        wrong = Finding(path=f"blocks of {split}", row=None, what="pieces", expected="readable", found=str(error))
        return PiecesAudit(findings=(wrong,))
    findings = comparison.findings
    if untiled:
        findings.append(
            Finding(
                path=f"blocks of {split}",
                row=None,
                what="documents",
                expected="each token once, in a block or in rejected.jsonl",
                found=f"{untiled:,} with a token missing, or there twice",
            )
        )
    return PiecesAudit(
        findings=tuple(findings),
        separators=comparison.separators,
        padding=comparison.padding,
        piece_starts=comparison.piece_starts,
        cut_trained=cut_trained,
    )


def check_counts(totals: Totals, audits: Sequence[PiecesAudit]) -> list[Finding]:
    """The manifest's totals against what was counted in all splits."""
    numbers = [
        ("separators", totals.separators, sum(each.separators for each in audits)),
        ("padding", totals.padding, sum(each.padding for each in audits)),
        ("piece_starts", totals.piece_starts, sum(each.piece_starts for each in audits)),
        ("cut trained", sum(cut.trained for cut in totals.cut.values()), sum(each.cut_trained for each in audits)),
    ]
    return [
        Finding(path=MANIFEST_NAME, row=None, what=f"totals.{what}", expected=f"{found:,}", found=f"{stated:,}")
        for what, stated, found in numbers
        if stated != found
    ]


class _Comparison:
    """The documents of a split by identity, and what is found and counted in its blocks."""

    def __init__(self, folder: Path, shards: tuple[Shard, ...], form: BlockForm) -> None:
        self._form = form
        self.findings: list[Finding] = []
        self.separators = self.padding = self.piece_starts = 0
        self._chunks = cast("Chunks[DocumentRows]", open_chunks(folder, shards, "documents"))
        self.doc_id: Int64 = np.concatenate([np.zeros(0, np.int64), *(rows.doc_id for rows, _ in self._chunks)])
        self.length: Int32 = np.concatenate([np.zeros(0, np.int32), *(rows.length for rows, _ in self._chunks)])
        self._order = np.argsort(self.doc_id, kind="stable")
        self._sorted = self.doc_id[self._order]

    def compare(self, blocks: "Chunks[BlockRows]") -> Int64:
        """Document, start and end of all pieces.  # int64[P, 3]"""
        findings = self.findings
        packed: list[Int64] = [np.zeros((0, 3), np.int64)]
        for chunk, (rows, _) in enumerate(blocks):
            self._count_empty(rows)
            for row in range(len(rows.length)):
                ids, start = rows.doc_ids.row(row), rows.doc_starts.row(row).astype(np.int64)
                packed.append(np.stack([ids, start, start + rows.doc_lengths.row(row)], axis=1))
                wrong = self._compare_block(rows, row)
                if wrong is not None and len(findings) < MAX_ROWS:
                    place = blocks.row_in_shard(chunk, row)
                    expected = "the tokens of its document"
                    findings.append(
                        Finding(path=blocks.path_of(chunk), row=place, what="piece", expected=expected, found=wrong)
                    )
        return np.concatenate(packed)

    def trained_in(self, ranges: Int64) -> int:
        """Trained tokens of ranges of documents.  # int64[Q, 3]"""
        total = 0
        for doc_id, start, end in ranges.tolist():
            source, number = self._find(doc_id)
            total += int((source.labels.row(number)[start:end] != MASKED).sum())
        return total

    def _count_empty(self, rows: BlockRows) -> None:
        """Slots that hold no token."""
        empty = rows.input_ids.size - int(rows.length.sum(dtype=np.int64))
        separators = 0
        if self._form.separator_id is not None:  # all pieces and separators are the first run
            filled = rows.seq_lengths.values[rows.seq_lengths.offsets[:-1]]
            separators = int((filled - rows.length).sum(dtype=np.int64))
        self.separators += separators
        self.padding += empty - separators

    def _find(self, doc_id: int) -> tuple[DocumentRows, int]:
        """The rows a document is in, and which of them it is; KeyError where there is none."""
        found = int(np.searchsorted(self._sorted, doc_id))
        if found == len(self._sorted) or int(self._sorted[found]) != doc_id:
            raise KeyError(doc_id)
        chunk, document = self._chunks.locate(self._order[found : found + 1])
        return self._chunks[int(chunk[0])][0], int(document[0])

    def _compare_block(self, rows: BlockRows, row: int) -> str | None:
        """What is wrong with the first piece that differs."""
        columns = (rows.doc_ids, rows.doc_starts, rows.doc_lengths, rows.doc_places)
        for doc_id, start, length, place in zip(*(column.row(row).tolist() for column in columns), strict=True):
            try:
                source, number = self._find(doc_id)
            except KeyError:
                return f"document {doc_id}, which is in no document shard"
            piece, slots = slice(start, start + length), slice(place, place + length)
            labels = source.labels.row(number)[piece].copy()
            self.piece_starts += int((labels[:1] != MASKED).sum())
            labels[:1] = MASKED
            same = np.array_equal(source.input_ids.row(number)[piece], rows.input_ids[row, slots])
            if not same or not np.array_equal(labels, rows.labels[row, slots]):
                return f"other tokens or labels than document {doc_id}"
            if rows.loss_weights is None:
                continue
            weights = (labels != MASKED).astype(np.float32)
            if source.loss_weights is not None:
                weights *= source.loss_weights.row(number)[piece]
            if not np.array_equal(weights, rows.loss_weights[row, slots]):
                return f"other loss weights than document {doc_id}"
        return None


def _ledger(folder: Path, manifest: Manifest, split: str) -> Int64:
    """Document, start and end of all parts that are in no block.  # int64[Q, 3]"""
    parts = [
        (line.document, line.start or 0, (line.start or 0) + (line.tokens or 0))
        for line in read_rejected(folder, manifest)
        if line.document is not None and line.split == split
    ]
    return np.array(parts, np.int64).reshape(-1, 3)


def count_untiled(doc_id: Int64, length: Int32, ranges: Int64) -> int:
    """Documents that ranges do not cover exactly once; of m identical ones, exactly m times.

    As many ranges must begin at 0 as there are such documents, and as many end at their length; anywhere else as many
    must begin as end. Then the number of ranges over a token is m from the first to the last.

    Args:
        doc_id: int64[N]
        length: int32[N]
        ranges: document, start and end of each.  # int64[Q, 3]

    Worked example: two documents of 5 tokens and one id; ranges [0, 5), [0, 3), [3, 5). Two begin at 0 and two end at
    5; at 3 one begins and one ends. All is well. With [0, 3), [4, 5) one begins at 4 where none ends.
    """
    # A document ends where nothing came before its first token, and begins again behind its last: so all must balance.
    is_range = (ranges[:, 1] >= 0) & (ranges[:, 1] < ranges[:, 2])
    wrong, ranges = ranges[~is_range, 0], ranges[is_range]
    begin_ids, begins = np.concatenate([ranges[:, 0], doc_id]), np.concatenate([ranges[:, 1], length.astype(np.int64)])
    end_ids, ends = np.concatenate([ranges[:, 0], doc_id]), np.concatenate([ranges[:, 2], np.zeros_like(doc_id)])
    names, which = np.unique(np.concatenate([begin_ids, end_ids]), return_inverse=True)
    place = np.concatenate([begins, ends])
    # One number for a document and a place in it.
    width = int(place.max(initial=0)) + 1
    places, kind = np.unique(which * width + place, return_inverse=True)
    num_begins = np.bincount(kind[: len(begins)], minlength=len(places))
    num_ends = np.bincount(kind[len(begins) :], minlength=len(places))
    unbalanced = names[np.unique(places[num_begins != num_ends] // width)]
    return len(np.union1d(unbalanced, wrong))
