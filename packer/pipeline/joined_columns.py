"""Columns that a recipe declares, filled from files whose rows name documents by doc_id.

Documents are made or reused as ever; then each shard is written again with the values beside its documents. Rows may be
in any order and larger than memory, so values first go to their places in temporary files without a name, of which
nothing is left however the build ends.
"""

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.arrow_arrays import numbers_of
from packer.batches import Int64
from packer.errors import InputError
from packer.host.limits import storage_errors
from packer.layout import concatenated_ranges, offsets_of
from packer.pipeline.columns import numbers
from packer.pipeline.plan.input_resolution import input_place
from packer.recipe.column_rules import Column, Declared, declared, with_rules
from packer.recipe.recipe import Recipe
from packer.source.detect import detect_format
from packer.source.file_bytes import changed_error, file_sha256
from packer.source.partition import TABLE_FORMATS
from packer.source.table_files import read_errors, record_batches, table_schema
from packer.store.arrow_columns import DocumentRows, Ragged
from packer.store.document_shards import DocumentShards
from packer.store.manifest import Shard
from packer.store.writing import rewrite_documents

_HINT = "a row names a document by `doc_id` and has its values, or with `start` those from one of its tokens on"


def pin_columns(recipe: Recipe) -> Recipe:
    """Return the recipe with the digest of each file that its columns name.

    Raises:
        InputError: a file cannot be read, or its digest is not the one in the recipe.
    """

    def pinned(rule: Column) -> Column:
        if rule.file is None:
            return rule
        found = file_sha256(input_place(rule.file))
        if rule.sha256 not in {None, found}:
            raise InputError(f"{rule.file}: expected sha256 {rule.sha256}, found {found}", hint="it was another file")
        return msgspec.structs.replace(rule, sha256=found)

    return with_rules(recipe, pinned)


def join_columns(folder: Path, recipe: Recipe, shards: Sequence[Shard]) -> list[Shard]:
    """Write document shards again with the values that files have for their documents; without any, if they have some.

    Raises:
        InputError: a file cannot be read, names a document that is not there, or has none for one; names both.
        CheckError: a shard is damaged.
        StorageError: the disk cannot be written.
    """
    columns = [each for each in declared(recipe) if each.rule.file is not None]
    if not columns and not any(shard.joined for shard in shards):
        return [*shards]
    with ExitStack() as opened:
        joined = _Joined(folder, DocumentShards(folder, shards), opened)
        for file, own in groupby(sorted(columns, key=lambda each: each.rule.file or ""), lambda each: each.rule.file):
            joined.read(file or "", [*own])
        return [rewrite_documents(folder, shard, joined.added, joined=bool(columns)) for shard in shards]


