"""Checks of single files of a cache: digests, and that manifest and selection can be derived from the other files.

The identity that a manifest claims is recomputed from the files that the cache keeps. A recipe fingerprint depends on
the rules of the packer version that made it, so it is recomputed only for caches of this version; for others the
digests of the shards must suffice.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np

from packer.audit.verify.verify_report import Finding, differing, unreadable
from packer.errors import CheckError, PackerError
from packer.pipeline.identity import Provenance
from packer.pipeline.selecting import decide, read_traits
from packer.pipeline.tokenizer import kept_model
from packer.recipe.recipe import make_recipe
from packer.store.cache import check_conservation
from packer.store.files import CacheFiles
from packer.store.manifest import (
    MANIFEST_NAME,
    REJECTED_NAME,
    Manifest,
    ModelFile,
    StoredTable,
    encode_manifest,
)
from packer.store.row_tables import content_of, read_rejected, read_selection, rejected_path
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


def check_size(folder: Path, path: str, num_bytes: int) -> list[Finding]:
    """Check that a file exists and has its size."""
    try:
        size = CacheFiles(folder).size(path)
        found = "no file" if size is None else f"{size:,} bytes"
    except PackerError as error:
        found = error.message
    return differing(path, ("size", f"{num_bytes:,} bytes", found))


def check_file(folder: Path, path: str, *, sha256: str) -> list[Finding]:
    """Check the sha256 of a file."""
    try:
        return differing(path, ("sha256", sha256, CacheFiles(folder).sha256(path)))
    except PackerError as error:
        return [unreadable(path, error)]


def check_kept(folder: Path, path: str, file: ModelFile | StoredTable) -> list[Finding]:
    """Check the size of a file and its sha256."""
    return check_size(folder, path, file.num_bytes) or check_file(folder, path, sha256=file.sha256)


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
