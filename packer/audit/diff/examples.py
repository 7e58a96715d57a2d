"""Rows whose documents differ, shown: where they lie in each cache, where their tokens part, why a row is gone."""

from collections.abc import Iterator, Sequence

from packer.audit.diff.documents import ChangedRow, DocumentComparison
from packer.audit.diff.report import RowExample, RowPlace
from packer.audit.diff.tokens import compare_documents
from packer.audit.runs import kept_tokenizer
from packer.store.cache import Cache
from packer.store.rejected import Rejected, read_rejected

Place = tuple[str, int]
"""Path of an input and a row of it."""


def make_examples(
    old: Cache, new: Cache, comparisons: Sequence[tuple[str, DocumentComparison]], most: int
) -> tuple[RowExample, ...]:
    """Up to `most` rows, splits in turn.

    Raises:
        CheckError: a document, a kept tokenizer or rejected.jsonl is damaged.

    """
    found = list(_in_turn([[(split, row) for row in comparison.rows(most)] for split, comparison in comparisons]))[
        :most
    ]
    reasons = tuple(
        _reasons(cache, _missing(cache, found, is_old=is_old)) for cache, is_old in ((old, True), (new, False))
    )
    return tuple(
        RowExample(
            split=split,
            old=_place(old, row.source_old, row.row_old, row.num_old, reasons[0]),
            new=_place(new, row.source_new, row.row_new, row.num_new, reasons[1]),
            tokens=None
            if row.document_old is None or row.document_new is None
            else compare_documents(
                old.documents(split).read(row.document_old),
                new.documents(split).read(row.document_new),
                (kept_tokenizer(old.folder, old.manifest), kept_tokenizer(new.folder, new.manifest)),
            ),
        )
        for split, row in found
    )


def _in_turn(lists: Sequence[Sequence[tuple[str, ChangedRow]]]) -> Iterator[tuple[str, ChangedRow]]:
    """The first of each list, then the second of each; rows that both caches have first."""
    for both in (True, False):
        kinds = [[entry for entry in entries if (entry[1].num_old > 0 < entry[1].num_new) == both] for entries in lists]
        for place in range(max(map(len, kinds), default=0)):
            yield from (entries[place] for entries in kinds if place < len(entries))


def _missing(cache: Cache, rows: Sequence[tuple[str, ChangedRow]], *, is_old: bool) -> set[Place]:
    """Rows of which this cache has no document that the other one lacks."""
    places = [
        (row.source_old, row.row_old) if is_old else (row.source_new, row.row_new)
        for _, row in rows
        if not (row.num_old if is_old else row.num_new)
    ]
    inputs = cache.manifest.inputs
    return {(inputs[source].path, row) for source, row in places if source is not None and row is not None}


def _reasons(cache: Cache, wanted: set[Place]) -> dict[Place, Rejected]:
    """Why some rows were rejected, of those that were."""
    if not wanted:
        return {}
    lines = (line for line in read_rejected(cache.folder, cache.manifest) if line.document is None)
    return {(line.source, line.row): line for line in lines if (line.source, line.row) in wanted}


def _place(
    cache: Cache, source: int | None, row: int | None, documents: int, reasons: dict[Place, Rejected]
) -> RowPlace | None:
    if source is None or row is None:
        return None
    entry = cache.manifest.inputs[source]
    line = reasons.get((entry.path, row))
    if not documents and line is None:
        return None
    return RowPlace(
        input=entry.path,
        row=row,
        documents=documents,
        code=None if line is None else line.code,
        reason=None if line is None else line.reason,
    )
