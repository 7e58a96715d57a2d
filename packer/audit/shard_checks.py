"""One shard: its bytes, its structure, its rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from packer.audit.cache_files import check_size, unreadable
from packer.audit.document_rules import document_rules
from packer.audit.verify_report import Finding, Level
from packer.batches import UInt64
from packer.errors import PackerError, ResourceError
from packer.limits import out_of
from packer.store.arrow_columns import BlockRows, DocumentRows
from packer.store.digest import digest_file, digest_file_xxh3
from packer.store.manifest import ModelRecord, Place, Shard
from packer.store.numbered_rows import Chunks

MAX_ROWS = 20
"""Rows named for one rule and record batch; one more finding counts the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardAudit:
    """What was found in one shard."""

    shard: Shard
    findings: tuple[Finding, ...]
    digests: UInt64 | None
    """Row digests worked out from the values; None where they could not be, or were not asked for.  # uint64[R]"""


def audit_shard(folder: Path, shard: Shard, *, level: Level, model: ModelRecord) -> ShardAudit:
    """Check one shard. Whatever is wrong with it comes back as findings; nothing is raised.

    A damaged file is looked into all the same, so that the damaged rows can be named. That is safe: mapping compares
    size, schema and places with the manifest first, and views stay within their buffers.
    """
    wrong = check_size(folder, shard.path, shard.num_bytes)
    if wrong is not None or level == "quick":
        return ShardAudit(shard=shard, findings=() if wrong is None else (wrong,), digests=None)
    findings = _check_bytes(folder, shard, full=level == "full")
    damaged = bool(findings)
    digests: list[UInt64] = []
    try:
        for place, rows, stored, batch in _batches(folder, shard):
            found = rows.digests()
            digests.append(found)
            findings += _row_digests(shard, place, stored, found)
            if level == "full":
                findings += _check_values(shard, place, rows, batch, model)
        if not damaged:
            findings += [*_check_counts(folder, shard), *_check_rows_digest(shard, digests)]
    except ResourceError:
        raise
    except PackerError as error:
        findings.append(unreadable(shard.path, error))
        return ShardAudit(shard=shard, findings=tuple(findings), digests=None)
    except (OSError, ValueError, IndexError, MemoryError, OverflowError) as error:
        # Flipped bits can name any length and any place; what they break first is not worth telling apart.
        if not damaged and (limit := out_of(error, f"cannot read {folder / shard.path}")) is not None:
            raise limit from error
        findings.append(unreadable(shard.path, error))
        return ShardAudit(shard=shard, findings=tuple(findings), digests=None)
    return ShardAudit(
        shard=shard, findings=tuple(findings), digests=np.concatenate(digests or [np.zeros(0, np.uint64)])
    )


def open_chunks(folder: Path, shards: tuple[Shard, ...], kind: str) -> "Chunks[DocumentRows] | Chunks[BlockRows]":
    """The record batches of some shards of one kind."""
    if kind == "documents":
        return Chunks(folder, shards, kind="documents")
    return Chunks(folder, shards, kind="blocks")


def _batches(folder: Path, shard: Shard) -> Iterator[tuple[Place, DocumentRows | BlockRows, UInt64, pa.RecordBatch]]:
    chunks = open_chunks(folder, (shard,), shard.kind)
    batches = chunks.mapped(0).batches
    for i, (place, batch) in enumerate(zip(shard.places, batches, strict=True)):
        rows, stored = chunks[i]
        yield place, rows, stored, batch


def _check_bytes(folder: Path, shard: Shard, *, full: bool) -> list[Finding]:
    """xxh3-128 finds accidents; sha256, in a full audit, also finds what was made to look right."""
    try:
        if full:
            _, xxh3, sha256 = digest_file(folder / shard.path)
        else:
            xxh3, sha256 = digest_file_xxh3(folder / shard.path), shard.sha256
    except PackerError as error:
        return [unreadable(shard.path, error)]
    pairs = (("xxh3-128", shard.xxh3, xxh3), ("sha256", shard.sha256, sha256))
    findings = [
        Finding(path=shard.path, row=None, what=what, expected=expected, found=found)
        for what, expected, found in pairs
        if expected != found
    ]
    if not Path(shard.path).stem.endswith(f"-{shard.sha256[:12]}"):
        findings.append(
            Finding(path=shard.path, row=None, what="name", expected=f"…-{shard.sha256[:12]}.arrow", found=shard.path)
        )
    return findings


