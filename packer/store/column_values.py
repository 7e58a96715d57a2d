"""Values of columns that a recipe declares, as training reads them: at the places of the tokens they belong to.

Blocks hold none: each piece of a block names its document, where in it the piece starts, and its slots. So a column is
stored once, however documents are cut and packed, and one that comes later leaves blocks as they are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import CheckError
from packer.layout import concatenated_ranges
from packer.recipe.column_rules import Declared
from packer.store.arrow_columns import Ragged
from packer.store.block_shards import FoundBlocks
from packer.store.document_shards import DocumentShards, FoundDocuments
from packer.store.files import damage


def document_values(found: FoundDocuments, column: Declared) -> list[Any]:
    """Return the values of documents: those of the tokens of each, or its number."""
    for rows in {id(rows): rows for rows in found.opened}.values():
        values = rows.values.get(column.name)
        flat = values.values if isinstance(values, Ragged) else values
        shape = None if flat is None else (str(flat.dtype), flat.shape[1:], isinstance(values, Ragged))
        if shape != (column.rule.kind, column.inner, column.of_tokens):
            raise CheckError(f"a shard of documents lacks the column {column.name}, which the recipe declares")
    return [rows.values[column.name][row] for rows, row in zip(found.opened, found.rows, strict=True)]


def token_values(found: FoundDocuments, column: Declared) -> list[npt.NDArray[Any]]:
    """Return the values of the tokens of documents; of a column of documents, its number at each token."""
    values = document_values(found, column)
    if column.of_tokens:
        return values
    return [np.full(length, value) for length, value in zip(found.values("length"), values, strict=True)]


def block_values(
    blocks: FoundBlocks, block_len: int, documents: DocumentShards, columns: Sequence[Declared]
) -> dict[str, npt.NDArray[Any]]:
    """Return the slots of blocks by name of a column, from the documents of their split.  # [B, L] or [B, L, W]"""
    pieces = (blocks.doc_ids(), *(blocks.values(name) for name in ("doc_starts", "doc_lengths", "doc_places")))
    doc_id, start, length, place = (np.concatenate([np.zeros(0, np.int64), *each]) for each in pieces)
    numbers = documents.find_all(doc_id)
    found = documents.locate(numbers) if (numbers >= 0).all() else None
    if found is None or (start + length > np.array(found.values("length"), np.int64)).any():
        raise damage(documents.folder, "", "is damaged: a block has a piece that no document has")
    block = np.repeat(np.arange(len(blocks)), [len(each) for each in pieces[0]])
    slots = concatenated_ranges(block * block_len + place, length)
    bounds, made = [*zip(start.tolist(), (start + length).tolist(), strict=True)], {}
    for column in columns:
        none = np.zeros((0, *column.inner), column.rule.kind)
        flat = np.full((len(blocks) * block_len, *column.inner), column.fill, column.rule.kind)
        values = zip(token_values(found, column), bounds, strict=True)
        flat[slots] = np.concatenate([none, *(each[first:last] for each, (first, last) in values)])
        made[column.name] = flat.reshape(len(blocks), block_len, *column.inner)
    return made
