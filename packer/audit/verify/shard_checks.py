"""Checks of one shard: its bytes, structure and row digests, the rules that its documents must satisfy, its images."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from packer.audit.verify.verify_report import Finding, Level, differing, unreadable
from packer.batches import Bool, Int64, UInt64
from packer.errors import InputError, PackerError, ResourceError
from packer.host.files import out_of
from packer.layout import MASKED, last_of_rows, misplaced_sides, offsets_of
from packer.store.arrow_columns import (
    BlockRows,
    DocumentRows,
    digest_values,
    document_ids,
    flat_values,
    numbers,
    shard_rows,
    value_pieces,
)
from packer.store.files import CacheFiles
from packer.store.folder import digest_file, digest_file_xxh3
from packer.store.manifest import MANIFEST_NAME, Manifest, ModelFile, ModelRecord, Place, Shard, StoredTable
from packer.store.mapping import OutOfBounds, check_rows, map_shard
from packer.store.media_shards import MediaShards
from packer.store.place import fresh_place
from packer.store.shards import DocumentShards

MAX_ROWS = 20
"""Maximum number of rows named for one rule and record batch; one more finding counts the rest."""

Rule = tuple[str, str, Bool]
"""Name of the rule, expected value, and a mask of the rows that break it.  # bool[R]"""


def shard_auditor(cache: Path | str, level: Level, model: ModelRecord) -> Callable[[Shard], list[Finding]]:
    """Return the function that checks shards of a cache, given its folder or URL.

    It fetches shards of a bucket one by one, each only while it is checked.
    """
    if isinstance(cache, Path) and not (cache / MANIFEST_NAME).exists():
        raise InputError(f"{cache} is not there", hint="--on ray needs a cache that all nodes see, or one in a bucket")

    def audit(shard: Shard) -> list[Finding]:
        with fresh_place(cache) as folder:
            return audit_shard(folder, shard, level=level, model=model)

    return audit


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


def check_kept(folder: Path, file: ModelFile | StoredTable, below: str = "") -> list[Finding]:
    """Check the size of a file and its sha256; `below` is the folder of the cache that its path begins at."""
    path = below + file.path
    return check_size(folder, path, file.num_bytes) or check_file(folder, path, sha256=file.sha256)


def audit_shard(folder: Path, shard: Shard, *, level: Level, model: ModelRecord) -> list[Finding]:
    """Check one shard. Anything wrong with it is returned as findings; only lack of resources is raised.

    A damaged file is still read, so that the damaged rows can be named. This is safe: before mapping, size, schema and
    offsets are compared with the manifest, and views stay within their buffers.
    """
    findings = check_size(folder, shard.path, shard.num_bytes)
    if findings:
        return findings
    findings = _check_bytes(folder, shard, full=level == "full")
    damaged = bool(findings)
    parts: list[DocumentRows | BlockRows] = []
    digests, values = [np.zeros(0, np.uint64)], hashlib.sha256()
    try:
        for place, rows, stored, batch in _batches(folder, shard):
            parts.append(rows)
            digests.append(rows.digests())
            digest_values(values, rows)
            wrong = stored != digests[-1]
            rule = ("row digest", "the stored one", wrong)
            findings += _name_rows(shard.path, place.first_row, rule, (stored, digests[-1]))
            outside = _check_bounds(shard, place, rows)
            findings += [] if wrong.any() else outside
            if level == "full" and not outside:
                findings += _check_values(shard, place, rows, batch, model)
        if not damaged:
            rows_xxh3 = xxh3_128_hexdigest(np.concatenate(digests).tobytes())
            findings += _check_counts(shard, parts)
            findings += differing(shard.path, ("row digests", shard.rows_xxh3, rows_xxh3))
            findings += differing(shard.path, ("values", shard.rows_sha256, values.hexdigest()))
    except ResourceError:
        raise
    except PackerError as error:
        findings.append(unreadable(shard.path, error))
    except (OSError, ValueError, IndexError, MemoryError, OverflowError) as error:
        # Flipped bits can produce any length or offset; which error they cause first does not matter.
        if not damaged and (limit := out_of(error, f"cannot read {folder / shard.path}")) is not None:
            raise limit from error
        findings.append(unreadable(shard.path, error))
    return findings


def _batches(folder: Path, shard: Shard) -> Iterator[tuple[Place, DocumentRows | BlockRows, UInt64, pa.RecordBatch]]:
    mapped = map_shard(folder, shard)
    for number, place in enumerate(shard.places):
        batch = mapped.batch(number)
        yield place, shard_rows(batch, shard.kind), numbers(batch.column("digest")), batch


