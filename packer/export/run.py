"""An export from its refusals to export.json: a folder that is there with all of its files, or not at all.

It is written into a working folder beside its place, which takes the place when all is done. That folder is named
after the place, and its writer holds a lock in it. So a second export to one place is refused while the first is at
work, and what a killed one left is removed by the next.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BusyError, UsageError
from packer.export.formats import FORMATS, Unit, format_of
from packer.export.writer import ExportedFile, Files, Writer, blocks_of, documents_of, is_weighted
from packer.limits import storage_errors
from packer.progress import Progress, Silent
from packer.store.cache import Cache
from packer.store.exported import RECORD, read_record
from packer.store.folder import TEMPORARY_PREFIX, lock, sync_folder


def refuse_place(cache: Path, out: Path, *, force: bool) -> None:
    """An export may replace an export and nothing else: whatever lies there beside its files is not its own.

    Raises:
        UsageError: something lies there that is not to be lost.

    """
    place, home = out.resolve(), cache.resolve()
    if place == home or place.is_relative_to(home):
        where = "is the cache" if place == home else "lies in the cache"
        raise UsageError(f"{out} {where}", hint="export into a folder beside it")
    if home.is_relative_to(place):
        raise UsageError(f"{out} holds the cache", hint="export into a folder beside it")
    if not os.path.lexists(out):
        return
    if not (out / RECORD).is_file():
        raise UsageError(f"{out} is there, and is no export", hint="name a folder that is not there")
    if not force:
        raise UsageError(f"{out} is there", hint="--force replaces an export")
    found = (path for path in out.rglob("*") if path.is_symlink() or not path.is_dir())
    strange = sorted({path.relative_to(out).as_posix() for path in found} - _own_files(out))
    if strange:
        raise UsageError(
            f"{out} holds files that no export wrote, such as {strange[0]}", hint="move them, or name another folder"
        )


def _own_files(folder: Path) -> set[str]:
    """The files that the record of an export lists."""
    try:
        return {RECORD, *(str(each["path"]) for each in (read_record(folder) or {})["files"])}
    except (TypeError, KeyError):
        return {RECORD}


@contextmanager
def replacing(cache: Path, out: Path, *, force: bool) -> Iterator[Path]:
    """A folder to write into that takes the place of `out` when the body is done, and else is gone.

    Args:
        cache: must not lie there.
        out: the place.
        force: replace an export.

    Raises:
        UsageError: something lies there that is not to be lost.
        BusyError: another process is writing to this place.
        StorageError: the disk refuses; what was there is there still.

    """
    refuse_place(cache, out, force=force)
    out = Path(os.path.abspath(out))  # noqa: PTH100 - a link at its end is a name to be replaced, not followed
    digest = hashlib.sha256(os.fsencode(out.name)).hexdigest()[:12]  # however long its own name is
    work = out.with_name(f"{TEMPORARY_PREFIX}{digest}")
    new, old = work / "new", work / "old"
    with ExitStack() as locked:
        try:
            locked.enter_context(lock(work))
        except BusyError:
            raise BusyError(
                f"{out}: another process is writing this export", hint="wait until it ends, or name another folder"
            ) from None
        try:
            with storage_errors("write", out):
                for left in (new, old):
                    shutil.rmtree(left, ignore_errors=True)
                new.mkdir()
                yield new
                for folder in [path for path in new.rglob("*") if path.is_dir()] + [new]:
                    sync_folder(folder)
                refuse_place(cache, out, force=force)  # somebody may have put something there meanwhile
                _take_place(new, out, old)
                sync_folder(out.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _take_place(new: Path, out: Path, old: Path) -> None:
    if os.path.lexists(out):
        out.rename(old)
    try:
        new.rename(out)
    except BaseException:  # an interrupt, too
        if os.path.lexists(old):
            old.rename(out)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSplit:
    """One split that was written."""

    split: str
    num_rows: int
    num_tokens: int
    """Slots of the rows: of blocks with their padding."""

    num_trained: int
    details: dict[str, Any]
    """Details of the format: paths, types, columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of :func:`export`."""

    folder: Path
    to: str
    unit: Unit
    splits: tuple[ExportedSplit, ...]
    files: tuple[ExportedFile, ...]
    notes: tuple[str, ...]
    """Notes for whoever trains with it."""

    fingerprint: str
    """Of the cache."""


def export(
    cache: Path | str,
    out: Path | str,
    *,
    to: str,
    split: str | None = None,
    unit: Unit | None = None,
    separate_mask: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write a cache in the files of another trainer; every row's digest is compared on the way.

    Args:
        cache: the cache.
        out: the folder to write, which must not be there.
        to: one of ``packer.export.FORMATS``.
        split: this one alone; all where none is named.
        unit: documents or blocks; the first that the format can hold where nothing is said.
        separate_mask: `megatron` alone: write the loss mask as a second pair of files.
        force: replace a folder that an export wrote.
        progress: listens; counts rows.

    Raises:
        UsageError: there is no such format, it cannot hold this, or `out` is there.
        InputError: not a cache.
        BusyError: another process is exporting to `out`.
        CheckError: the cache is damaged; nothing is left behind.
        StorageError: the disk refuses; nothing is left behind.

    """
    out, progress = Path(out), progress or Silent()
    kind = writer_of(to)
    unit = unit or format_of(to).units[0]
    with Cache.open(cache) as opened:
        splits = _splits(opened, split, unit)
        rows = {name: opened.documents(name) if unit == "documents" else opened.blocks(name) for name in splits}
        shards = [*{shard.path: shard for each in rows.values() for shard in each.shards}.values()]
        _refuse(opened, kind, splits, to=to, unit=unit, separate_mask=separate_mask)
        kind.refuse(opened, shards, unit=unit, separate_mask=separate_mask)
        with replacing(opened.folder, out, force=force) as folder:
            progress.stage("exporting", sum(len(each) for each in rows.values()), unit)
            with Files(folder) as files:
                writers = [
                    kind(files, opened, name, unit=unit, is_alone=len(splits) == 1, separate_mask=separate_mask)
                    for name in splits
                ]
                written = tuple(_write_split(writer, progress) for writer in writers)
                kind.write_index(files, splits)
            found = Exported(
                folder=out,
                to=to,
                unit=unit,
                splits=written,
                files=files.written(),
                notes=tuple(dict.fromkeys(note for writer in writers for note in writer.notes())),
                fingerprint=opened.fingerprint,
            )
            record = json.dumps(_record(opened, found), indent=2, sort_keys=True).encode() + b"\n"
            with Files(folder) as files:
                files.write(RECORD, record)
    return found


