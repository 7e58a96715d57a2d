"""Columns that a recipe declares, filled from fields of the rows, or from files whose rows name documents by doc_id.

Values of rows come while documents are made. For those of files, documents are made or reused as ever; then each shard
is written again with the values beside its documents. Rows of files may be in any order and larger than memory, so
values first go to their places in temporary files without a name, of which nothing is left however the build ends.
"""

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby, product
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.batches import Int32, Int64, Rejection, RowBatch, Sample
from packer.errors import InputError
from packer.host.files import storage_errors
from packer.layout import concatenated_ranges, numbers_of, offsets_of
from packer.pipeline.plan.input_resolution import input_place
from packer.pipeline.stages import Stages, SupervisedRows
from packer.recipe.groups import Column, Declared, declared, with_rules
from packer.recipe.recipe import Recipe
from packer.source.detect import detect_format
from packer.source.file_bytes import TABLE_FORMATS, changed_error, file_sha256
from packer.source.table_files import read_errors, record_batches, table_schema
from packer.store.arrow_columns import DocumentRows, Ragged
from packer.store.manifest import Shard
from packer.store.shards import DocumentShards
from packer.store.writing import rewrite_documents

_HINT = "a row names a document by `doc_id` and has its values, or with `start` those from one of its tokens on"


def run_with_columns(columns: Sequence[Declared], stages: Stages, rows: RowBatch) -> SupervisedRows:
    """Run the stages on rows, and add the values that rows have to their documents; rows that lack one are rejected.

    The last fields of the rows are those of the columns.
    """
    given = [*zip(columns, rows.fields[-len(columns) :], strict=True)]
    values, samples, rejections = {}, [], [*rows.rejections]
    for sample in rows.samples:
        try:
            values[sample.row] = [_of_row(own[sample.row - rows.first], sample, each) for each, own in given]
            samples.append(sample)
        except ValueError as error:
            rejections.append(Rejection(row=sample.row, code="bad_column", reason=str(error)))
    done = stages.run(replace(rows, samples=tuple(samples), rejections=tuple(rejections)))
    of_documents = [values[row] for row in done.documents.sample.tolist()]
    made: dict[bool, dict[str, Any]] = {True: {}, False: {}}
    for number, each in enumerate(columns):
        none = np.zeros((0, *each.inner), each.rule.kind)
        made[each.of_tokens][each.name] = np.concatenate([none, *(own[number] for own in of_documents)])
    return replace(done, documents=replace(done.documents, token_values=made[True], values=made[False]))


def _of_row(value: Any, sample: Sample, column: Declared) -> npt.NDArray[Any]:
    """Return the values of a row; ValueError says what is wrong with them."""
    tokens = sample.pretokenized
    if not column.of_tokens:
        return _numbers([None if value == "" else value], column)  # CSV has no other null
    if tokens is None:
        raise ValueError(f"{column.name}: only rows that are tokenized already have values of tokens")
    value = [None] * tokens.num_given if value is None else value
    if not isinstance(value, list) or len(value) != tokens.num_given:
        found = f"{len(value)} of them" if isinstance(value, list) else "none"
        raise ValueError(f"{column.name}: expected a list of {tokens.num_given} values as of tokens, found {found}")
    return _numbers(value, column)[tokens.num_padding :][: len(tokens.input_ids)]


def _numbers(values: pa.Array | list[Any], column: Declared) -> npt.NDArray[Any]:
    """Return the values as the column declares them, [R] or [R, width]: a null is a value that is missing.

    ValueError: another type or width, a number that does not fit, NaN, infinity, or a null that nothing stands for.
    """
    kind = pa.type_for_alias(column.rule.kind)
    try:
        given = pa.array(values) if isinstance(values, list) else values
        leaf = given.type
        while hasattr(leaf, "value_type"):
            leaf = leaf.value_type
        if pa.types.is_boolean(leaf) or pa.types.is_temporal(leaf):  # Arrow would read these as numbers, too
            raise ValueError(f"{column.name}: expected numbers, found {leaf}")
        typed = given.cast(kind if column.rule.width is None else pa.list_(kind, column.rule.width))
    except (pa.ArrowException, OverflowError) as error:
        expected = column.rule.kind if column.rule.width is None else f"lists of {column.rule.width} {column.rule.kind}"
        raise ValueError(f"{column.name}: expected {expected}, as its `kind` and `width` say: {error}") from None
    is_there = np.array(typed.is_valid(), np.bool_)
    found = typed.drop_null()
    flat = found if column.rule.width is None else found.flatten()
    if flat.null_count or (column.rule.missing is None and not is_there.all()):
        raise ValueError(f"{column.name}: a value is null, and the column declares nothing as `missing` for it")
    made = np.full((len(typed), *column.inner), column.fill, column.rule.kind)
    made[is_there] = numbers_of(flat).reshape(-1, *column.inner)
    if not np.isfinite(made).all():
        raise ValueError(f"{column.name}: a value is NaN or beyond {column.rule.kind}")
    return made


