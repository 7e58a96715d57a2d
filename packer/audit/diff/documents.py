"""Documents of two caches: how many they share, which rows the others come from, and where their tokens differ.

Documents are the same where their doc_ids are: it is a digest of ids, labels and weights. Those that differ are
reported by row. Rows are paired by the input they lie in and their number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from packer.audit.text_runs import decode_runs, kept_tokenizer
from packer.batches import Bool, Int32, Int64
from packer.layout import MASKED
from packer.store.cache import Cache
from packer.store.document_shards import Document, DocumentShards
from packer.store.rejected import Rejected, read_rejected

_ROW_BITS = 40
"""A row of an input is one number: that of the pair of inputs it lies in, and below it its own."""

Columns = Sequence[npt.NDArray[np.generic]]
"""Rows as columns of one length."""

_BEFORE, _SHOWN = 12, 24
"""Tokens of which the text is given: before the first difference, and of what differs."""

_SPANS = 4
"""Runs of labels listed of each side."""

Place = tuple[int, int]
"""Input and row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsDiff:
    """Documents of a split, as a multiset of doc_ids. Where none is in one cache only, their order or rows differ."""

    split: str
    only_old: int
    only_new: int
    both: int
    rows_changed: int
    """Rows that have documents of their own in each cache."""

    rows_only_old: int
    """Rows that have documents in OLD that NEW has not, and none the other way."""

    rows_only_new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSide:
    """A row in one cache, and its first document that the other cache does not have, around the first difference."""

    input: str
    row: int
    documents: int
    """Documents of the row that the other cache does not have."""

    code: str | None = None
    """Where the row was rejected: why."""

    reason: str | None = None
    doc_id: int | None = None
    """None where there is no such document on both sides; nothing is compared then."""

    num_tokens: int = 0
    num_trained: int = 0
    before: str = ""
    """Text of the tokens before the first difference."""

    num_differing: int = 0
    """Tokens from the first that differs to the last; 0 where only labels or weights differ."""

    text: str = ""
    """Text of the first of those tokens."""

    input_ids: tuple[int, ...] = ()
    """The first of those tokens."""

    num_only_trained: int = 0
    """Tokens trained in this document and not in the other, of those both begin with."""

    only_trained: tuple[tuple[int, int, str], ...] = ()
    """The first runs of them: start, end, text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExample:
    """A row whose documents differ.

    A side is None where its cache has no document of the row that the other one lacks, and did not reject the row.
    """

    split: str
    old: RowSide | None
    new: RowSide | None
    what: Literal["ids", "labels", "weights"] | None
    """The first of these that differs; None where only one side has documents of its own."""

    at: int
    """First token that differs, from 0."""

    same_text: bool
    """Whether both documents decode to the same text, each by its own tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The documents of one cache's split. N documents."""

    doc_id: Int64  # [N]
    row: Int64  # [N] of its input
    key: Int64  # [N] pair of inputs and row in one number

    @classmethod
    def of(cls, doc_id: Int64, source: Int64, row: Int64, inputs: Sequence[int], *, is_new: bool) -> Self:
        """Number the rows.

        Args:
            doc_id: int64[N]
            source: input of the manifest, -1 for none.  # int64[N]
            row: of that input.  # int64[N]
            inputs: of each pair, the input of this cache. An input i without a pair counts as pair P + 2i + 2 of the
                old cache, or P + 2i + 3 of the new one.
            is_new: which of them this is.

        """
        size = max([int(source.max(initial=0)), *inputs]) + 2
        pair_of = len(inputs) + 2 * np.arange(size, dtype=np.int64) + is_new
        pair_of[np.array(inputs, np.int64) + 1] = np.arange(len(inputs))
        return cls(doc_id=doc_id, row=row, key=(pair_of[source + 1] << _ROW_BITS) | row)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A row whose documents differ: where it lies in each cache, and its documents that the other one does not have."""

    place_old: Place | None
    """Also where OLD should hold the row and has nothing of it; None where its input is not in OLD."""

    place_new: Place | None
    old: Int64
    """Numbers of documents."""

    new: Int64


class DocumentComparison:
    """The documents of a split in two caches."""

    def __init__(
        self, split: str, old: Documents, new: Documents, old_inputs: Sequence[int], new_inputs: Sequence[int]
    ) -> None:
        self.split = split
        self._old, self._new = old, new
        self._inputs = old_inputs, new_inputs
        # Equal documents of one row belong together before equal documents of any two rows do.
        matched_old, matched_new = match_rows([old.key, old.doc_id], [new.key, new.doc_id])
        rest_old, rest_new = np.flatnonzero(~matched_old), np.flatnonzero(~matched_new)
        more_old, more_new = match_rows([old.doc_id[rest_old]], [new.doc_id[rest_new]])
        self._left_old, self._left_new = rest_old[~more_old], rest_new[~more_new]
        self._rows_old, self._rows_new = old.key[self._left_old], new.key[self._left_new]

    @classmethod
    def of(cls, old: Cache, new: Cache, split: str, pairs: Mapping[int, int]) -> Self:
        """The documents of two caches; `pairs`: input of the old one → input of the new one."""
        inputs = old.manifest.inputs, new.manifest.inputs
        chosen = any(cache.manifest.selection is not None for cache in (old, new))  # then rows of an input are anywhere
        own = [(a, b) for a, b in pairs.items() if chosen or inputs[0][a].split == inputs[1][b].split == split]
        ours, theirs = [a for a, _ in own], [b for _, b in own]
        return cls(
            split, _documents(old, split, ours, is_new=False), _documents(new, split, theirs, is_new=True), ours, theirs
        )

    def report(self) -> DocumentsDiff | None:
        """Counts; None where documents, their order and their rows are the same."""
        old, new = self._old, self._new
        if np.array_equal(old.doc_id, new.doc_id) and np.array_equal(old.row, new.row):
            return None
        return DocumentsDiff(
            split=self.split,
            only_old=len(self._left_old),
            only_new=len(self._left_new),
            both=len(old.doc_id) - len(self._left_old),
            rows_changed=len(np.intersect1d(self._rows_old, self._rows_new)),
            rows_only_old=len(np.setdiff1d(self._rows_old, self._rows_new)),
            rows_only_new=len(np.setdiff1d(self._rows_new, self._rows_old)),
        )

    def rows(self, most: int) -> list[ChangedRow]:
        """Up to `most` rows that differ: first those of both caches, and of each input the first before any second."""
        found: list[ChangedRow] = []
        for rows in (
            np.intersect1d(self._rows_old, self._rows_new),
            np.setdiff1d(self._rows_old, self._rows_new),
            np.setdiff1d(self._rows_new, self._rows_old),
        ):
            spread = np.lexsort((rows, occurrences(rows >> _ROW_BITS)))
            found += [self._row(key) for key in rows[spread][: most - len(found)].tolist()]
        return found

    def _row(self, key: int) -> ChangedRow:
        pair, row = divmod(key, 1 << _ROW_BITS)
        sources: tuple[int | None, ...]
        if pair < len(self._inputs[0]):
            sources = tuple(inputs[pair] for inputs in self._inputs)
        else:
            source, is_new = divmod(pair - len(self._inputs[0]) - 2, 2)
            sources = (None, source) if is_new else (source, None)
        old, new = (None if source is None else (source, row) for source in sources)
        return ChangedRow(
            place_old=old,
            place_new=new,
            old=self._left_old[self._rows_old == key],
            new=self._left_new[self._rows_new == key],
        )


def match_rows(old: Columns, new: Columns) -> tuple[Bool, Bool]:
    """Which rows of each list have their like in the other; of equal rows, the first ones.

    Worked example: [7, 7, 7, 8] and [9, 7, 7] give [T, T, F, F] and [F, T, T].

    Returns:
        bool[N] and bool[M]; both have the same number of True, the size of the multisets' intersection

    """
    ranks = np.zeros(len(old[0]) + len(new[0]), np.int64)
    for old_column, new_column in zip(old, new, strict=True):
        _, column = np.unique(np.concatenate([old_column, new_column]), return_inverse=True)
        # Neither factor is larger than the number of rows, so the product is exact; then it is made small again.
        _, ranks = np.unique(ranks * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    old_ranks, new_ranks = ranks[: len(old[0])], ranks[len(old[0]) :]
    old_counts, new_counts = (np.bincount(each, minlength=len(ranks)) for each in (old_ranks, new_ranks))
    return occurrences(old_ranks) < new_counts[old_ranks], occurrences(new_ranks) < old_counts[new_ranks]


def occurrences(keys: Int64) -> Int64:
    """How many equal keys are before each one.  # int64[N]

    Worked example: [5, 3, 5, 5, 3] gives [0, 0, 1, 2, 1]. In sorted order 3 3 5 5 5 a key's place less the place where
    its group begins: 0 1 2 3 4 - 0 0 2 2 2.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.searchsorted(ordered, ordered)
    return found


