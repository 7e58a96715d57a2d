"""The commit: stage rejected.jsonl, write the manifest, remove what it does not name, publish rejected.jsonl."""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from packer.curate import traits_version
from packer.errors import BusyError, CheckError, InputError, PackerError, StorageError
from packer.layout import values_of
from packer.names import shown
from packer.pack.pieces import REASONS
from packer.pipeline.blocks import PackedBlocks, cuts_of
from packer.pipeline.identity import CODE_VERSION, TRAITS_VERSION, Provenance
from packer.pipeline.messages.left_out import refuse_rejected_rows
from packer.pipeline.partition import PartitionResult
from packer.pipeline.selecting import Selected
from packer.recipe.recipe import to_json
from packer.rejections import CODES
from packer.store.entries import Totals
from packer.store.folder import lock, sweep
from packer.store.manifest import (
    FORMAT_VERSION,
    Manifest,
    Shard,
    check_conservation,
    decode_manifest,
    encode_manifest,
    read_manifest,
    sum_of,
    write_manifest,
)
from packer.store.mapping import check_sizes
from packer.store.row_tables import Rejected, content_fingerprint, is_pending, publish_rejected, stage_rejected
from packer.version import __version__, code_digest, library_version

_VERSIONED = ("jinja2", "numpy", "pyarrow", "tokenizers")
"""Packages whose versions can influence the bytes of a cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build has made, before it is committed."""

    provenance: Provenance
    results: Sequence[PartitionResult]
    packed: PackedBlocks
    selected: Selected

    @property
    def document_shards(self) -> list[Shard]:
        return [result.shard for result in self.results]


def commit(folder: Path, built: Built, *, before: bytes | None = None, fail_above: float | None = None) -> Manifest:
    """Write rejected.jsonl and the manifest, whose appearance is the commit, and remove files that it does not name.

    A manifest that readers would refuse is not committed; in a bucket, neither is any if the manifest there is no more
    the one with which the build began, `before`. After the commit, manifest and sizes are read back. If the disk cannot
    be written or did not retain what was written, a StorageError: until the manifest is replaced, the old cache is
    intact; from then on the new one is complete, and the next build finishes the clean-up.
    """
    manifest = _manifest(folder, built, *stage_rejected(folder, _rejected_lines(built)))
    check_conservation(manifest)
    if fail_above is not None:
        refuse_rejected_rows(folder, manifest, fail_above)
    try:
        decode_manifest(folder, encode_manifest(manifest))
    except CheckError as error:
        raise PackerError(
            f"readers would refuse what was built: {error.message}",
            hint="this is a bug in packer; please report it with the recipe. Nothing was committed",
        ) from error
    write_manifest(folder, manifest, before=before)
    try:
        check_sizes(folder, read_manifest(folder).stored)
    except (CheckError, InputError) as error:
        raise StorageError(
            f"{shown(folder)} was built, but does not open: {error.message}",
            hint="the disk did not keep what was written; run the same command with --repair, on another disk",
        ) from error
    finish(folder, manifest)
    return manifest


def finish(folder: Path, manifest: Manifest) -> None:
    """Finish a commit after the manifest is written; a no-op if that has been done. Call it with the lock held.

    The cache is complete before. rejected.jsonl is published last: while it is only staged, this is still to be done.
    """
    if is_pending(folder, manifest):
        sweep(folder, manifest.named_files)
        publish_rejected(folder, manifest)


def finish_if_free(folder: Path, manifest: Manifest) -> None:
    """Finish the commit if the lock is free. If the folder is busy or read-only, the cache is complete nevertheless."""
    if not is_pending(folder, manifest):
        return
    with suppress(BusyError, StorageError, CheckError, InputError), lock(folder):
        finish(folder, read_manifest(folder))  # another build may have replaced it meanwhile


def _manifest(folder: Path, built: Built, rejected_sha256: str, rejected_content: str) -> Manifest:
    provenance, selected = built.provenance, built.selected
    shards = (*built.document_shards, *built.packed.shards)
    versions = {name: str(library_version(name)) for name in _VERSIONED} | {"packer": __version__}
    if selected.record is not None:  # else changes of packer's source do not change manifests
        versions |= {CODE_VERSION: code_digest(), TRAITS_VERSION: traits_version(provenance.recipe.row_rules)}
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
        rejected_sha256=rejected_sha256,
        rejected_content=rejected_content,
        totals=_totals(built),
        recipe_fingerprint=provenance.recipe_fingerprint,
        content_fingerprint=content_fingerprint(folder, shards, selected.documents),
        versions=versions,
        selection=selected.record,
        media=tuple(result.media for result in built.results if result.media is not None) or None,
    )


_Line: TypeAlias = tuple[int, int, Rejected]
"""Number of an input, row, and the line about it."""


def _rejected_lines(built: Built) -> Iterator[Rejected]:
    """Yield rejected rows, documents that are in no split, and parts of documents that are in no block.

    They come in the order of inputs and rows. Most documents may be in no split, so their lines are generated lazily.
    """
    place = itemgetter(0, 1)
    rest = sorted([*_lines_of_rows(built), *_lines_of_parts(built)], key=place)
    dropped = built.selected.left_out
    of_no_split = () if dropped is None else dropped.lines(built.provenance.inputs, built.document_shards)
    return (line for _, _, line in heapq.merge(rest, of_no_split, key=place))


def _lines_of_rows(built: Built) -> Iterator[_Line]:
    for result in built.results:
        source, first = result.shard.source, result.shard.first_row
        assert source is not None
        for each in result.rejected:
            row = first + each.row
            path = built.provenance.inputs[source].path
            yield source, row, Rejected(source=path, row=row, line=each.line, code=each.code, reason=each.reason)


def _lines_of_parts(built: Built) -> Iterator[_Line]:
    for group in built.packed.groups:
        for source, row, doc_id, length, start, tokens, number in values_of(*group.left_out):
            which = f"{length} tokens" if tokens == length else f"tokens {start} to {start + tokens - 1} of {length}"
            line = Rejected(
                source=built.provenance.inputs[source].path,
                row=row,
                code=REASONS[number],
                reason=f"{CODES[REASONS[number]]} ({which})",
                document=doc_id,
                split=group.split,
                start=start,
                tokens=tokens,
            )
            yield source, row, line


def _totals(built: Built) -> Totals:
    shards, packed, left_out = built.document_shards, built.packed, built.selected.left_out
    rejected = Counter(row.code for result in built.results for row in result.rejected)
    of_shards, of_groups = partial(sum_of, shards), partial(sum_of, packed.groups)
    tokens, trained = of_shards("num_tokens"), of_shards("num_trained")
    num_blocks = sum(shard.num_rows for shard in packed.shards)
    return Totals(
        rows=of_shards("num_input_rows"),
        kept=of_shards("num_kept"),
        merged=of_shards("num_merged"),
        skipped=of_shards("num_skipped"),
        rejected=dict(sorted(rejected.items())),
        documents=of_shards("num_rows"),
        tokens=tokens,
        trained=trained,
        masked=tokens - trained,
        packed=of_groups("num_packed"),
        cut=cuts_of(packed.groups) | ({} if left_out is None else left_out.cuts()),
        piece_starts=of_groups("num_piece_start"),
        blocks=num_blocks,
        slots=num_blocks * built.provenance.recipe.pack.block_len,
        padding=of_groups("num_padding"),
    )
