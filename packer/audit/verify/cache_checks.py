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
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from packer.audit.verify.shard_checks import MAX_ROWS, check_file, check_kept
from packer.audit.verify.verify_report import Finding, differing, unreadable
from packer.batches import DocumentColumns, Int32, Int64, PackPlan
from packer.errors import CheckError, PackerError, RecipeError
from packer.layout import MASKED, offsets_of
from packer.pipeline.blocks import gathered
from packer.pipeline.identity import Provenance
from packer.pipeline.selecting import decide, read_traits
from packer.pipeline.tokenizer import kept_model
from packer.recipe.groups import Pack
from packer.recipe.recipe import make_recipe
from packer.store.arrow_columns import BlockRows, flat_values
from packer.store.cache import check_conservation
from packer.store.files import CacheFiles
from packer.store.manifest import MANIFEST_NAME, REJECTED_NAME, Manifest, encode_manifest
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
    findings = [each for table in manifest.tables for each in check_kept(folder, table)]
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


def check_blocks(manifest: Manifest, documents: Mapping[str, DocumentShards]) -> list[Finding]:
    """Compare the blocks of every split with its documents, and the manifest's total of the first tokens of pieces.

    Call it only if the shards' digests and rows are intact: it checks what digests cannot show. The conservation laws
    cover the other totals.
    """
    try:
        pack = make_recipe(manifest.recipe).pack
    except RecipeError:
        return []  # reported as a separate finding
    findings, piece_starts = list[Finding](), 0
    for split, own in documents.items() if pack.mode != "none" else ():
        try:
            found, packed, masked = _compare(manifest, split, own, pack)
            parts = [
                (line.document, line.start or 0, (line.start or 0) + (line.tokens or 0))
                for line in read_rejected(own.folder, manifest)
                if line.document is not None and line.split == split
            ]
        except PackerError as error:
            findings += differing(f"blocks of {split}", ("pieces", "readable", error.message))
            continue
        findings, piece_starts = findings + found, piece_starts + masked
        ranges = np.concatenate([packed, np.array(parts, np.int64).reshape(-1, 3)])
        if untiled := count_untiled(own.doc_ids(), own.lengths(), ranges):
            expected, told = "each token once, in a block or in rejected.jsonl", "with a token missing, or there twice"
            findings += differing(f"blocks of {split}", ("documents", expected, f"{untiled:,} {told}"))
    if findings or pack.mode == "none":
        return findings
    return differing(MANIFEST_NAME, ("totals.piece_starts", piece_starts, manifest.totals.piece_starts))


def _compare(manifest: Manifest, split: str, documents: DocumentShards, pack: Pack) -> tuple[list[Finding], Int64, int]:
    """Gather the blocks of a split again from its documents, and compare.

    Returns findings about the first `MAX_ROWS` blocks that differ, then doc_id, start and end of the pieces of blocks
    that could be gathered (int64[P, 3]), and how many trained tokens are masked as they begin one of these pieces.
    """
    blocks = BlockShards(documents.folder, [s for s in manifest.shards if (s.kind, s.split) == ("blocks", split)])
    columns, findings, piece_starts = documents.columns(), list[Finding](), 0
    whole = np.append(columns.length, 0)  # 0 tokens and pixels for a document that is not there, whose index is -1
    pixels = np.zeros_like(whole) if manifest.media is None else np.append(documents.pixels(), 0)
    packed = [np.zeros((0, 3), np.int64)]
    for chunk, (rows, _) in enumerate(blocks.chunks()):
        doc_id, start, length = _pieces(rows)
        document, counts = documents.find_all(doc_id), rows.doc_ids.lengths()
        broken = _broken(rows, document, whole[document], pixels[document], pack)
        good = np.setdiff1d(np.arange(len(counts)), [*broken])
        keep = np.isin(np.repeat(np.arange(len(counts)), counts), good)
        plan = PackPlan(
            document=document[keep],
            start=start[keep],
            length=length[keep].astype(np.int32),
            slots=_slots(length[keep], pack).astype(np.int32),
            block_offsets=offsets_of(counts[good]),
        )
        gathers = gathered(plan, columns, pack, pad_id=manifest.model.pad_id)
        made = BlockRows.of(gathers, weighted=rows.loss_weights is not None)
        for number in np.flatnonzero(made.digests() != rows.digests(good)).tolist():
            broken[int(good[number])] = _other_columns(made, number, rows, int(good[number]))
        packed.append(np.column_stack([doc_id, start, start + length])[keep])
        piece_starts += _count_trained(columns, plan)
        for row, found in sorted(broken.items())[: MAX_ROWS - len(findings)]:
            path, place = blocks.path_of(chunk), blocks.row_in_shard(chunk, row)
            findings.append(Finding(path=path, row=place, what="block", expected="what its pieces make", found=found))
    return findings, np.concatenate(packed), piece_starts


def _pieces(rows: BlockRows) -> tuple[Int64, ...]:
    """Return doc_id, start and length of the pieces of some blocks.  # int64[P] each"""
    return tuple(flat_values(each).astype(np.int64) for each in (rows.doc_ids, rows.doc_starts, rows.doc_lengths))


def _slots(length: Int64, pack: Pack) -> Int64:
    return -(-length // pack.align) * pack.align


def _broken(rows: BlockRows, document: Int64, whole: Int32, pixels: Int64, pack: Pack) -> dict[int, str]:
    """Return the blocks that cannot be gathered, and why, by the index and the size of each piece's document."""
    (doc_id, start, length), counts = _pieces(rows), rows.doc_ids.lengths()
    of_block = np.repeat(np.arange(len(counts)), counts)
    broken = dict.fromkeys(np.flatnonzero(counts == 0).tolist(), "no pieces")
    for told, is_broken in (
        ("document {}, which is in no document shard", document < 0),
        ("a piece of document {} that is not inside it", start + length > whole),
        ("a piece of document {} with images, which are not cut", (length < whole) & (pixels > 0)),
        (
            "pieces that take more slots than it has",
            np.bincount(of_block, _slots(length, pack))[of_block] > pack.block_len,
        ),
    ):
        for piece in np.flatnonzero(is_broken).tolist():
            broken.setdefault(int(of_block[piece]), told.format(doc_id[piece]))
    return broken


def _count_trained(columns: DocumentColumns, plan: PackPlan) -> int:
    """Count the pieces whose first token is trained in their document."""
    chunk, place = columns.chunk[plan.document], columns.start[plan.document] + plan.start
    return sum(int((columns.labels[each][place[chunk == each]] != MASKED).sum()) for each in np.unique(chunk).tolist())


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