def _documents(cache: Cache, split: str, inputs: Sequence[int], *, is_new: bool) -> Documents:
    """None at all where the cache has no such split."""
    found = cache.documents(split) if split in cache.splits("documents") else DocumentShards(cache.folder, ())
    return Documents.of(found.doc_ids(), *found.origins(), inputs, is_new=is_new)


def make_examples(
    old: Cache, new: Cache, comparisons: Sequence[DocumentComparison], most: int
) -> tuple[RowExample, ...]:
    """Up to `most` rows.

    Raises:
        CheckError: a document, a kept tokenizer or rejected.jsonl is damaged.

    """
    rows: list[tuple[str, ChangedRow]] = []
    for comparison in comparisons:
        rows += [(comparison.split, row) for row in comparison.rows(most - len(rows))]
    if not rows:
        return ()
    reasons = (
        _rejections(old, [row.place_old for _, row in rows if not len(row.old)]),
        _rejections(new, [row.place_new for _, row in rows if not len(row.new)]),
    )
    found = []
    for split, row in rows:
        before = _row_side(old, row.place_old, row.old, reasons[0])
        after = _row_side(new, row.place_new, row.new, reasons[1])
        if len(row.old) and len(row.new):
            documents = old.documents(split).read(int(row.old[0])), new.documents(split).read(int(row.new[0]))
            tokenizers = tuple(kept_tokenizer(cache.folder, cache.manifest) for cache in (old, new))
            found.append(compare_documents(split, (before, after), documents, tokenizers))
        else:
            found.append(RowExample(split=split, old=before, new=after, what=None, at=0, same_text=False))
    return tuple(found)


