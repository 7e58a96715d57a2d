"""Rows that no cache was built from: files as a build takes them, and rows of ids that another tool prepared."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from packer.audit.check.row_facts import RowPart, TextPart
from packer.audit.foreign.row_parts import TokenRow, sequence_starts
from packer.audit.foreign.tables import ForeignPart
from packer.audit.input_parts import InputPart
from packer.batches import Int64, PretokenizedTokens, RowBatch, Sample
from packer.data_files import data_ending
from packer.errors import InputError
from packer.pipeline.input_resolution import SourceFile
from packer.pipeline.inputs import open_input
from packer.pipeline.plan import cut_input, input_of
from packer.recipe import Recipe, Source
from packer.source import data_set_splits, detect_format, expand, is_data_set
from packer.source.partition import TABLE_FORMATS
from packer.source.table_files import table_schema
from packer.store.manifest import MANIFEST_NAME

NamedFile: TypeAlias = tuple[str, Path]
"""A split, and a file with rows of it."""

_SPLIT = re.compile(r"(train|validation|valid|val|dev|test|eval)(?![a-z])")
"""How names of files and folders begin that hold one split, as of the Hugging Face Hub."""

_BATCH_ROWS = 1024
_MAX_ID = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPart:
    """A Parquet or Arrow file with a column ``input_ids``; a row that several sequences were packed into is several."""

    file: Path
    source: int

    def batches(self, max_row_bytes: int) -> Iterator[tuple[RowBatch, Int64]]:  # noqa: ARG002 - as of other parts
        part, first = ForeignPart(self.file, "", [self.file]), 0
        samples: list[Sample] = []
        numbers: list[int] = []
        for row in part.read(range(len(part))):
            own = [] if row.columns_differ else _sequences(row)
            samples += [
                Sample(kind="tokens", row=first + number, given=each) for number, each in enumerate(own, len(samples))
            ]
            numbers += [row.number] * len(own)
            if len(samples) >= _BATCH_ROWS:
                yield _batch(samples), np.array(numbers)
                first, samples, numbers = first + len(samples), [], []
        if samples or not first:
            yield _batch(samples), np.array(numbers, np.int64)


def _batch(samples: list[Sample]) -> RowBatch:
    return RowBatch(samples=tuple(samples), rejections=(), num_rows=len(samples))


def _sequences(row: TokenRow) -> list[PretokenizedTokens]:
    """The sequences of a row, without padding."""
    ids = np.clip(row.input_ids, 0, _MAX_ID).astype(np.int32)
    weight = row.trained.astype(np.float32)
    mask = row.columns.get("attention_mask")
    kept = np.ones(len(ids), np.bool_) if mask is None else mask != 0
    number = np.cumsum(sequence_starts(row))
    parts = [np.flatnonzero(kept & (number == each)) for each in range(1, int(number.max(initial=0)) + 1)]
    return [
        PretokenizedTokens(input_ids=ids[own], weight=weight[own], num_padding=0, by_labels=row.labels is not None)
        for own in parts
        if len(own)
    ]


def find_files(asked: Sequence[tuple[str | None, Path]]) -> list[NamedFile]:
    """The files that paths name, each with its split.

    A split that is not given is that of a saved DatasetDict, or what the name of the file, or of a folder on the way to
    it, begins with: ``data/validation-00000-of-00001.parquet``. Else it is ``train``.

    Raises:
        InputError: there is no such file, a folder without any, or a cache.

    """
    found: list[NamedFile] = []
    for split, path in asked:
        if is_data_set(path):
            found += [(split or own or "train", file) for own, files in data_set_splits(path) for file in files]
        elif (path / MANIFEST_NAME).is_file():
            raise InputError(f"{path} is a cache", hint=f"packer check {path}")
        elif path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file() and data_ending(file.name) is not None)
            if not files:
                raise InputError(f"{path}: no file in it that packer reads")
            found += [(split or _split_of(file.relative_to(path)), file) for file in files]
        else:
            found += [(split or _split_of(Path(file.name)), file) for file in expand([str(path)])]
    return found


def _split_of(path: Path) -> str:
    parts = [path.stem, *(folder.name for folder in path.parents)]
    return next((match[1] for part in parts if (match := _SPLIT.match(part))), "train")


def open_files(files: Sequence[NamedFile], recipe: Recipe) -> list[RowPart]:
    """The parts of files.

    Raises:
        InputError: one cannot be read, or is nothing packer knows.

    """
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
        parts += [TextPart(part=InputPart(partition=each, entry=entry, source=source)) for each in cut.partitions]
    return parts
