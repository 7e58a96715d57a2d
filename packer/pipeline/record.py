"""Records of a build: its manifest, its totals, and the lines of rejected.jsonl."""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from packer.curate.trait_rules import traits_version
from packer.pack import REASONS
from packer.pipeline.blocks import PackedBlocks, PackedGroup, cuts_of
from packer.pipeline.identity import CODE_VERSION, TRAITS_VERSION, Provenance
from packer.pipeline.partition import PartitionResult
from packer.pipeline.selecting import Selected, values_of
from packer.recipe.recipe import to_json
from packer.recipe.row_rules import RowRules
from packer.rejections import CODES
from packer.store.entries import Totals
from packer.store.fingerprint import content_fingerprint
from packer.store.manifest import FORMAT_VERSION, Input, Manifest, Shard
from packer.store.rejected import Rejected
from packer.version import __version__, code_digest, library_version

_VERSIONED = ("jinja2", "numpy", "pyarrow", "tokenizers")
"""Packages whose versions can influence the bytes of a cache."""


def make_manifest(
    provenance: Provenance,
    folder: Path,
    results: Sequence[PartitionResult],
    packed: PackedBlocks,
    *,
    selected: Selected,
    rejected_digests: tuple[str, str],
) -> Manifest:
    """Return the manifest of these shards; write nothing."""
    shards = (*(result.shard for result in results), *packed.shards)
    return Manifest(
        format="packer-cache",
        format_version=FORMAT_VERSION,
        label_shift="none",
        recipe=to_json(provenance.recipe),
        engine=provenance.engine,
        engine_version=provenance.engine_version,
        rules_version=provenance.rules_version,
        model=provenance.model,
        inputs=provenance.inputs,
        shards=shards,
        rejected_sha256=rejected_digests[0],
        rejected_content=rejected_digests[1],
        totals=_totals(results, packed, selected, provenance.recipe.pack.block_len),
        recipe_fingerprint=provenance.recipe_fingerprint,
        content_fingerprint=content_fingerprint(folder, shards, selected.documents),
        versions=_versions(None if selected.record is None else provenance.recipe.row_rules),
        selection=selected.record,
        media=tuple(result.media for result in results if result.media is not None) or None,
    )


def _versions(rules: RowRules | None) -> dict[str, str]:
    """Return the versions of what writes the bytes; with a selection, also of packer's own source and of the traits.

    Caches without a selection never recorded that digest.
    """
    versions = {name: str(library_version(name)) for name in _VERSIONED} | {"packer": __version__}
    if rules is None:
        return versions
    return versions | {CODE_VERSION: code_digest(), TRAITS_VERSION: traits_version(rules)}


def rejected_lines(
    inputs: Sequence[Input],
    results: Sequence[PartitionResult],
    groups: Sequence[PackedGroup],
    selected: Selected,
) -> Iterator[Rejected]:
    """Yield rejected rows, documents that are in no split, and parts of documents that are in no block.

    They come in the order of inputs and rows. Most documents may be in no split, so their lines are generated lazily.
    """
    lines: list[tuple[int, int, Rejected]] = []
    for result in results:
        shard = result.shard
        assert shard.source is not None
        path = inputs[shard.source].path
        lines += [
            (
                shard.source,
                shard.first_row + row.row,
                Rejected(source=path, row=shard.first_row + row.row, line=row.line, code=row.code, reason=row.reason),
            )
            for row in result.rejected
        ]
    for group in groups:
        parts = group.left_out
        columns = (parts.source, parts.row, parts.doc_id, parts.doc_length, parts.start, parts.length, parts.reason)
        for source, row, doc_id, length, start, tokens, code in values_of(*columns):
            line = Rejected(
                source=inputs[source].path,
                row=row,
                code=REASONS[code],
                reason=reason_of_part(REASONS[code], start=start, tokens=tokens, length=length),
                document=doc_id,
                split=group.split,
                start=start,
                tokens=tokens,
            )
            lines.append((source, row, line))
    lines.sort(key=_place)
    left_out_lines = _left_out_lines(inputs, [result.shard for result in results], selected)
    return (line for _, _, line in heapq.merge(lines, left_out_lines, key=_place))


def _place(entry: tuple[int, int, Rejected]) -> tuple[int, int]:
    return entry[:2]


def _left_out_lines(
    inputs: Sequence[Input], shards: Sequence[Shard], selected: Selected
) -> Iterator[tuple[int, int, Rejected]]:
    """Yield the input, row and line of every document that is in no split."""
    left_out = selected.left_out
    if left_out is None:
        return
    documents = left_out.documents
    columns = (*documents.origins(), documents.doc_ids(), documents.stored("length", np.int32))
    reasons = left_out.reasons(inputs, shards)
    for (source, row, doc_id, length), (code, reason) in zip(values_of(*columns), reasons, strict=True):
        path = inputs[source].path
        yield (
            source,
            row,
            Rejected(source=path, row=row, code=code, reason=reason, document=doc_id, start=0, tokens=length),
        )


def reason_of_part(code: str, *, start: int, tokens: int, length: int) -> str:
    """Describe in a sentence why a part of a document of `length` tokens is in no block."""
    if tokens == length:
        return f"{CODES[code]} ({length} tokens)"
    return f"{CODES[code]} (tokens {start} to {start + tokens - 1} of {length})"


def _totals(results: Sequence[PartitionResult], packed: PackedBlocks, selected: Selected, block_len: int) -> Totals:
    shards = [result.shard for result in results]
    rejected = Counter(row.code for result in results for row in result.rejected)
    rows = sum(shard.num_input_rows for shard in shards)
    tokens, trained = sum(shard.num_tokens for shard in shards), sum(shard.num_trained for shard in shards)
    num_blocks, groups = sum(shard.num_rows for shard in packed.shards), packed.groups
    return Totals(
        rows=rows,
        kept=sum(shard.num_kept for shard in shards),
        rejected=dict(sorted(rejected.items())),
        documents=sum(shard.num_rows for shard in shards),
        tokens=tokens,
        trained=trained,
        masked=tokens - trained,
        merged=sum(shard.num_merged for shard in shards),
        skipped=sum(shard.num_skipped for shard in shards),
        packed=sum(group.num_packed for group in groups),
        cut=cuts_of(groups) | ({} if selected.left_out is None else selected.left_out.cuts()),
        piece_starts=sum(group.num_piece_start for group in groups),
        blocks=num_blocks,
        slots=num_blocks * block_len,
        separators=sum(group.num_separators for group in groups),
        padding=sum(group.num_padding for group in groups),
    )
