"""Runs an export: gives the formats numbers of rows, and files whose digests it writes into export.json.

The destination folder appears with all of its files, or not at all. Files are written to a working folder beside it,
which is renamed into place at the end. Its writer holds a lock in it: so a second export to the same destination is
refused while the first is running, and what a killed export left behind is removed by the next.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import Int64
from packer.display import Progress, Silent
from packer.errors import BusyError, UsageError
from packer.export.formats import FORMATS, NEEDS, Format, Unit, format_of
from packer.host.files import storage_errors
from packer.layout import array_of
from packer.names import refuse_address
from packer.recipe.groups import declared
from packer.store.cache import BlockShards, Cache, DocumentShards
from packer.store.folder import inside, make_folder, sync_folder
from packer.store.work_folder import work_folder

_TOKENS = 2**20
"""Approximate number of tokens read at a time: some tens of megabytes with all columns."""


@dataclass(frozen=True, kw_only=True)
class SplitRows:
    """The rows of one split, and how to export them."""

    cache: Cache
    split: str
    unit: Unit
    is_alone: bool
    """Whether this is the only split that is exported."""

    @property
    def shards(self) -> DocumentShards | BlockShards:
        return self.cache.documents(self.split) if self.unit == "documents" else self.cache.blocks(self.split)

    def __len__(self) -> int:
        return len(self.shards)

    @cached_property
    def slots(self) -> Int64:
        """Tokens of each row; of blocks, including padding.  # int64[N]"""
        shards = self.shards
        if isinstance(shards, BlockShards):
            return np.full(len(shards), shards.block_len, np.int64)
        return shards.lengths().astype(np.int64)

    def windows(self) -> Iterator[Int64]:
        """Yield the numbers of all rows in order, those of about a million tokens at a time.  # int64[n] each

        A window of documents ends with the document, or the pair, that reaches the next million.

        Worked example: with 10 instead of a million, documents of 6 3 9 40 1 tokens are windows 0 1 2, 3 and 4.
        """
        shards = self.shards
        if isinstance(shards, BlockShards):
            bounds = [*range(0, len(shards), max(1, _TOKENS // max(1, shards.block_len))), len(shards)]
        else:
            together = 2 if shards.is_paired else 1
            sums = np.cumsum(self.slots)[together - 1 :: together]
            cuts = together * (np.flatnonzero(np.diff(sums // _TOKENS, prepend=0)) + 1)
            bounds = np.unique([0, *cuts.tolist(), len(shards)]).tolist()
        for first, end in pairwise(bounds):
            yield np.arange(first, end, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file that was written."""

    path: str
    """Relative to the export, POSIX."""

    num_bytes: int
    sha256: str


class Files(ExitStack):
    """Writes files below one folder; leaving the context closes them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._opened: dict[str, BinaryIO] = {}

    def open(self, path: str) -> BinaryIO:
        """Create a file, given its path relative to the folder."""
        place = inside(self._folder, path)
        try:
            make_folder(place.parent)
            file = self._opened[path] = self.enter_context(place.open("xb", 2**20))
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            raise UsageError(
                f"a split of the cache and a file of the export have the same name: {path}",
                hint="--split exports another split; a recipe may give this one another name",
            ) from error
        return file

    def write(self, path: str, content: bytes) -> None:
        """Write a whole file."""
        with self.open(path) as file:
            file.write(content)

    def written(self) -> tuple[ExportedFile, ...]:
        """Flush all files to disk and return them with digests of what is read back. Call it after they are closed."""
        found = []
        for path in self._opened:
            with (self._folder / path).open("rb") as file:
                os.fsync(file.fileno())
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                found.append(ExportedFile(path=path, num_bytes=file.tell(), sha256=digest))
        return tuple(found)


def lists(values: npt.NDArray[Any], offsets: Int64) -> pa.Array:
    """Return a column of lists: entry i is ``values[offsets[i]:offsets[i + 1]]``, of lists where values are rows."""
    inner = array_of(values) if values.ndim == 1 else None
    if inner is None:
        inner = lists(values.reshape(-1), np.arange(len(values) + 1) * values.shape[1])
    return pa.ListArray.from_arrays(array_of(offsets.astype(np.int32)), inner)


RECORD = "export.json"
"""File with the source of an export, the format's details of each split, and the digests of all other files."""


@contextmanager
def appearing(cache: Path, out: Path) -> Iterator[Path]:
    """Yield a folder to write into; it is moved to `out` when the body succeeds, and removed if the body fails."""
    _refuse_place(cache, out)
    out = Path(os.path.abspath(out))  # noqa: PTH100 - a symlink as last component is refused, not followed
    with ExitStack() as held:
        try:
            work = held.enter_context(work_folder(out))
        except BusyError:
            raise BusyError(
                f"{out}: another process is writing this export", hint="wait until it ends, or name another folder"
            ) from None
        new = work / "new"
        with storage_errors("write", out):
            new.mkdir()
            yield new
            for folder in [path for path in new.rglob("*") if path.is_dir()] + [new]:
                sync_folder(folder)
            _refuse_place(cache, out)  # something may have appeared there meanwhile
            new.rename(out)
            sync_folder(out.parent)


def _refuse_place(cache: Path, out: Path) -> None:
    if out.resolve().is_relative_to(cache.resolve()):
        raise UsageError(f"{out} is inside the cache", hint="export into a folder beside it")
    if os.path.lexists(out):
        raise UsageError(f"{out} already exists", hint="name a new folder, or remove this one")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSplit:
    """A split that was written."""

    split: str
    num_rows: int
    num_tokens: int
    """Without padding."""

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
    """Notes on training with the export."""

    fingerprint: str
    """Fingerprint of the cache."""


def export(
    cache: Path | str,
    out: Path | str,
    *,
    to: str,
    split: str | None = None,
    unit: Unit | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Export a cache to another trainer's file format; the digest of every row is checked as it is read.

    Args:
        cache: the cache.
        out: the folder to write, which must not exist.
        to: one of ``packer.export.formats.FORMATS``.
        split: export only this split; all splits by default.
        unit: documents or blocks; by default documents, of a format for blocks alone blocks.
        progress: receives progress; counts rows.

    Raises:
        UsageError: there is no such format, it does not support this cache, `out` exists or is a URL.
        InputError: not a cache.
        BusyError: another process is exporting to `out`.
        CheckError: the cache is damaged; nothing is left behind.
        StorageError: the disk refuses; nothing is left behind.
    """
    refuse_address(os.fspath(out), place="file")
    out, progress = Path(out), progress or Silent()
    form = format_of(to)
    unit = unit or form.unit
    module = form.load()
    with Cache.open(cache) as opened:
        opened.refuse_images("an export")
        splits = _splits(opened, split, unit)
        alone = len(splits) == 1
        rows = [SplitRows(cache=opened, split=name, unit=unit, is_alone=alone) for name in splits]
        _refuse_unsupported(to, form, rows)
        with appearing(opened.folder, out) as folder:
            progress.stage("exporting", sum(len(each) for each in rows), unit)
            with Files(folder) as files:
                written = tuple(_write_split(module.write, form, files, each, progress) for each in rows)
                notes = dict.fromkeys(note for each in rows for note in module.notes(each, **form.options) or ())
                if not form.writes_columns and (names := [each.name for each in declared(opened.manifest.recipe)]):
                    notes[f"left out: the columns {', '.join(names)}, which only --to datasets writes"] = None
                module.write_index(files, {each.split: each.details for each in written})
            found = Exported(
                folder=out,
                to=to,
                unit=unit,
                splits=written,
                files=files.written(),
                notes=tuple(notes),
                fingerprint=opened.fingerprint,
            )
            content = json.dumps(_record(opened, found, form.conventions), indent=2, sort_keys=True)
            with Files(folder) as record:
                record.write(RECORD, content.encode() + b"\n")
            record.written()  # flushes it; its digest is nowhere
    return found


def _splits(cache: Cache, split: str | None, unit: Unit) -> list[str]:
    there = list(cache.splits(unit))
    if not there:
        raise UsageError(f"{cache.folder} has no {unit}", hint="--to datasets without --blocks exports its documents")
    if split not in (None, *there):
        raise UsageError(
            f"{cache.folder} has no {unit} of split '{split}'", hint=f"splits with {unit}: {', '.join(there)}"
        )
    return there if split is None else [split]


def _refuse_unsupported(to: str, form: Format, rows: Sequence[SplitRows]) -> None:
    """Refuse what the format has no place for: without sides, rejected answers would be imitated."""
    cache = rows[0].cache
    needed = {rows[0].unit: True, "sides": cache.has_sides}
    wanted = [name for name, is_needed in needed.items() if is_needed]
    for name in (name for name in wanted if name not in form.holds):
        able = ", ".join(f"--to {other}" for other, each in FORMATS.items() if {*wanted} <= {*each.holds})
        raise UsageError(f"{to} has no place for {NEEDS[name]}", hint=f"for {cache.folder}: {able}")


def _write_split(
    write: Callable[..., dict[str, Any]], form: Format, files: Files, rows: SplitRows, progress: Progress
) -> ExportedSplit:
    def windows() -> Iterator[Int64]:
        for numbers in rows.windows():
            yield numbers
            progress.advance(len(numbers), int(rows.slots[numbers].sum()))

    return ExportedSplit(
        split=rows.split,
        details=write(files, rows, windows(), **form.options),
        num_rows=len(rows),
        num_tokens=int(rows.shards.stored("length", np.int32).sum(dtype=np.int64)),
        num_trained=int(rows.shards.stored("num_trained", np.int32).sum(dtype=np.int64)),
    )


def _record(cache: Cache, found: Exported, conventions: Mapping[str, Any]) -> dict[str, Any]:
    manifest = cache.manifest
    return {
        "format": "packer-export",
        "format_version": 1,
        "to": found.to,
        "unit": found.unit,
        "conventions": {**conventions, "first_token_of_a_document": "masked"},
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
