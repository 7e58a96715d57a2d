"""The rows that a check reads: from inputs of a cache, files as a build reads them, or tables of pretokenized rows.

A pretokenized row that packs several sequences counts as several rows.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np

from packer.audit.foreign.row_parts import TokenRow, sequence_starts
from packer.audit.foreign.tables import ForeignPart
from packer.audit.input_parts import InputPart
from packer.batches import Int64, PretokenizedTokens, RowBatch, Sample
from packer.display import in_shell
from packer.errors import InputError
from packer.names import data_ending
from packer.pipeline.input_cuts import cut_input
from packer.pipeline.input_resolution import SourceFile
from packer.pipeline.inputs import open_input
from packer.pipeline.plan import input_of
from packer.recipe import Recipe, Source
from packer.regular_file import path_within
from packer.source.detect import detect_format
from packer.source.file_bytes import no_rows_error
from packer.source.files import data_set_splits, expand, is_data_set
from packer.source.partition import TABLE_FORMATS
from packer.source.table_files import table_schema
from packer.store.manifest import MANIFEST_NAME

_BATCH_ROWS = 1024
_MAX_ID = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPart:
    """A Parquet or Arrow file with a column ``input_ids``."""

    file: Path
    source: int
    """Index of the file."""

    @property
    def num_bytes(self) -> int:
        return self.file.stat().st_size

    def batches(self, max_row_bytes: int) -> Iterator[tuple[RowBatch, Int64]]:  # noqa: ARG002 - the signature of InputPart
        """Yield the file's sequences in batches, each with the number of its row; one empty batch if it has none."""
        found, first = self._sequences(range(len(self._part()))), 0
        while (some := [*islice(found, _BATCH_ROWS)]) or not first:
            samples = tuple(
                Sample(kind="tokens", row=row, pretokenized=pretokenized)
                for row, (_, pretokenized) in enumerate(some, first)
            )
            numbers = np.array([number for number, _ in some], np.int64)
            yield RowBatch(samples=samples, rejections=(), num_rows=len(samples)), numbers
            first += len(samples) or 1

    def samples(self, rows: Collection[int], max_row_bytes: int) -> Iterator[tuple[int, Sample]]:  # noqa: ARG002 - as above
        """Yield the sequences of some rows, each with the number of its row."""
        for number, pretokenized in self._sequences(sorted(rows)):
            yield number, Sample(kind="tokens", row=number, pretokenized=pretokenized)

    def _part(self) -> ForeignPart:
        return ForeignPart(self.file, "", [self.file])

    def _sequences(self, numbers: Sequence[int]) -> Iterator[tuple[int, PretokenizedTokens]]:
        """Yield the sequences of some rows, ascending, without padding; skip rows whose columns differ in length."""
        for row in self._part().read(numbers):
            if not row.columns_differ:
                yield from ((row.number, pretokenized) for pretokenized in _parted(row))


def _parted(row: TokenRow) -> Iterator[PretokenizedTokens]:
    ids, weight = np.clip(row.input_ids, 0, _MAX_ID).astype(np.int32), row.trained.astype(np.float32)
    mask = row.columns.get("attention_mask")
    kept = np.ones(len(ids), np.bool_) if mask is None else mask != 0
    number = np.cumsum(sequence_starts(row))
    for each in np.unique(number[kept]):
        own = kept & (number == each)
        yield PretokenizedTokens(
            input_ids=ids[own], weight=weight[own], num_padding=0, by_labels=row.labels is not None
        )


RowPart: TypeAlias = "InputPart | TokenPart"
"""Rows of one file that are read as one task."""

NamedFile: TypeAlias = tuple[str, Path]
"""A split, and a file with rows of it."""

_SPLIT = re.compile(
    r"(?:\A|[-._ 0-9])(train|training|validation|valid|val|dev|test|testing|eval|evaluation)(?![a-z])", re.IGNORECASE
)
"""Words in names of files and folders that contain one split, following the conventions of the Hugging Face Hub."""


def find_files(asked: Sequence[tuple[str | None, Path]]) -> list[NamedFile]:
    """Find the files at some paths, each with its split.

    A split that is None is taken from a saved DatasetDict, or from a word in the name of the file or of a folder that
    contains it (``data/validation-00000-of-00001.parquet``, ``chats_test.jsonl``); otherwise it is ``train``.

    Raises:
        InputError: there is no such file, a folder contains none, or a path is a cache.
    """
    found: list[NamedFile] = []
    for split, path in asked:
        if is_data_set(path):
            saved = [(split or own or "train", file) for own, files in data_set_splits(path) for file in files]
            if not saved:
                raise no_rows_error(path)
            found += saved
        elif (path / MANIFEST_NAME).is_file():
            raise InputError(f"{path} is a cache", hint=f"packer check {in_shell(path)}")
        elif path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file() and data_ending(file.name) is not None)
            if not files:
                raise InputError(f"{path}: no file in it that packer reads")
            named = (file.relative_to(path) for file in files)
            found += [(split or _split_of(name), path_within(path, name.as_posix())) for name in named]
        else:
            found += [(split or _split_of(Path(file.name)), file) for file in expand([str(path)])]
    return found


def _split_of(path: Path) -> str:
    parts = [path.stem, *(folder.name for folder in path.parents)]
    return next((match[1].lower() for part in parts if (match := _SPLIT.search(part))), "train")


def open_files(files: Sequence[NamedFile], recipe: Recipe) -> list[RowPart]:
    """Open files and split them into parts."""
    parts: list[RowPart] = []
    for source, (split, path) in enumerate(files):
        kind = detect_format(path)
        if kind in TABLE_FORMATS and "input_ids" in table_schema(path, kind).names:
            parts.append(TokenPart(file=path, source=source))
            continue
        named = SourceFile(source=Source(path=path.as_posix()), name=path.as_posix(), path=path, split=split)
        opened = open_input(named, recipe)
        cut = cut_input(opened, recipe.partition_bytes)
        entry = input_of(opened, cut)
        parts += [InputPart(partition=each, entry=entry, source=source) for each in cut.partitions]
    return parts