def _check_bounds(shard: Shard, place: Place, rows: DocumentRows | BlockRows) -> list[Finding]:
    """Name the first row of a record batch that a reader would refuse even if its digest were right."""
    try:
        check_rows(rows, shard)
    except OutOfBounds as error:
        expected, row = "numbers within their bounds", place.first_row + error.row
        return [Finding(path=shard.path, row=row, what="bounds", expected=expected, found=str(error))]
    except ValueError as error:
        return [unreadable(shard.path, error)]
    return []


def _check_bytes(folder: Path, shard: Shard, *, full: bool) -> list[Finding]:
    """Check the digests: xxh3-128 detects accidents; sha256, in a full verification, also detects tampering."""
    try:
        path = CacheFiles(folder).fetch(shard.path)
        if full:
            digest = digest_file(path)
            xxh3, sha256 = digest.xxh3, digest.sha256
        else:
            xxh3, sha256 = digest_file_xxh3(path), shard.sha256
    except PackerError as error:
        return [unreadable(shard.path, error)]
    findings = differing(shard.path, ("xxh3-128", shard.xxh3, xxh3), ("sha256", shard.sha256, sha256))
    if shard.sha256[:12] not in Path(shard.path).stem:
        findings += differing(shard.path, ("name", f"…-{shard.sha256[:12]}.arrow", shard.path))
    return findings


def _check_values(
    shard: Shard, place: Place, rows: DocumentRows | BlockRows, batch: pa.RecordBatch, model: ModelRecord
) -> list[Finding]:
    """Apply Arrow's own validation, then the rules of documents; blocks are checked in :mod:`cache_checks`."""
    try:
        batch.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        # Do not read values through invalid offsets.
        return differing(shard.path, (f"record batch at row {place.first_row}", "valid Arrow", str(error)))
    rules = document_rules(rows, model) if isinstance(rows, DocumentRows) else ()
    return [finding for rule in rules for finding in _name_rows(shard.path, place.first_row, rule)]


def _name_rows(
    path: str, first_row: int, rule: Rule, digests: tuple[UInt64, UInt64] | None = None
) -> Iterator[Finding]:
    """Yield the first rows of a record batch that break a rule, and the number of further ones.

    `digests`: expected and found digests, if the rule is about them.  # uint64[R] each
    """
    what, expected, broken = rule
    rows = np.flatnonzero(broken).tolist()
    for row in rows[:MAX_ROWS]:
        values = (expected, "something else") if digests is None else tuple(f"{each[row]:016x}" for each in digests)
        yield Finding(path=path, row=first_row + row, what=what, expected=values[0], found=values[1])
    if len(rows) > MAX_ROWS:
        yield from differing(path, (what, expected, f"{len(rows) - MAX_ROWS:,} more rows with something else"))


def _check_counts(shard: Shard, rows: Sequence[Any]) -> list[Finding]:
    """Compare the manifest's counts for a shard with its rows, the documents or blocks of its record batches."""
    compared = [
        (name, getattr(shard, name), sum(int(getattr(part, column).sum(dtype=np.int64)) for part in rows))
        for name, column in (("num_tokens", "length"), ("num_trained", "num_trained"))
    ]
    if shard.kind == "documents":
        none = np.zeros(0, np.int32)
        input_row, length = (
            np.concatenate([none, *(getattr(part, name) for part in rows)]) for name in ("row", "length")
        )
        side = np.concatenate([part.side for part in rows]) if rows and rows[0].side is not None else None
        last_tokens = int(length[last_of_rows(input_row, side)].sum(dtype=np.int64))
        compared += [
            ("num_last_tokens", shard.num_last_tokens, last_tokens),
            ("kept rows", shard.num_input_rows - shard.num_rejected, int(last_of_rows(input_row, None).sum())),
        ]
        if side is not None:
            compared.append(("documents that are not on their side", 0, int(misplaced_sides(input_row, side).sum())))
    return differing(shard.path, *compared)


def document_rules(rows: DocumentRows, model: ModelRecord) -> Iterator[Rule]:
    """Yield the rules for a record batch of documents that is within its bounds."""
    num_rows, offsets = len(rows.row), offsets_of(rows.length)
    of_token = np.repeat(np.arange(num_rows), rows.length)
    tokens, targets = flat_values(rows.input_ids), flat_values(rows.labels)
    trained = targets != MASKED
    yield (
        "input_ids",
        f"ids from 0 to {model.vocab_size - 1}",
        _rows_with((tokens < 0) | (tokens >= model.vocab_size), of_token, num_rows),
    )
    yield "labels", f"{MASKED} or the input id", _rows_with(trained & (targets != tokens), of_token, num_rows)
    yield "first token", "masked", trained[offsets[:-1]]
    yield "num_trained", "the number of labels", rows.num_trained != np.bincount(of_token[trained], minlength=num_rows)
    yield "spans", "exactly the trained runs", _spans_differ(rows, trained, of_token, offsets)
    doc_ids = document_ids(
        input_ids=tokens,
        labels=targets,
        offsets=offsets,
        media=rows.media,
        values=value_pieces(rows.without_joined().values),
    )
    yield "doc_id", "the digest of ids, labels, images and values", doc_ids != rows.doc_id
    yield "media", "spans of exactly the tokens of images", _images_are_elsewhere(rows, model.image_ids)


