"""Checks of what spans the files of a cache: manifest, rejected rows, selection, and blocks against documents.

The identity that a manifest claims is recomputed from the files that the cache keeps. A recipe fingerprint depends on
the rules of the packer version that made it, so it is recomputed only for caches of this version; for others the
digests of the shards must suffice.

The documents of each split are packed again, and blocks compared by their row digests, which cover every column.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from packer.audit.verify.shard_checks import MAX_ROWS, check_file, check_kept
from packer.audit.verify.verify_report import Finding, differing, unreadable
from packer.errors import CheckError, PackerError, RecipeError
from packer.pack.pieces import REASONS
from packer.pipeline.blocks import batches_of, pack_split
from packer.pipeline.identity import Provenance, kept_model
from packer.pipeline.selecting import decide, read_traits
from packer.recipe.recipe import Recipe, make_recipe
from packer.store.arrow_columns import BlockRows
from packer.store.files import CacheFiles
from packer.store.manifest import MANIFEST_NAME, REJECTED_NAME, Manifest, check_conservation, encode_manifest
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
    """Pack the documents of every split again, and compare with its blocks and with the parts that are in none.

    Call it only if the shards' digests and rows are intact: it checks what digests cannot show.
    """
    try:
        recipe = make_recipe(manifest.recipe)
    except RecipeError:
        return []  # reported as a separate finding
    findings, piece_starts = list[Finding](), 0
    for split, own in documents.items() if recipe.pack.mode != "none" else ():
        try:
            found, masked = _pack_again(manifest, recipe, split, own)
        except PackerError as error:
            found, masked = differing(f"blocks of {split}", ("pieces", "readable", error.message)), 0
        findings, piece_starts = findings + found, piece_starts + masked
    # The conservation laws cover the other totals.
    return findings or differing(MANIFEST_NAME, ("totals.piece_starts", piece_starts, manifest.totals.piece_starts))


def _pack_again(manifest: Manifest, recipe: Recipe, split: str, documents: DocumentShards) -> tuple[list[Finding], int]:
    """Pack a split again and compare; return findings, and how many trained tokens are masked as they begin a piece."""
    blocks = BlockShards(documents.folder, [s for s in manifest.shards if (s.kind, s.split) == ("blocks", split)])
    stored = np.concatenate([np.zeros(0, np.uint64), *(digests for _, digests in blocks.chunks())])
    findings, number, piece_starts, parts = list[Finding](), 0, 0, list[tuple[Any, ...]]()
    pad_id = manifest.model.pad_id
    # Groups within the same shards have the same documents.
    columns_of = lru_cache(1)(DocumentShards.columns)
    for group, tasks in pack_split(split, documents, recipe.pack, shard_bytes=recipe.shard_bytes):
        piece_starts += group.num_piece_start
        columns = (each.tolist() for each in (group.left_out.doc_id, group.left_out.start, group.left_out.length))
        parts += zip(*columns, (REASONS[reason] for reason in group.left_out.reason.tolist()), strict=True)
        batches = (batches_of(each.plan, columns_of(each.documents), recipe.pack, pad_id) for each in tasks)
        for batch in chain.from_iterable(batches):
            made = BlockRows.of(batch)
            digests = made.digests()
            own = stored[number : number + len(digests)]
            for row in np.flatnonzero(digests[: len(own)] != own)[: MAX_ROWS - len(findings)].tolist():
                findings.append(_other_block(blocks, number + row, made, row))
            number += len(digests)
    named = Counter(
        (line.document, line.start, line.tokens, line.code)
        for line in read_rejected(documents.folder, manifest)
        if line.document is not None and line.split == split
    )
    others = max((named - Counter(parts)).total(), (Counter(parts) - named).total())
    expected = "those that packing leaves out"
    found = f"{others:,} others in rejected.jsonl" if others else expected
    findings += differing(f"blocks of {split}", ("blocks", number, len(stored)), ("parts in no block", expected, found))
    return findings, piece_starts


def _other_block(blocks: BlockShards, index: int, made: BlockRows, row: int) -> Finding:
    """Return the finding for a block that is another than the one that was made again, row `row` of `made`."""
    (path, place), found = blocks.place(index), blocks.locate(np.array([index]))
    others = _other_columns(made, row, found.opened[0], found.rows[0])
    return Finding(path=path, row=place, what="block", expected="what its documents make", found=others)


def _other_columns(made: BlockRows, row: int, stored: BlockRows, stored_row: int) -> str:
    """Names of the columns in which two blocks differ."""

    def value(rows: BlockRows, name: str, row: int) -> Any:
        column = getattr(rows, name)
        return None if column is None else column[row]

    names = [column.name for column in fields(made)]
    other = [name for name in names if not np.array_equal(value(made, name, row), value(stored, name, stored_row))]
    return f"other {', '.join(other)}"