def pin_columns(recipe: Recipe) -> Recipe:
    """Return the recipe with the digest of each file that its columns name."""
    digest = cache(lambda file: file_sha256(input_place(file)))  # often several columns are in one file

    def pinned(rule: Column) -> Column:
        if rule.file is None:
            return rule
        found = digest(rule.file)
        if rule.sha256 not in {None, found}:
            raise InputError(f"{rule.file}: expected sha256 {rule.sha256}, found {found}", hint="it was another file")
        return msgspec.structs.replace(rule, sha256=found)

    return with_rules(recipe, pinned)


Lacking: TypeAlias = Sequence[tuple[Declared, Int64]]
"""Columns that declare nothing as missing, each with the doc_ids that its file has no value for, or too few."""


def refuse_lacking(lacking: Lacking, documents: Iterable[DocumentShards]) -> None:
    """Raise InputError if one of these documents lacks a value; those of no split need none."""
    for split, (column, ids) in product(documents, lacking):
        if len(found := np.intersect1d(split.stored("doc_id", np.int64), ids)):
            raise InputError(
                f"{column.rule.file}: document {found[0]} has no {column.name}, or not one for each of its tokens",
                hint="give it one, or declare as `missing` what stands for none",
            )


def join_columns(folder: Path, recipe: Recipe, shards: Sequence[Shard]) -> tuple[list[Shard], Lacking]:
    """Write document shards again with the values that files have for their documents, or without any."""
    columns = [each for each in declared(recipe) if each.rule.file is not None]
    doc_ids, lengths = DocumentShards(folder, shards).stored_together({"doc_id": np.int64, "length": np.int32})
    ids, first = np.unique(doc_ids, return_index=True)  # documents that are equal have the same values
    filled = [
        _Filled(each, folder, ids, lengths[first] if each.of_tokens else np.ones(len(first), np.int32))
        for each in sorted(columns, key=lambda each: each.rule.file or "")
    ]
    for file, own in groupby(filled, lambda each: each.column.rule.file or ""):
        _read(file, [*own])

    def with_values(rows: DocumentRows) -> DocumentRows:
        own = {each.column.name: each.of(rows.doc_id) for each in filled}
        values = {**rows.without_joined().values, **own}
        return replace(rows, values=dict(sorted(values.items())), joined=frozenset(own))

    made = [rewrite_documents(folder, shard, with_values, joined=bool(columns)) for shard in shards]
    return made, [(each.column, ids) for each in filled if len(ids := each.lacking())]


def _read(file: str, filled: Sequence["_Filled"]) -> None:
    """Fill some columns from their file."""
    path = input_place(file)
    if (kind := detect_format(path)) not in TABLE_FORMATS:
        raise InputError(f"{file}: values of columns are read from Parquet or Arrow", hint=_HINT)
    fields = dict.fromkeys(each.column.field for each in filled)
    with read_errors(path, kind):
        names = table_schema(path, kind).names
        if lacks := [name for name in ("doc_id", *fields) if name not in names]:
            raise InputError(f"{file}: it has no column {lacks[0]}", hint=_HINT)
        asked = dict.fromkeys(name for name in ("doc_id", "start", *fields) if name in names)
        first = 0
        for batch in record_batches(path, kind, [*asked]):
            for each in filled:
                each.put(f"{file}: rows {first} to {first + batch.num_rows - 1}", batch)
            first += batch.num_rows
    if file_sha256(path) != filled[0].column.rule.sha256:
        raise changed_error(path, "while it was read")
    if empty := [each.column for each in filled if not each.is_given.any()]:
        raise InputError(f"{file}: {empty[0].field}: it has no value for any document", hint=_HINT)


