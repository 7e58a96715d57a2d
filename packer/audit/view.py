"""A block, a document or a row of a cache as runs of text, with its origin."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from packer.audit.token_texts import Run, TokenTexts, make_runs, padding_run
from packer.batches import SIDES, BlockBatch, Int32, Side
from packer.display import in_shell
from packer.errors import UsageError, did_you_mean, near
from packer.layout import MASKED
from packer.pipeline.identity import kept_model
from packer.recipe.recipe import make_recipe
from packer.store.arrow_columns import DocumentRows, Ragged
from packer.store.cache import Cache
from packer.store.row_tables import Rejected, read_rejected
from packer.store.shards import DocumentShards


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """An image of a document."""

    sha256: str
    height: int
    width: int
    tokens: int
    """From its first token to its last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentView:
    """A document, or the piece of one that is in a block. Its origin is that of the first of identical documents."""

    doc_id: int
    split: str
    source: str
    """The input it comes from, as the manifest names it."""

    row: int
    sample_id: str | None
    piece_start: int
    """Token of the document at which the piece starts; 0 for a whole document."""

    document_length: int
    length: int
    num_trained: int
    runs: tuple[Run, ...]
    side: Side | None = None
    """Which answer of its row this is; None in a cache without sides."""

    images: tuple[ImageView, ...] = ()
    values: Mapping[str, int | float] = field(default_factory=dict)  # of the columns that the recipe declares
    token_columns: tuple[str, ...] = ()  # those with a value for each token
    behind: Run | None = None
    """In a block: the tokens between this piece and the next, an EOS or, where documents are aligned, padding."""

    @property
    def slots(self) -> tuple[Run, ...]:
        """Its runs and what follows them in the block."""
        return self.runs if self.behind is None else (*self.runs, self.behind)

    @property
    def num_slots(self) -> int:
        return sum(run.num_tokens for run in self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockView:
    """A block: its documents in order, then its padding."""

    split: str
    index: int
    num_blocks: int
    path: str
    shard_row: int
    block_len: int
    length: int
    num_trained: int
    documents: tuple[DocumentView, ...]
    padding: Run | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """The result of one input row: documents, rejections, or both."""

    source: str
    row: int
    documents: tuple[DocumentView, ...]
    rejected: tuple[Rejected, ...]


def view_block(cache: Cache, split: str, index: int) -> BlockView:
    """Return a readable view of a block. Digests are checked.

    Raises:
        UsageError: no such split or block.
        CheckError: the block, a document of it or the kept tokenizer is damaged.
    """
    shards = cache.blocks(split)
    if not 0 <= index < len(shards):
        raise UsageError(
            f"no block {index} in split '{split}' of {cache.folder}", hint=f"blocks are numbered 0 to {len(shards) - 1}"
        )
    batch, reader = shards.read(np.array([index])), _Reader(cache, split)
    ids, labels, filled = batch.input_ids[0], batch.labels[0], shards.block_len - _padding(cache, batch)
    places, documents = batch.doc_places.tolist(), []
    pieces = zip(batch.doc_ids.tolist(), batch.doc_starts.tolist(), batch.doc_lengths.tolist(), places, strict=True)
    for (doc_id, start, length, place), following in zip(pieces, [*places[1:], filled], strict=True):
        end = place + length
        piece = reader.piece(doc_id, start, ids[place:end], labels[place:end])
        behind = padding_run(length, ids[end:following]) if end < following else None
        documents.append(replace(piece, behind=behind))
    path, shard_row = shards.place(index)
    return BlockView(
        split=split,
        index=index,
        num_blocks=len(shards),
        path=path,
        shard_row=shard_row,
        block_len=shards.block_len,
        length=int(batch.length[0]),
        num_trained=int(batch.num_trained[0]),
        documents=tuple(documents),
        padding=padding_run(filled, ids[filled:]) if filled < shards.block_len else None,
    )


def view_document(cache: Cache, doc_id: int, *, split: str | None = None) -> DocumentView:
    """Return a readable view of the document with this doc_id, of all splits or of one. Its digest is checked.

    Raises:
        UsageError: no such document or split.
        CheckError: the document or the kept tokenizer is damaged.
    """
    splits = cache.splits("documents") if split is None else (split,)
    for name in splits:
        index = cache.documents(name).find(doc_id)
        if index is not None:
            return _Reader(cache, name).view(index)
    raise UsageError(
        f"no document {doc_id} in {cache.folder}", hint="--block N shows documents with their numbers; --row FILE:N too"
    )


def view_pieces(cache: Cache, split: str, pieces: Iterable[tuple[int, int, Int32, Int32]]) -> Iterator[DocumentView]:
    """Yield views of documents, or pieces of them, as they appear in a batch, with the ids and labels found there.

    A piece is its doc_id, where in the document it begins, and its ids and labels.  # int32[n] each

    Raises:
        UsageError: no such document or split.
        CheckError: a document or the kept tokenizer is damaged.
    """
    reader = _Reader(cache, split)
    yield from (reader.piece(*piece) for piece in pieces)


def view_row(cache: Cache, source: str, row: int) -> RowView:
    """Return the documents and rejections that an input row produced. Documents that a rule left out have no split.

    `source` is the input as the manifest names it, or an unambiguous suffix of that path (``chat.jsonl``). Rows count
    from 0, without blank lines.

    Raises:
        UsageError: no such input or row, or several inputs match.
        CheckError: the cache is damaged.
    """
    paths = [entry.path for entry in cache.manifest.inputs]
    numbers = find_inputs(paths, source, missing=f"{cache.folder} was not built from '{source}'")
    first = cache.manifest.inputs[numbers[0]]
    # Sources that name the same file may read different numbers of rows.
    num_rows = max(cache.manifest.inputs[number].num_rows for number in numbers)
    if not 0 <= row < num_rows:
        raise UsageError(f"no row {row} in {first.path}", hint=f"rows are numbered 0 to {num_rows - 1}")
    splits = {split: cache.documents(split) for split in cache.splits("documents")}
    views = [view for split, own in splits.items() for view in _documents_of_row(cache, split, own, numbers, row)]
    if not views:  # a rule may have left the row out; its documents are still there
        shards = DocumentShards(cache.folder, cache.manifest.document_shards)
        views = _documents_of_row(cache, "", shards, numbers, row)
    rejected = tuple(
        line for line in read_rejected(cache.folder, cache.manifest) if (line.source, line.row) == (first.path, row)
    )
    return RowView(source=first.path, row=row, documents=tuple(views), rejected=rejected)


def _documents_of_row(
    cache: Cache, split: str, documents: DocumentShards, inputs: Sequence[int], row: int
) -> list[DocumentView]:
    sources, rows = documents.origins()
    found = np.flatnonzero(np.isin(sources, inputs) & (rows == row)).tolist()
    return list(map(_Reader(cache, split, documents).view, found)) if found else []


_TEXTS: WeakKeyDictionary[Cache, TokenTexts] = WeakKeyDictionary()
"""Those of open caches: reading and hashing the files of a tokenizer for every view would take longer than the view."""


def token_texts(cache: Cache) -> TokenTexts:
    """Return the texts of the tokens of an open cache, of the tokenizer that it keeps."""
    if cache not in _TEXTS:
        recipe = make_recipe(cache.manifest.recipe, where="the manifest's recipe")
        _TEXTS[cache] = TokenTexts(kept_model(cache.folder, cache.manifest, recipe))
    return _TEXTS[cache]


class _Reader:
    """Makes views of the documents of a split, or of the given ones."""

    def __init__(self, cache: Cache, split: str, documents: DocumentShards | None = None) -> None:
        self._cache = cache
        self._split = split
        self._documents = cache.documents(split) if documents is None else documents
        self._inputs, self._rows = self._documents.origins()
        self._texts = token_texts(cache)

    def piece(self, doc_id: int, *piece: Any) -> DocumentView:
        """View a piece of a document; `piece` is that of :func:`make_document_view`."""
        index = self._documents.find(doc_id)
        if index is None:
            raise UsageError(
                f"block names document {doc_id}, which is in no document shard of split '{self._split}'",
                hint=f"packer verify {in_shell(self._cache.folder)} --full",
            )
        return self.view(index, piece)

    def view(self, index: int, piece: tuple[int, Int32, Int32] | None = None) -> DocumentView:
        """View a document by its index in the split, or a piece of it."""
        found = self._documents.locate(np.array([index]))
        entry = self._cache.manifest.inputs[int(self._inputs[index])]
        return make_document_view(
            self._texts,
            found.opened[0],
            found.rows[0],
            split=self._split,
            source=entry.path,
            row=int(self._rows[index]),
            schema=entry.schema,
            piece=piece,
        )


def make_document_view(
    texts: TokenTexts,
    rows: DocumentRows,
    number: int,
    *,
    split: str,
    source: str,
    row: int,
    schema: str,
    piece: tuple[int, Int32, Int32] | None = None,
) -> DocumentView:
    """View a document as runs of text; it may come from a shard or from rows that have not been written.

    `number` is its index in `rows`, `row` its row in the input `source`. Of a `piece` of it, given are the first token,
    the ids and the labels.
    """
    ids = rows.input_ids[number]
    start, input_ids, labels = piece or (0, ids, rows.labels[number])
    first, last = rows.span_offsets[number : number + 2].tolist()
    starts, ends, messages = (
        column[first:last].tolist() for column in (rows.span_start, rows.span_end, rows.span_message)
    )
    spans = np.full(start + len(input_ids), -1, np.int32)
    for span, (begin, end) in enumerate(zip(starts, ends, strict=True)):
        spans[begin:end] = span
    return DocumentView(
        doc_id=int(rows.doc_id[number]),
        split=split,
        source=source,
        row=row,
        sample_id=rows.sample_id_of(number),
        piece_start=start,
        document_length=len(ids),
        length=len(input_ids),
        num_trained=int((labels != MASKED).sum()),
        side=None if rows.side is None else SIDES[int(rows.side[number])],
        images=tuple(
            ImageView(sha256=each.sha256.hex(), height=each.height, width=each.width, tokens=each.length)
            for each in (() if rows.media is None else rows.media[number])
        ),
        values={name: each[number].item() for name, each in rows.values.items() if not isinstance(each, Ragged)},
        token_columns=tuple(name for name, each in rows.values.items() if isinstance(each, Ragged)),
        runs=make_runs(
            texts,
            np.concatenate([ids[:start], input_ids]),
            labels,
            spans[start:],
            messages=[message if _is_message(schema, message) else None for message in messages],
        ),
    )


def _is_message(schema: str, message: int) -> bool:
    """Whether a span belongs to a message.

    The spans of plain text, of pretokenized rows, and of a prompt with a completion do not. A completion may be a list
    of messages too; then the prompt's messages come before it.
    """
    return schema not in {"text", "tokens"} and (schema != "completion" or message > 0)


def _padding(cache: Cache, batch: BlockBatch) -> int:
    """Return the slots of padding at the end of a block: its last run, if there are more runs than documents need."""
    one_run = cache.manifest.recipe["pack"]["mode"] == "stream"
    needed = 1 if one_run else len(batch.doc_ids)
    return int(batch.seq_lengths[-1]) if len(batch.seq_lengths) > needed else 0


def find_inputs(paths: Sequence[str], source: str, *, missing: str) -> list[int]:
    """Return the indices of the inputs that match a path or a suffix of one; a file may be listed once a split."""
    name = source.replace(os.sep, "/").removeprefix("./")
    exact = [i for i, path in enumerate(paths) if path == name]
    found = exact or [i for i, path in enumerate(paths) if path.endswith(f"/{name}")]
    different = sorted({paths[i] for i in found})
    if not different:
        known = sorted(set(paths))
        listed = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        ends = {"/".join(path.split("/")[-1 - name.count("/") :]): path for path in known}
        meant = [ends[end] for end in near(name, ends)]
        raise UsageError(missing, hint=did_you_mean(meant, f"its inputs: {listed}"))
    if len(different) > 1:
        raise UsageError(f"'{source}' names several inputs: {', '.join(different)}", hint="use more of the path")
    return found