def _rows_with(wrong: Bool, of_token: Int64, num_rows: int) -> Bool:
    """Return the rows that have a token where `wrong` is True."""
    found = np.zeros(num_rows, np.bool_)
    found[of_token[wrong]] = True
    return found


def _spans_differ(rows: DocumentRows, trained: Bool, of_token: Int64, offsets: Int64) -> Bool:
    """Return the rows whose spans do not cover exactly their trained tokens.

    Worked example: labels . x x . x and spans [1, 3), [4, 5): adding 1 at 1 and 4 and -1 at 3 and 5, the cumulative sum
    is 0 1 1 0 1, which is the mask. Adjacent spans ([1, 2), [2, 3)) are fine: they are two messages.
    """
    first, last = rows.span_offsets[[0, -1]].tolist()
    base = np.repeat(offsets[:-1], np.diff(rows.span_offsets))
    steps = np.zeros(len(trained) + 1, np.int64)
    np.add.at(steps, base + rows.span_start[first:last], 1)
    np.add.at(steps, base + rows.span_end[first:last], -1)
    return _rows_with(np.cumsum(steps[:-1]) != trained, of_token, len(rows.row))


def check_media(folder: Path, manifest: Manifest, *, is_intact: bool) -> list[Finding]:
    """Check the shards of images; `is_intact`: whether those of documents are intact, so that they can be read."""
    tables = manifest.media or ()
    findings = [each for table in tables for each in check_kept(folder, table)]
    if findings:
        return findings
    stored: set[bytes] = set()
    for table in tables:
        images = MediaShards(folder, [table])
        try:
            digests = dict.fromkeys(images.digests())  # in their order: the first that is wrong is named
            for digest in digests:
                if not images.only_names(digest):
                    images.read(digest)
        except PackerError as error:
            findings.append(unreadable(table.path, error))
        else:
            findings += differing(table.path, ("images", table.num_rows, len(digests)))
            stored |= digests.keys()
    for shard in manifest.document_shards if is_intact and not findings else ():
        try:
            missing = len({digest for digest, _ in _shown(folder, shard)} - stored)
        except PackerError as error:
            findings.append(unreadable(shard.path, error))
        else:
            expected = "images that the cache has"
            findings += differing(shard.path, ("images", expected, f"{missing} that it lacks" if missing else expected))
    return findings


def check_references(folder: Path, manifest: Manifest, images: MediaShards) -> list[Finding]:
    """Check the images that a cache only names."""
    wrong: dict[bytes, list[tuple[str, str]]] = {}
    for name, digest in images.references():
        if isinstance(said := images.named(name, digest), str):
            wrong.setdefault(digest, []).append((name, said))
    rows: dict[bytes, dict[str, None]] = {digest: {} for digest in wrong}
    for shard in manifest.document_shards if wrong else ():
        where = manifest.inputs[shard.source or 0].path
        for digest, row in _shown(folder, shard):
            if digest in wrong and len(rows[digest]) < MAX_ROWS:
                rows[digest][f"{where}:{shard.first_row + row}"] = None  # once, however often it shows the image
    return [
        Finding(path=name, what="input", expected=f"sha256 {digest.hex()}", found=f"{said} ({', '.join(rows[digest])})")
        for digest, each in wrong.items()
        for name, said in each
    ]


def _shown(folder: Path, shard: Shard) -> Iterator[tuple[bytes, int]]:
    """Yield the digest of each image that the documents of a shard show, and the row of its partition."""
    for rows, _ in DocumentShards(folder, (shard,)).chunks():
        if rows.media is not None:
            first, last = rows.media.offsets[[0, -1]].tolist()
            numbers = np.repeat(rows.row, np.diff(rows.media.offsets)).tolist()
            yield from zip(map(bytes, rows.media.sha256[first:last]), numbers, strict=True)


def _images_are_elsewhere(rows: DocumentRows, image_ids: tuple[int, ...]) -> Bool:
    """Return the documents whose repeated tokens are not exactly those from the ends of their images.  # bool[R]"""
    broken = np.zeros(len(rows.row), np.bool_)
    if rows.media is None:
        return broken
    for number in range(len(rows.row)):
        is_image = np.isin(rows.input_ids[number], image_ids)
        for image in rows.media[number]:
            last = image.start + image.length - 1
            broken[number] |= not (is_image[image.start] and is_image[last])
            is_image[image.start : last + 1] = False
        broken[number] |= bool(is_image.any())
    return broken