def _rejections(cache: Cache, places: Sequence[Place | None]) -> dict[Place, Rejected]:
    """Why some rows were rejected, of those that were."""
    numbers = {(cache.manifest.inputs[place[0]].path, place[1]): place for place in places if place is not None}
    if not numbers:
        return {}
    lines = (line for line in read_rejected(cache.folder, cache.manifest) if line.document is None)
    return {numbers[line.source, line.row]: line for line in lines if (line.source, line.row) in numbers}


def _row_side(cache: Cache, place: Place | None, documents: Int64, rejections: dict[Place, Rejected]) -> RowSide | None:
    line = None if place is None else rejections.get(place)
    if place is None or (not len(documents) and line is None):
        return None
    return RowSide(
        input=cache.manifest.inputs[place[0]].path,
        row=place[1],
        documents=len(documents),
        code=None if line is None else line.code,
        reason=None if line is None else line.reason,
    )


def compare_documents(
    split: str,
    sides: tuple[RowSide | None, ...],
    documents: tuple[Document, Document],
    tokenizers: tuple[Tokenizer, ...],
) -> RowExample:
    """Where two documents differ first, and what is trained in one of them only.

    Worked example: ids 1 2 3 4 9 and 1 2 7 9 differ from token 2 on; 3 4 became 7.
    """
    ids = [document.input_ids for document in documents]
    at = common_start(*ids)
    end = common_start(ids[0][at:][::-1], ids[1][at:][::-1])
    trained = [document.labels[:at] != MASKED for document in documents]
    other = np.flatnonzero(trained[0] != trained[1])
    what: Literal["ids", "labels", "weights"] = "ids"
    if at == len(ids[0]) == len(ids[1]):
        what = "labels" if len(other) else "weights"
        at = int(other[0]) if len(other) else common_start(*map(_weights, documents))
    shown = []
    for place, (side, document, tokenizer) in enumerate(zip(sides, documents, tokenizers, strict=True)):
        assert side is not None
        differing = document.length - at - end if what == "ids" else 0
        first, last = max(0, at - _BEFORE), min(at + differing, at + _SHOWN)
        before, text = decode_runs(tokenizer, document.input_ids[first:last], [0, at - first, last - first])
        only = trained[place] & ~trained[1 - place]
        shown.append(
            replace(
                side,
                doc_id=document.doc_id,
                num_tokens=document.length,
                num_trained=document.num_trained,
                before=before,
                num_differing=differing,
                text=text,
                input_ids=tuple(document.input_ids[at:last].tolist()),
                num_only_trained=int(only.sum()),
                only_trained=tuple(
                    (start, stop, _text(tokenizer, document.input_ids[start : min(stop, start + _SHOWN)]))
                    for start, stop in spans_of(only)[:_SPANS]
                ),
            )
        )
    texts = [_text(tokenizer, each) for tokenizer, each in zip(tokenizers, ids, strict=True)]
    return RowExample(split=split, old=shown[0], new=shown[1], what=what, at=at, same_text=texts[0] == texts[1])


def common_start(old: Int32, new: Int32) -> int:
    """Tokens that both begin with."""
    length = min(len(old), len(new))
    differing = np.flatnonzero(old[:length] != new[:length])
    return int(differing[0]) if len(differing) else length


def spans_of(mask: Bool) -> list[tuple[int, int]]:
    """Start and end of each run of True.

    Worked example: F T T F T gives (1, 3) and (4, 5).
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _weights(document: Document) -> Int32:
    weights = document.loss_weights
    bits: Int32 = ((document.labels != MASKED) if weights is None else weights).astype(np.float32).view(np.int32)
    return bits


def _text(tokenizer: Tokenizer, input_ids: Int32) -> str:
    text: str = tokenizer.decode(input_ids.tolist(), skip_special_tokens=False)
    return text