def writer_of(name: str) -> type[Writer]:
    """The writer of a format.

    Raises:
        UsageError: there is no such format.

    """
    module, _, attribute = format_of(name).writer.partition(".")
    found: type[Writer] = getattr(import_module(f"packer.export.{module}"), attribute)
    return found


def _splits(cache: Cache, split: str | None, unit: Unit) -> list[str]:
    there = list(cache.splits(unit))
    if not there:
        raise UsageError(f"{cache.folder} has no {unit}", hint="--documents exports its documents")
    if split is None:
        return there
    if split not in there:
        raise UsageError(
            f"{cache.folder} has no {unit} of split '{split}'", hint=f"splits with {unit}: {', '.join(there)}"
        )
    return [split]


def _refuse(
    cache: Cache, kind: type[Writer], splits: Sequence[str], *, to: str, unit: Unit, separate_mask: bool
) -> None:
    if unit not in format_of(to).units:
        raise UsageError(f"{to} takes documents, not blocks", hint="its trainer packs for itself: leave --blocks out")
    if separate_mask and not kind.separates_mask:
        able = ", ".join(name for name in FORMATS if writer_of(name).separates_mask)
        raise UsageError(f"--separate-mask is for {able}; {to} has the mask with the tokens", hint="leave it out")
    if not kind.holds_weights and any(is_weighted(cache, split, unit) for split in splits):
        able = ", ".join(name for name in FORMATS if writer_of(name).holds_weights)
        raise UsageError(
            f"{cache.folder} has fractional loss weights, and {to} has no place for them",
            hint=f"--to {able} has a column loss_weights, for a trainer that reads it",
        )


def _write_split(writer: Writer, progress: Progress) -> ExportedSplit:
    cache, split = writer.cache, writer.split
    if writer.unit == "documents":
        own = cache.documents(split)
        num_rows, num_tokens = len(own), own.num_tokens
        num_trained = int(own.num_trained().sum(dtype=np.int64))
        for documents in documents_of(own):
            writer.documents(documents)
            progress.advance(len(documents.lengths), len(documents.input_ids))
    else:
        packed = cache.blocks(split)
        num_rows, num_tokens = len(packed), len(packed) * packed.block_len
        num_trained = sum(shard.num_trained for shard in packed.shards)
        for blocks in blocks_of(packed):
            writer.blocks(blocks)
            progress.advance(len(blocks.length), blocks.input_ids.size)
    details = writer.finish()
    return ExportedSplit(
        split=split,
        num_rows=num_rows,
        num_tokens=num_tokens,
        num_trained=num_trained,
        details=details,
    )


def _record(cache: Cache, found: Exported) -> dict[str, Any]:
    manifest = cache.manifest
    return {
        "format": "packer-export",
        "format_version": 1,
        "to": found.to,
        "unit": found.unit,
        "conventions": {"labels": "unshifted", "masked": -100, "first_token_of_a_document": "masked"},
        "source": {
            "fingerprint": found.fingerprint,
            "content_fingerprint": manifest.content_fingerprint,
            "recipe_fingerprint": manifest.recipe_fingerprint,
            "pack_mode": manifest.recipe["pack"]["mode"],
        },
        "model": {
            "vocab_size": manifest.model.vocab_size,
            "pad_id": manifest.model.pad_id,
            "eos_id": manifest.model.eos_id,
            "stop_ids": list(manifest.model.stop_ids),
        },
        "splits": {
            entry.split: {
                "rows": entry.num_rows, "tokens": entry.num_tokens, "trained": entry.num_trained, **entry.details,
            }
            for entry in found.splits
        },
        "files": [asdict(file) for file in found.files],
        "notes": list(found.notes),
    }  # fmt: skip