class _Filled:
    """The values of a column, at the places of some documents in the order of their ids."""

    def __init__(self, column: Declared, folder: Path, ids: Int64, sizes: Int32) -> None:
        self.column, self._ids, self._sizes, self._starts = column, ids, sizes, offsets_of(sizes)
        size = int(self._starts[-1])
        self._values = _on_disk(folder, (size, *column.inner), column.rule.kind)
        self._values[...] = column.fill
        self.is_given = _on_disk(folder, (size,), "bool")

    def put(self, where: str, batch: pa.RecordBatch) -> None:
        """Put the values of a record batch at their places."""
        column, of_tokens = self.column, self.column.of_tokens
        ids, values = _integers(where, batch, "doc_id"), batch.column(column.field)
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        if (unknown := self._ids[at] != ids).any():
            raise InputError(
                f"{where}: no document has the doc_id {ids[unknown.argmax()]}",
                hint="a document whose ids or labels change gets another doc_id: leave its old values out",
            )
        is_there, begin = np.array(values.is_valid(), np.bool_), np.zeros_like(ids)
        length, is_whole = is_there.astype(np.int64), is_there
        if of_tokens:
            if not hasattr(values, "value_lengths"):
                raise InputError(f"{where}: {column.field} is {values.type}; expected lists", hint=_HINT)
            length = np.array(values.value_lengths().fill_null(0), np.int64) * is_there
            if "start" in batch.schema.names:
                begin, is_whole = _integers(where, batch, "start"), np.zeros_like(is_there)
        sizes = self._sizes[at]
        if (wrong := (begin < 0) | (length > sizes - begin) | (is_whole & (length != sizes))).any():
            row = int(wrong.argmax())
            said = f"{length[row]} values of {column.name} from token {begin[row]} on"
            raise InputError(f"{where}: {said}, but document {ids[row]} has {sizes[row]} tokens", hint=_HINT)
        places = concatenated_ranges(self._starts[at] + begin, length)
        if self.is_given[places].any() or len(np.unique(places)) < len(places):
            raise InputError(f"{where}: a value of {column.name} is given twice", hint=_HINT)
        self.is_given[places] = True
        try:
            self._values[places] = _numbers(values.flatten() if of_tokens else values.drop_null(), column)
        except ValueError as error:
            raise InputError(f"{where}: {error}", hint=_HINT) from None

    def lacking(self) -> Int64:
        """Return the ids of documents that lack a value for which nothing stands."""
        is_whole = np.logical_and.reduceat(self.is_given, self._starts[:-1])
        return self._ids[~is_whole & (self.column.rule.missing is None)]

    def of(self, doc_ids: Int64) -> npt.NDArray[Any] | Ragged:
        """Return the values of some documents."""
        at = np.searchsorted(self._ids, doc_ids)
        values = self._values[concatenated_ranges(self._starts[at], self._sizes[at])]
        return Ragged(values=values, offsets=offsets_of(self._sizes[at])) if self.column.of_tokens else values


def _on_disk(folder: Path, shape: tuple[int, ...], kind: str) -> npt.NDArray[Any]:
    """Return an array of zeros in a file without a name, which is gone with the array."""
    with storage_errors("write", folder), tempfile.TemporaryFile(dir=folder) as file:
        # What is mapped and has no room on the disk would kill the process.
        os.posix_fallocate(file.fileno(), 0, max(int(np.prod(shape)) * np.dtype(kind).itemsize, 1))
        return np.memmap(file, kind, shape=shape)


def _integers(where: str, batch: pa.RecordBatch, name: str) -> Int64:
    """Return integers of 64 bits; an unsigned doc_id has the bits of the signed one."""
    values = batch.column(name)
    if not pa.types.is_integer(values.type) or values.null_count:
        nulls = " with nulls" if values.null_count else ""
        raise InputError(f"{where}: {name}: expected integers, found {values.type}{nulls}", hint=_HINT)
    found: Int64 = numbers_of(values.cast(pa.int64(), safe=False))
    return found