class _Joined:
    """Values of files, at the places of the documents they name: once for documents that are equal."""

    def __init__(self, folder: Path, documents: DocumentShards, opened: ExitStack) -> None:
        self._folder, self._opened = folder, opened
        doc_ids, lengths = documents.stored_together({"doc_id": np.int64, "length": np.int32})
        self._ids, first = np.unique(doc_ids, return_index=True)
        self._starts = {True: offsets_of(lengths[first]), False: np.arange(len(first) + 1)}  # of tokens, of documents
        self._spread: list[tuple[Declared, npt.NDArray[Any]]] = []

    def read(self, file: str, columns: Sequence[Declared]) -> None:
        """Read some columns from a file."""
        path = input_place(file)
        if (kind := detect_format(path)) not in TABLE_FORMATS:
            raise InputError(f"{file}: values of columns are read from Parquet or Arrow", hint=_HINT)
        spread = []
        for each in columns:
            size = int(self._starts[each.of_tokens][-1])
            spread.append((each, self._empty((size, *each.inner), each.rule.kind), self._empty((size,), "bool")))
            spread[-1][1][...] = each.fill
        with read_errors(path, kind):
            names = table_schema(path, kind).names
            if lacks := [name for name in ("doc_id", *(each.field for each in columns)) if name not in names]:
                raise InputError(f"{file}: it has no column {lacks[0]}", hint=_HINT)
            asked = [name for name in ("doc_id", "start") if name in names] + [each.field for each in columns]
            first = 0
            for batch in record_batches(path, kind, asked):
                for each, values, is_given in spread:
                    self._put(f"{file}: rows {first} to {first + batch.num_rows - 1}", batch, each, values, is_given)
                first += batch.num_rows
        if file_sha256(path) != columns[0].rule.sha256:
            raise changed_error(path, "while it was read")
        for each, values, is_given in spread:
            if each.rule.missing is None and not is_given.all():
                starts = self._starts[each.of_tokens]
                lacking = self._ids[np.searchsorted(starts, is_given.argmin(), side="right") - 1]
                raise InputError(
                    f"{file}: document {lacking} has no {each.name}, or not one for each of its tokens",
                    hint="give it one, or declare as `missing` what stands for none",
                )
            self._spread.append((each, values))

    def added(self, rows: DocumentRows) -> DocumentRows:
        """Return documents with their values, and without those of files before."""
        at = np.searchsorted(self._ids, rows.doc_id)
        own = dict(rows.without_joined().values)
        for each, values in self._spread:
            if each.of_tokens:
                tokens = concatenated_ranges(self._starts[True][at], rows.length)
                own[each.name] = Ragged(values=values[tokens], offsets=offsets_of(rows.length))
            else:
                own[each.name] = values[at]
        joined = frozenset(each.name for each, _ in self._spread)
        return replace(rows, values=dict(sorted(own.items())), joined=joined)

    def _put(
        self, where: str, batch: pa.RecordBatch, column: Declared, into: npt.NDArray[Any], is_given: npt.NDArray[Any]
    ) -> None:
        """Put the values of a record batch at their places."""
        ids, values = _integers(where, batch, "doc_id"), batch.column(column.field)
        starts = self._starts[column.of_tokens]
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        sizes = np.diff(starts)[at]
        is_there = np.array(values.is_valid(), np.bool_)
        begin, length, is_whole = np.zeros_like(ids), is_there.astype(np.int64), is_there & column.of_tokens
        if column.of_tokens:
            if not hasattr(values, "value_lengths"):
                raise InputError(f"{where}: {column.field} is {values.type}; expected lists", hint=_HINT)
            length *= np.array(values.value_lengths().fill_null(0), np.int64)
            if "start" in batch.schema.names:
                begin, is_whole = _integers(where, batch, "start"), np.zeros_like(is_there)
        values = values.flatten() if column.of_tokens else values.drop_null()
        if (unknown := self._ids[at] != ids).any():
            raise InputError(f"{where}: no document has the doc_id {ids[unknown.argmax()]}", hint=_HINT)
        if (wrong := (begin < 0) | (begin + length > sizes) | (is_whole & (length != sizes))).any():
            row = int(wrong.argmax())
            said = f"{length[row]} values of {column.name} from token {begin[row]} on"
            raise InputError(f"{where}: {said}, but document {ids[row]} has {sizes[row]} tokens", hint=_HINT)
        places = concatenated_ranges(starts[at] + begin, length)
        if is_given[places].any() or len(np.unique(places)) < len(places):
            raise InputError(f"{where}: a value of {column.name} is given twice", hint=_HINT)
        is_given[places] = True
        try:
            into[places] = numbers(values, column)
        except ValueError as error:
            raise InputError(f"{where}: {error}", hint=_HINT) from None

    def _empty(self, shape: tuple[int, ...], kind: str) -> npt.NDArray[Any]:
        """Return an array of zeros on the disk of the cache."""
        with storage_errors("write", self._folder):
            file = self._opened.enter_context(tempfile.TemporaryFile(dir=self._folder))  # noqa: SIM115
            # What is mapped and has no room on the disk would kill the process.
            os.posix_fallocate(file.fileno(), 0, max(int(np.prod(shape)) * np.dtype(kind).itemsize, 1))
            return np.memmap(file, kind, shape=shape)


def _integers(where: str, batch: pa.RecordBatch, name: str) -> Int64:
    values = batch.column(name)
    if not pa.types.is_integer(values.type) or values.null_count:
        raise InputError(f"{where}: {name}: expected integers, found {values.type} or nulls", hint=_HINT)
    found: Int64 = numbers_of(values.cast(pa.int64()))
    return found
