"""Columns that a recipe declares, filled from fields of the rows while their documents are made."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from packer.arrow_arrays import numbers_of
from packer.batches import Rejection, RowBatch, Sample
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
        columns = [*zip(self._columns, rows.fields[-len(self._columns) :], strict=True)]
        values, samples, rejections = {}, [], [*rows.rejections]
        for sample in rows.samples:
            try:
                values[sample.row] = [_of_row(given[sample.row - rows.first], sample, each) for each, given in columns]
                samples.append(sample)
            except ValueError as error:
                rejections.append(Rejection(row=sample.row, code="bad_column", reason=str(error)))
        done = stages.run(replace(rows, samples=tuple(samples), rejections=tuple(rejections)))
        of_documents = [values[row] for row in done.documents.sample.tolist()]
        made: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        for number, each in enumerate(self._columns):
            none = np.zeros((0, *each.inner), each.rule.kind)
            made[each.of_tokens][each.name] = np.concatenate([none, *(own[number] for own in of_documents)])
        return replace(done, documents=replace(done.documents, token_values=made[True], values=made[False]))


def _of_row(value: Any, sample: Sample, column: Declared) -> npt.NDArray[Any]:
    """Return the values of a row; ValueError says what is wrong with them."""
    tokens = sample.pretokenized
    if not column.of_tokens:
        return numbers([None if value == "" else value], column)  # CSV has no other null
    if tokens is None:
        raise ValueError(f"{column.name}: only rows that are tokenized already have values of tokens")
    value = [None] * tokens.num_given if value is None else value
    if not isinstance(value, list) or len(value) != tokens.num_given:
        found = f"{len(value)} of them" if isinstance(value, list) else "none"
        raise ValueError(f"{column.name}: expected a list of {tokens.num_given} values as of tokens, found {found}")
    return numbers(value, column)[tokens.num_padding :][: len(tokens.input_ids)]


def numbers(values: pa.Array | list[Any], column: Declared) -> npt.NDArray[Any]:
    """Return the values as the column declares them: a null is a value that is missing.

    Returns:
        [R] or, if the column has a width, [R, width]

    Raises:
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
        raise ValueError(f"{column.name}: {error}") from None
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