def _row_digests(shard: Shard, place: Place, stored: UInt64, found: UInt64) -> list[Finding]:
    wrong = np.flatnonzero(stored != found)
    named = [
        Finding(
            path=shard.path,
            row=place.first_row + row,
            what="row digest",
            expected=f"{stored[row]:016x}",
            found=f"{found[row]:016x}",
        )
        for row in wrong[:MAX_ROWS].tolist()
    ]
    return [*named, *_more(shard, "row digest", "the stored one", len(wrong))]


def _check_rows_digest(shard: Shard, digests: Sequence[UInt64]) -> list[Finding]:
    found = xxh3_128_hexdigest(np.concatenate([np.zeros(0, np.uint64), *digests]).tobytes())
    if found == shard.rows_xxh3:
        return []
    return [Finding(path=shard.path, row=None, what="row digests", expected=shard.rows_xxh3, found=found)]


def _check_values(
    shard: Shard, place: Place, rows: DocumentRows | BlockRows, batch: pa.RecordBatch, model: ModelRecord
) -> list[Finding]:
    """Arrow's own validation, then the rules of documents; blocks are gathered again (:mod:`block_checks`)."""
    try:
        batch.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        # Values behind impossible offsets are not read.
        what = f"record batch at row {place.first_row}"
        return [Finding(path=shard.path, row=None, what=what, expected="valid Arrow", found=str(error))]
    findings: list[Finding] = []
    for what, expected, broken in document_rules(rows, model) if isinstance(rows, DocumentRows) else ():
        wrong = np.flatnonzero(broken)
        findings += [
            Finding(path=shard.path, row=place.first_row + row, what=what, expected=expected, found="something else")
            for row in wrong[:MAX_ROWS].tolist()
        ]
        findings += _more(shard, what, expected, len(wrong))
    return findings


def _more(shard: Shard, what: str, expected: str, count: int) -> list[Finding]:
    if count <= MAX_ROWS:
        return []
    found = f"{count - MAX_ROWS:,} more rows with something else"
    return [Finding(path=shard.path, row=None, what=what, expected=expected, found=found)]


def _check_counts(folder: Path, shard: Shard) -> list[Finding]:
    """The manifest's numbers of a shard against its rows."""
    rows = [rows for rows, _ in open_chunks(folder, (shard,), shard.kind)]
    numbers = [
        ("num_tokens", shard.num_tokens, sum(int(part.length.sum(dtype=np.int64)) for part in rows)),
        ("num_trained", shard.num_trained, sum(int(part.num_trained.sum(dtype=np.int64)) for part in rows)),
    ]
    documents = [part for part in rows if isinstance(part, DocumentRows)]
    if shard.kind == "documents":
        input_row = np.concatenate([np.zeros(0, np.int32), *(part.row for part in documents)])
        length = np.concatenate([np.zeros(0, np.int32), *(part.length for part in documents)])
        is_last = np.ones(len(input_row), np.bool_)
        is_last[:-1] = input_row[1:] != input_row[:-1]
        numbers += [
            ("num_last_tokens", shard.num_last_tokens, int(length[is_last].sum(dtype=np.int64))),
            ("kept rows", shard.num_input_rows - shard.num_rejected, int(is_last.sum())),
        ]
        outside = (input_row < 0) | (input_row >= shard.num_input_rows)
        numbers.append(("documents of rows the partition does not have", 0, int(outside.sum())))
    return [
        Finding(path=shard.path, row=None, what=what, expected=f"{expected:,}", found=f"{found:,}")
        for what, expected, found in numbers
        if expected != found
    ]
