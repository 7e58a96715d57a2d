"""Columns that recipes declare, as a loader was asked for them: values for each position of its micro-batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.arguments import LoaderOptions
from packer.load.layouts import Beside
from packer.load.row_source import RowSource
from packer.recipe.column_rules import Declared, declared
from packer.store.cache import Cache, FoundBlocks, FoundDocuments
from packer.store.column_values import block_values, token_values

PREFIX = "columns."
"""Before the name of a column while it is laid out, as a column may be called as anything else of a micro-batch."""


def asked_columns(caches: Sequence[Cache], names: Sequence[str]) -> list[Declared]:
    """Return the columns with these names.

    Raises:
        UsageError: a cache has no such column, or another than the others.
    """
    found = []
    for name in names:
        of_caches = [{each.name: each for each in declared(cache.manifest.recipe)} for cache in caches]
        for cache, there in zip(caches, of_caches, strict=True):
            if name not in there:
                raise UsageError(f"{cache.folder} has no column {name}", hint=f"it has: {', '.join(there) or 'none'}")
        own = of_caches[0][name]
        if any((each[name].of_tokens, *_form(each[name])) != (own.of_tokens, *_form(own)) for each in of_caches):
            raise UsageError(f"the column {name} is not the same in all caches", hint="kind, width and missing agree")
        found.append(own)
    return found


def _form(column: Declared) -> tuple[Any, ...]:
    return column.rule.kind, column.inner, column.fill


class BatchColumns:
    """The columns that a loader was asked for."""

    def __init__(self, source: RowSource, options: LoaderOptions) -> None:
        self._columns = asked_columns(source.caches, options.columns)
        self._rows = source.rows
        self._documents = [cache.documents(options.split) for cache in source.caches]

    def values(self, rows: Int64, found: FoundBlocks | FoundDocuments) -> dict[str, Beside]:
        """Return the values of blocks or documents for a layout, by :data:`PREFIX` and name."""
        made: dict[str, list[Any]] = {each.name: [None] * len(rows) for each in self._columns}
        if isinstance(found, FoundDocuments):
            made = {each.name: token_values(found, each) for each in self._columns}
        else:
            for (places, shards, numbers), documents in zip(self._rows.by_part(rows), self._documents, strict=True):
                own = block_values(shards.locate(numbers), self._rows.block_len, documents, self._columns)
                for name, place, number in ((name, *at) for name in own for at in enumerate(places.tolist())):
                    made[name][number] = own[name][place]
        size = self._rows.block_len or 1
        return {
            f"{PREFIX}{each.name}": (made[each.name], np.full((size, *each.inner), each.fill, each.rule.kind))
            for each in self._columns
        }
