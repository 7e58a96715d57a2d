"""Rows whose documents differ between two caches, and where the tokens of their first documents differ."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from packer.audit.diff.documents import ChangedRow, DocumentComparison, Place
from packer.audit.text_runs import common_start, spans_of
from packer.audit.token_texts import TokenTexts
from packer.audit.view import token_texts
from packer.batches import Int32, Int64, Side
from packer.display import number, plural
from packer.layout import MASKED
from packer.store.cache import Cache
from packer.store.document_shards import Document
from packer.store.rejected import Rejected, read_rejected

_BEFORE, SHOWN = 12, 24
"""Tokens shown as text: before the first difference, and from it on."""

_SPANS = 4
"""Maximum number of trained runs listed for each side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSide:
    """A row in one cache, with its first document that the other cache lacks, around the first difference."""

    input: str
    row: int
    documents: int
    """Number of the row's documents that the other cache lacks."""

    code: str | None = None
    """The code if the row was rejected, else None."""

    reason: str | None = None
    doc_id: int | None = None
    """None if only one side has such a document; then nothing is compared."""

    num_tokens: int = 0
    num_trained: int = 0
    side: Side | None = None
    margin: float | None = None
    """For preference data: `side` is the answer of the row that the document is, `margin` the row's, if any."""

    before: str = ""
    """Text of the tokens before the first difference."""

    num_differing: int = 0
    """Tokens from the first difference to the last; 0 if only labels or weights differ."""

    text: str = ""
    """Text of the first of those tokens."""

    input_ids: tuple[int, ...] = ()
    """Ids of the first of those tokens."""

    num_only_trained: int = 0
    """Tokens of the common prefix that are trained in this document but not in the other."""

    only_trained: tuple[tuple[int, int, str], ...] = ()
    """The first runs of such tokens: start, end, text."""

    def described(self, cache: str) -> str:
        """Describe what a cache, `old` or `new`, has for the row."""
        if self.code is not None:
            return f"rejected, {self.code}: {self.reason}"
        if self.doc_id is None:
            return f"{plural(self.documents, 'document')} that only {cache} has"
        side = "" if self.side is None else f", {self.side}"
        what = f"{plural(self.num_tokens, 'token')}, {number(self.num_trained)} trained{side}, doc {self.doc_id}"
        return what + (f", and {self.documents - 1:,} more that only {cache} has" if self.documents > 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExample:
    """A row whose documents differ.

    A side is None if its cache neither rejected the row nor has a document of it that the other cache lacks.
    """

    split: str
    old: RowSide | None
    new: RowSide | None
    what: Literal["ids", "labels", "weights", "side", "margin"] | None
    """The first of these that differs; None if only one side has documents that the other lacks."""

    at: int
    """Index of the first token that differs."""

    same_text: bool
    """Whether both documents decode to the same text, each with its own tokenizer."""

    @property
    def sides(self) -> list[tuple[str, RowSide]]:
        """The sides that are not None, with the names of their caches."""
        return [(name, side) for name, side in (("old", self.old), ("new", self.new)) if side is not None]

    @property
    def difference(self) -> str:
        """The difference as a sentence without a full stop; empty if only one side has documents of its own."""
        if self.old is None or self.new is None or self.what is None:
            return ""
        if self.what == "labels":
            return "the same ids, other labels"
        if self.what == "side":
            return f"the same ids and labels, another side: {self.old.side or 'none'} became {self.new.side or 'none'}"
        if self.what == "margin":
            margins = ("no margin" if each is None else f"{each:g}" for each in (self.old.margin, self.new.margin))
            return f"the same ids and labels, another margin: {' became '.join(margins)}"
        if self.what == "weights":
            return f"the same ids and labels; other loss weights from token {number(self.at)} on"
        became = f"{plural(self.old.num_differing, 'token')} became {number(self.new.num_differing)}"
        return f"ids differ from token {number(self.at)} on: {became}{', in the same text' * self.same_text}"


def make_examples(
    old: Cache, new: Cache, comparisons: Sequence[DocumentComparison], most: int
) -> tuple[RowExample, ...]:
    """Return up to `most` rows whose documents differ."""
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
            found.append(compare_documents(split, (before, after), documents, (token_texts(old), token_texts(new))))
        else:
            found.append(RowExample(split=split, old=before, new=after, what=None, at=0, same_text=False))
    return tuple(found)


def _rejections(cache: Cache, places: Sequence[Place | None]) -> dict[Place, Rejected]:
    """Return the rejections of those of some rows that were rejected."""
    # A file may be listed once for each split: then several places share its path.
    named = {place: (cache.manifest.inputs[place[0]].path, place[1]) for place in places if place is not None}
    wanted = set(named.values())
    lines = (line for line in read_rejected(cache.folder, cache.manifest) if line.document is None) if wanted else ()
    found = {(line.source, line.row): line for line in lines if (line.source, line.row) in wanted}
    return {place: found[name] for place, name in named.items() if name in found}


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
    texts: tuple[TokenTexts, TokenTexts],
) -> RowExample:
    """Find where two documents first differ, and which tokens are trained in only one of them.

    Worked example: ids 1 2 3 4 9 and 1 2 7 9 differ from token 2 on; 3 4 became 7.
    """
    ids = [document.input_ids for document in documents]
    at = common_start(*ids)
    end = common_start(ids[0][at:][::-1], ids[1][at:][::-1])
    trained = [document.labels[:at] != MASKED for document in documents]
    other = np.flatnonzero(trained[0] != trained[1])
    what: Literal["ids", "labels", "weights", "side", "margin"] = "ids"
    if at == len(ids[0]) == len(ids[1]):
        what = "labels" if len(other) else "weights"
        at = int(other[0]) if len(other) else common_start(*map(_weights, documents))
        if at == len(ids[0]):
            what = "margin" if documents[0].side == documents[1].side else "side"
    shown = []
    for place, (side, document, own) in enumerate(zip(sides, documents, texts, strict=True)):
        assert side is not None
        differing = document.length - at - end if what == "ids" else 0
        first, last = max(0, at - _BEFORE), min(at + differing, at + SHOWN)
        before, text = own.decode_runs(document.input_ids[:last], [first, at, last])
        only = trained[place] & ~trained[1 - place]
        shown.append(
            replace(
                side,
                doc_id=document.doc_id,
                num_tokens=document.length,
                num_trained=document.num_trained,
                side=document.side,
                margin=document.margin,
                before=before,
                num_differing=differing,
                text=text,
                input_ids=tuple(document.input_ids[at:last].tolist()),
                num_only_trained=int(only.sum()),
                only_trained=tuple(
                    (start, stop, own.decode(document.input_ids[start : min(stop, start + SHOWN)]))
                    for start, stop in spans_of(only)[:_SPANS]
                ),
            )
        )
    same_text = texts[0].decode(ids[0]) == texts[1].decode(ids[1])
    return RowExample(split=split, old=shown[0], new=shown[1], what=what, at=at, same_text=same_text)


def _weights(document: Document) -> Int32:
    weights = document.loss_weights
    bits: Int32 = ((document.labels != MASKED) if weights is None else weights).astype(np.float32).view(np.int32)
    return bits
