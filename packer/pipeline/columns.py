"""Columns that a recipe declares, filled from fields of the rows while their documents are made."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.arrow_arrays import numbers_of
from packer.batches import Columns, Rejection, RowBatch, Sample
from packer.pipeline.stages import Stages, SupervisedRows
from packer.recipe.column_rules import Declared, declared
from packer.recipe.recipe import Recipe


class RowColumns:
    """The columns of a recipe whose values are in the rows; batches are read with `fields` as their last ones."""

    def __init__(self, recipe: Recipe) -> None:
        self._columns = [each for each in declared(recipe) if each.rule.file is None]
        self.fields = tuple(each.field for each in self._columns)

    def run(self, rows: RowBatch, stages: Stages) -> SupervisedRows:
        """Run the stages on rows, and add the values of rows to their documents; rows that lack one are rejected."""
        if not self._columns:
            return stages.run(rows)
        given = dict(zip(row_numbers(rows), zip(*rows.fields[-len(self._columns) :], strict=True), strict=True))
        values, samples, rejections = {}, [], [*rows.rejections]
        for sample in rows.samples:
            pairs = zip(self._columns, given[sample.row], strict=True)
            try:
                values[sample.row] = {each.name: _of_row(value, sample, each) for each, value in pairs}
                samples.append(sample)
            except ValueError as error:  # Arrow's are some, too
                rejections.append(Rejection(row=sample.row, code="bad_column", reason=str(error)))
        done = stages.run(replace(rows, samples=tuple(samples), rejections=tuple(rejections)))
        made: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        for each in self._columns:
            none = np.zeros((0, *each.inner), each.rule.kind)
            own = [values[row][each.name] for row in done.documents.sample.tolist()]
            made[each.of_tokens][each.name] = np.concatenate([none, *own])
        columns = Columns(tokens=made[True], documents=made[False])
        return replace(done, documents=replace(done.documents, columns=columns))


def row_numbers(rows: RowBatch) -> list[int]:
    """Return the rows of a batch in the order of its `fields`."""
    return sorted([*(each.row for each in rows.samples), *(each.row for each in rows.rejections)])


def _of_row(value: Any, sample: Sample, column: Declared) -> npt.NDArray[Any]:
    """Return the values of a row; ValueError says what is wrong with them."""
    tokens = sample.pretokenized
    if not column.of_tokens:
        return numbers(pa.array([value]), column)
    if tokens is None:
        raise ValueError(f"{column.name}: only rows that are tokenized already have values of tokens")
    value = [None] * tokens.num_given if value is None else value
    if not isinstance(value, list) or len(value) != tokens.num_given:
        found = f"{len(value)} of them" if isinstance(value, list) else "none"
        raise ValueError(f"{column.name}: expected a list of {tokens.num_given} values as of tokens, found {found}")
    return numbers(pa.array(value), column)[tokens.num_padding :][: len(tokens.input_ids)]


def numbers(values: pa.Array, column: Declared) -> npt.NDArray[Any]:
    """Return the values as the column declares them: a null is a value that is missing.

    Returns:
        [R] or, if the column has a width, [R, width]

    Raises:
        ValueError: another type or width, a number that does not fit, NaN, or a null where nothing stands for it.
    """
    kind = {"int32": pa.int32(), "float32": pa.float32()}[column.rule.kind]
    try:
        typed = values.cast(kind if column.rule.width is None else pa.list_(kind, column.rule.width))
    except pa.ArrowException as error:
        raise ValueError(f"{column.name}: {error}") from None
    is_there = np.array(typed.is_valid(), np.bool_)
    found = typed.drop_null()
    flat = found if column.rule.width is None else found.flatten()
    if flat.null_count or (column.rule.missing is None and not is_there.all()):
        raise ValueError(f"{column.name}: a value is null, and the column declares nothing as `missing` for it")
    made = np.full((len(typed), *column.inner), column.fill, column.rule.kind)
    made[is_there] = numbers_of(flat).reshape(-1, *column.inner)
    if np.isnan(made).any():
        raise ValueError(f"{column.name}: a value is NaN")
    return made
