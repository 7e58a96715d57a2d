"""Checks of what spans the files of a cache: manifest, rejected rows, selection, and blocks against documents.

The identity that a manifest claims is recomputed from the files that the cache keeps. A recipe fingerprint depends on
the rules of the packer version that made it, so it is recomputed only for caches of this version; for others the
digests of the shards must suffice.

Each block is gathered again from the pieces that it names and compared by its row digest, which covers every column;
every token of the documents must occur exactly once. Documents are found by doc_id. Identical documents share one; it
does not matter which of them a piece comes from.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from packer.audit.verify.shard_checks import MAX_ROWS, check_file, check_kept
from packer.audit.verify.verify_report import Finding, differing, unreadable
from packer.batches import Int32, Int64, PackPlan, UInt64
from packer.errors import CheckError, PackerError
from packer.layout import MASKED, offsets_of
from packer.pipeline.blocks import gathered
from packer.pipeline.identity import Provenance
from packer.pipeline.selecting import decide, read_traits
from packer.pipeline.tokenizer import kept_model
from packer.recipe.groups import Pack
from packer.recipe.recipe import make_recipe
from packer.store.arrow_columns import BlockRows
from packer.store.entries import Totals
from packer.store.files import CacheFiles
from packer.store.manifest import (
    MANIFEST_NAME,
    REJECTED_NAME,
    Manifest,
    check_conservation,
    encode_manifest,
)
from packer.store.row_tables import content_of, read_rejected, read_selection, rejected_path
from packer.store.shards import BlockShards, DocumentShards
from packer.version import __version__


def check_manifest(manifest: Manifest, content: bytes) -> list[Finding]:
    """Check that a manifest is in canonical form and satisfies the conservation laws."""
    findings = []
    if encode_manifest(manifest) != content:
        form = ("form", "canonical JSON as a build writes it", "other bytes that mean the same")
        findings += differing(MANIFEST_NAME, form)
    for check in (check_conservation, _check_numbering):
        try:
            check(manifest)
        except CheckError as error:
            findings += differing(MANIFEST_NAME, ("laws", "every count accounted for", error.message))
    return findings


def _check_numbering(manifest: Manifest) -> None:
    """Check that block shards are consecutive in each split, and partitions in each input."""
    expected: dict[tuple[str, str | int | None], int] = {}
    for shard in manifest.shards:
        is_document = shard.kind == "documents"
        group = (shard.kind, shard.source if is_document else shard.split)
        if shard.first_row != expected.get(group, 0):
            raise CheckError(f"{shard.path} begins with row {shard.first_row}, expected {expected.get(group, 0)}")
        expected[group] = shard.first_row + (shard.num_input_rows if is_document else shard.num_rows)


def check_fingerprint(found: str | None, expect: str | None) -> list[Finding]:
    """Check that a cache has the expected fingerprint, if one is given."""
    if expect is None or found == expect.strip().lower():
        return []
    return differing(MANIFEST_NAME, ("fingerprint", expect, found or "no manifest"))


def check_selection(folder: Path, manifest: Manifest, *, is_intact: bool) -> list[Finding]:
    """Check the row tables of a cache with a selection, and recompute the selection.

    `is_intact`: whether the shards, whose lengths the selection needs, are intact.
    """
    selection = manifest.selection
    assert selection is not None, "the caller asked"
    findings = [each for table in manifest.tables for each in check_kept(folder, table.path, table)]
    if findings or not is_intact:
        return findings
    shards = manifest.document_shards
    try:
        rules = make_recipe(manifest.recipe).row_rules
        stored = read_selection(folder, selection)
        made = decide(folder, rules, manifest.inputs, shards, read_traits(folder, selection.traits, rules))
    except (PackerError, ValueError, IndexError, KeyError) as error:
        return [unreadable(selection.table.path, error)]
    names = [column.name for column in fields(stored)]
    other = [name for name in names if not np.array_equal(getattr(stored, name), getattr(made, name))]
    expected, found = "what the traits and the recipe give", f"other {', '.join(other)}"
    return differing(selection.table.path, ("selected rows", expected, found)) if other else []


def check_rejected(folder: Path, manifest: Manifest) -> tuple[list[Finding], list[int], int]:
    """Check the digest of rejected.jsonl, and its lines against the manifest's totals.

    Return findings, its bytes, and the number of its lines.
    """
    path, totals = REJECTED_NAME, manifest.totals
    num_lines = sum(totals.rejected.values()) + sum(cut.parts for cut in totals.cut.values())
    num_bytes, counts = 0, {name: Counter[str]() for name in ("rows", "parts", "tokens")}
    content = hashlib.sha256()
    try:
        path = rejected_path(folder, manifest)
        num_bytes = CacheFiles(folder).size(path) or 0
        if findings := check_file(folder, path, sha256=manifest.rejected_sha256):
            return findings, [num_bytes], num_lines
        for line in read_rejected(folder, manifest):
            content.update(content_of(line))
            counts["rows" if line.document is None else "parts"][line.code] += 1
            counts["tokens"][line.code] += line.tokens or 0
    except PackerError as error:
        return [unreadable(path, error)], [num_bytes], num_lines
    parts, tokens = ({code: getattr(cut, name) for code, cut in totals.cut.items()} for name in ("parts", "tokens"))
    findings = differing(
        path,
        ("content", manifest.rejected_content, content.hexdigest()),
        ("rejected rows", _counts(totals.rejected), _counts(counts["rows"])),
        ("parts in no block", _counts(parts), _counts(counts["parts"])),
        ("tokens in no block", _counts(tokens), _counts(+counts["tokens"])),
    )
    return findings, [num_bytes], num_lines


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {code}" for code, count in sorted(counts.items())) or "none"


def check_identity(folder: Path, manifest: Manifest) -> list[Finding]:
    """Compare the recipe fingerprint and the model record with values recomputed from the kept files.

    Call it only if the model files are intact.
    """
    if manifest.versions.get("packer") != __version__:
        return []
    try:
        recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
        model = kept_model(folder, manifest, recipe)
    except PackerError as error:
        return differing(MANIFEST_NAME, ("recipe", "a recipe and a tokenizer that load", error.message))
    numbers = ("vocab_size", "pad_id", "eos_id", "stop_ids")
    return differing(
        MANIFEST_NAME,
        *((f"model.{name}", getattr(manifest.model, name), getattr(model, name)) for name in numbers),
        ("recipe_fingerprint", manifest.recipe_fingerprint, Provenance.of(manifest, recipe).recipe_fingerprint),
    )


BlocksAudit: TypeAlias = tuple[list[Finding], int]
"""Findings of the blocks of one split, and its trained tokens that are masked as they begin a piece."""


def check_blocks(manifest: Manifest, split: str, documents: DocumentShards, pack: Pack) -> BlocksAudit:
    """Compare a split's blocks with its documents.

    Call it only if the shards' digests and rows are intact: it checks what digests cannot show.
    """
    try:
        comparison = _Comparison(manifest, split, documents, pack)
        findings = list(comparison.compare())
        parts = [
            (line.document, line.start or 0, (line.start or 0) + (line.tokens or 0))
            for line in read_rejected(documents.folder, manifest)
            if line.document is not None and line.split == split
        ]
    except PackerError as error:
        return differing(f"blocks of {split}", ("pieces", "readable", error.message)), 0
    ranges = np.concatenate([*comparison.packed, np.array(parts, np.int64).reshape(-1, 3)])
    untiled = count_untiled(comparison.doc_id, comparison.length, ranges)
    if untiled:
        expected, found = "each token once, in a block or in rejected.jsonl", "with a token missing, or there twice"
        findings += differing(f"blocks of {split}", ("documents", expected, f"{untiled:,} {found}"))
    return findings, comparison.piece_starts


def check_counts(totals: Totals, audits: Sequence[BlocksAudit]) -> list[Finding]:
    """Compare the manifest's totals with the counts over all splits; the conservation laws cover the other totals."""
    return differing(
        MANIFEST_NAME,
        ("totals.piece_starts", sum(piece_starts for _, piece_starts in audits), totals.piece_starts),
    )


class _Comparison:
    """Gathers the blocks of a split again from its documents, and compares."""

    def __init__(self, manifest: Manifest, split: str, documents: DocumentShards, pack: Pack) -> None:
        blocks = tuple(shard for shard in manifest.shards if (shard.kind, shard.split) == ("blocks", split))
        self._pack, self._pad_id = pack, manifest.model.pad_id
        self._blocks = BlockShards(documents.folder, blocks)
        self._documents = documents
        self._columns = self._documents.columns()
        self._pixels = None if manifest.media is None else documents.pixels()
        self.doc_id, self.length = self._columns.doc_id, self._columns.length
        self._order = np.argsort(self.doc_id, kind="stable")
        self.packed: list[Int64] = [np.zeros((0, 3), np.int64)]
        """doc_id, start and end of the pieces.  # int64[P, 3] each"""

        self.piece_starts = 0

    def compare(self) -> Iterator[Finding]:
        """Yield a finding for each of the first `MAX_ROWS` blocks that differ."""
        num_wrong = before = 0
        for rows, _ in self._blocks.chunks():
            for row, found in self._differences(rows, rows.digests(), 0, len(rows.length)):
                num_wrong += 1
                if num_wrong <= MAX_ROWS:
                    path, place = self._blocks.place(before + row)
                    yield Finding(path=path, row=place, what="block", expected="what its pieces make", found=found)
            before += len(rows.length)

    def _differences(self, rows: BlockRows, digests: UInt64, first: int, last: int) -> Iterator[tuple[int, str]]:
        """Yield those of a range of blocks that differ from what their pieces yield, and how they differ."""
        try:
            made = self._gathered(rows, first, last)
        except (ValueError, IndexError) as error:
            if last - first == 1:
                yield first, str(error)
            else:  # one block at a time, to name the blocks with invalid pieces
                for row in range(first, last):
                    yield from self._differences(rows, digests, row, row + 1)
            return
        for row in np.flatnonzero(made.digests() != digests[first:last]).tolist():
            yield first + row, _other_columns(made, row, rows, first + row)

    def _gathered(self, rows: BlockRows, first: int, last: int) -> BlockRows:
        """Gather a range of blocks from their pieces; ValueError or IndexError if they are not pieces of documents."""
        columns = (rows.doc_ids, rows.doc_starts, rows.doc_lengths)
        pieces = [[column[row].astype(np.int64) for row in range(first, last)] for column in columns]
        counts = [len(each) for each in pieces[0]]
        if 0 in counts:
            raise ValueError("no pieces")
        doc_id, start, length = map(np.concatenate, pieces)
        places = np.searchsorted(self.doc_id[self._order], doc_id)
        document = self._order[np.minimum(places, len(self._order) - 1)]
        missing = np.flatnonzero(self.doc_id[document] != doc_id)
        if len(missing):
            raise ValueError(f"document {doc_id[missing[0]]}, which is in no document shard")
        if (start + length > self.length[document]).any():
            raise ValueError("a piece that is not inside its document")
        if self._pixels is not None and (length < self.length[document])[self._pixels[document] > 0].any():
            raise ValueError("a piece of a document with images, which are not cut")
        slots = -(-length // self._pack.align) * self._pack.align
        plan = PackPlan(
            document=document,
            start=start,
            length=length.astype(np.int32),
            slots=slots.astype(np.int32),
            block_offsets=offsets_of(counts),
        )
        made = gathered(plan, self._columns, self._pack, pad_id=self._pad_id)
        self.packed.append(np.stack([doc_id, start, start + length], axis=1))
        self.piece_starts += self._count_trained(document, start)
        return BlockRows.of(made, weighted=rows.loss_weights is not None)

    def _count_trained(self, document: Int64, start: Int64) -> int:
        """Count how many of some tokens are trained; each is given by its document and position."""
        chunk, place = self._columns.chunk[document], self._columns.start[document] + start
        labels = self._columns.labels
        return sum(int((labels[each][place[chunk == each]] != MASKED).sum()) for each in np.unique(chunk).tolist())


def _other_columns(made: BlockRows, row: int, stored: BlockRows, stored_row: int) -> str:
    """Names of the columns in which two blocks differ."""

    def value(rows: BlockRows, name: str, row: int) -> Any:
        column = getattr(rows, name)
        return None if column is None else column[row]

    names = [column.name for column in fields(made)]
    other = [name for name in names if not np.array_equal(value(made, name, row), value(stored, name, stored_row))]
    return f"other {', '.join(other)}"


def count_untiled(doc_id: Int64, length: Int32, ranges: Int64) -> int:
    """Count the documents that ranges (doc_id, start, end) do not cover exactly once; of m identical ones, m times.

    Exactly m ranges must begin at 0, and m end at the document's length; at any other position, as many must begin as
    end. Then m ranges cover each token from the first to the last.

    Worked example: two documents of 5 tokens share a doc_id; the ranges are [0, 5), [0, 3), [3, 5). Two begin at 0 and
    two end at 5; at 3 one begins and one ends, so both are covered. With [0, 3), [4, 5) one begins at 4 where none
    ends.
    """
    # Add to each document an end before its first token and a beginning after its last: then all places must balance.
    is_range = (ranges[:, 1] >= 0) & (ranges[:, 1] < ranges[:, 2])
    wrong, ranges = ranges[~is_range, 0], ranges[is_range]
    begin_ids, begins = np.concatenate([ranges[:, 0], doc_id]), np.concatenate([ranges[:, 1], length.astype(np.int64)])
    end_ids, ends = np.concatenate([ranges[:, 0], doc_id]), np.concatenate([ranges[:, 2], np.zeros_like(doc_id)])
    names, which = np.unique(np.concatenate([begin_ids, end_ids]), return_inverse=True)
    place = np.concatenate([begins, ends])
    # One number for each (document, place).
    width = int(place.max(initial=0)) + 1
    places, kind = np.unique(which * width + place, return_inverse=True)
    num_begins = np.bincount(kind[: len(begins)], minlength=len(places))
    num_ends = np.bincount(kind[len(begins) :], minlength=len(places))
    unbalanced = names[np.unique(places[num_begins != num_ends] // width)]
    return len(np.union1d(unbalanced, wrong))
