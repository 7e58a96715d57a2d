"""The rows that an order arranges: blocks or documents of a split, numbered consecutively across one or more caches.

Every rank must know the number of tokens and of trained tokens of every row of a step, its own or not. These counts are
read without the tokens, 8 bytes per row, when a loader is opened.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from packer.batches import CHOSEN, REJECTED, Int32, Int64
from packer.errors import InputError, UsageError
from packer.layout import offsets_of
from packer.load.arguments import LoaderOptions
from packer.store.cache import BlockShards, Cache
from packer.store.numbered_rows import FoundRows

RowKind: TypeAlias = Literal["blocks", "documents"]
Content: TypeAlias = Literal["examples", "pairs", "rated answers"]

PADDING_ROW = -1
"""Placeholder among a step's row numbers for a fully masked row."""

FILLER_ROW = -2
"""Placeholder, in a micro-batch to be laid out, for a masked document with a small image."""


class OrderedRows:
    """The rows of one split of some caches. Safe to read from two threads."""

    def __init__(self, caches: Sequence[Cache], split: str, *, kind: RowKind) -> None:
        self.content = content_of_all(caches)
        if kind == "blocks" and self.content != "examples":
            raise UsageError(
                f"there are no blocks of {self.content}",
                hint="trainers of pairs and rated answers are in packer.load.trainers; in a loop of your own, "
                "batching='padding_free', 'padded' or 'token_budget'",
            )
        self.num_sides = 2 if self.content == "pairs" else 1
        """Documents per row: pair i consists of documents 2i and 2i + 1."""

        opened = Cache.blocks if kind == "blocks" else Cache.documents
        self.shards: list[Any] = [opened(cache, split) for cache in caches]
        for cache, shards in zip(caches, self.shards, strict=True):
            if not len(shards):
                raise InputError(f"split '{split}' of {cache.folder} has no {kind}")
        self.bounds = offsets_of([len(shards) // self.num_sides for shards in self.shards])
        self.block_len = _block_len(self.shards) if kind == "blocks" else 0
        read = [shards.stored_together({"length": np.int32, "num_trained": np.int32}) for shards in self.shards]
        lengths, trained = (np.concatenate(column).reshape(-1, self.num_sides) for column in zip(*read, strict=True))
        self.num_trained: Int32 = trained.sum(1, dtype=np.int32)
        """Trained targets of each row; a first label is always -100, so shifting loses none.  # int32[N]"""

        self.lengths_of_sides: Int32 = lengths
        """Tokens of each document of a row, or of all documents of a block; without padding.  # int32[N, 1 or 2]"""

        if self.content != "examples":
            _ = self.sides  # read now: forked workers would each read them again

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def tokens_of_caches(self) -> list[int]:
        """Count the tokens of the rows of each cache."""
        of_rows: Int64 = self.lengths_of_sides.sum(1, dtype=np.int64)
        counts: list[int] = np.add.reduceat(of_rows, self.bounds[:-1]).tolist()
        return counts

    @cached_property
    def lengths(self) -> Int32:
        """Tokens of each row.  # int32[N]"""
        sides = self.lengths_of_sides
        return sides[:, 0] if self.num_sides == 1 else sides.sum(1, dtype=np.int32)

    @cached_property
    def sides(self) -> Int64:
        """Side of each document, such as chosen or rejected.  # int64[documents]"""
        return np.concatenate([part.sides() for part in self.shards]).astype(np.int64)

    def documents_of(self, rows: Int64) -> Int64:
        """Return the blocks or documents that make up some rows, which may include padding rows."""
        return rows if self.num_sides == 1 else documents_of_pairs(rows)

    def doc_ids(self, rows: Int64) -> list[Int64]:
        """Return the document ids of each row; empty for a padding row."""
        is_real = rows != PADDING_ROW
        documents = self.documents_of(rows[is_real]).reshape(self.num_sides, -1).T.reshape(-1)
        sides = iter(self.locate(documents).doc_ids())
        none = [np.zeros(0, np.int64)]
        return [np.concatenate([next(sides) for _ in range(self.num_sides)] if real else none) for real in is_real]

    def lengths_of_each(self, rows: Int64) -> Int64:
        """Return how many positions each document or block of rows takes; a padding row one.  # int64[R, 1 or 2]"""
        if self.block_len:
            return np.full((len(rows), 1), self.block_len, np.int64)
        lengths = self.lengths_of_sides[rows].astype(np.int64)
        lengths[rows == PADDING_ROW] = 1
        return lengths

    def squares(self, rows: Int64, lengths: Int64) -> Int64:
        """Return Σ n², the cost of attention, over the sequences of n tokens of rows of given lengths.  # int64[R]"""
        squares: Int64 = (lengths * lengths).sum(1)
        if self.block_len:
            for places, shards, numbers in self.by_cache(rows):
                squares[places] = shards.squares(numbers)
        return squares

    def most_sequences(self) -> int:
        """Return the most sequences that a block has."""
        counts = (np.diff(blocks.seq_lengths.offsets).max() for part in self.shards for blocks, _ in part.chunks())
        return int(max(counts))

    def locate(self, rows: Int64) -> FoundRows[Any]:
        """Find and check some blocks or documents, ready to be copied."""
        if len(self.shards) == 1:
            first: FoundRows[Any] = self.shards[0].locate(rows)
            return first
        opened: list[Any] = [None] * len(rows)
        places = [0] * len(rows)
        for numbers, shards, asked in self.by_cache(rows):
            found = shards.locate(asked)
            for number, batch, row in zip(numbers.tolist(), found.opened, found.rows, strict=True):
                opened[number], places[number] = batch, row
        return FoundRows(opened, places)

    def by_cache(self, rows: Int64) -> Iterator[tuple[Int64, Any, Int64]]:
        """Yield for each cache: the indices into `rows` of those that are its own, its shards, their numbers there."""
        bounds = self.bounds * self.num_sides
        cache_of = np.searchsorted(bounds, rows, side="right") - 1  # that of a padding row is -1
        for number, shards in enumerate(self.shards):
            places = np.flatnonzero(cache_of == number)
            yield places, shards, rows[places] - bounds[number]


def documents_of_pairs(pairs: Int64) -> Int64:
    """Return the documents of some pairs, padding rows included: all chosen answers, then the rejected ones.

    Worked example: pairs 3 0 and a padding row are documents 6 0 -1 7 1 -1.
    """
    sides = [np.where(pairs == PADDING_ROW, PADDING_ROW, 2 * pairs + side) for side in (CHOSEN, REJECTED)]
    return np.concatenate(sides)


def content_of(cache: Cache) -> Content:
    """Return the kind of content of a cache: examples to imitate, or answers with a side."""
    if not cache.has_sides:
        return "examples"
    return "pairs" if cache.is_paired else "rated answers"


def content_of_all(caches: Iterable[Cache]) -> Content:
    """Return the kind of content that several caches share."""
    found = {content_of(cache): cache.folder for cache in caches}
    if len(found) > 1:
        names = " and ".join(f"{content} ({folder})" for content, folder in found.items())
        raise UsageError(f"{names} cannot be mixed", hint="read each with a loader of its own")
    return next(iter(found))


def require_examples(content: Content, what: str) -> None:
    """Keep a consumer that trains on every answer from imitating rejected answers."""
    if content != "examples":
        raise UsageError(
            f"{what} trains examples, and this cache holds {content}: it would imitate rejected answers too",
            hint="a loop of your own over PackedLoader gives them with their sides; trainers of pairs are in "
            "packer.load.trainers",
        )


def check_rows_fit(rows: OrderedRows, options: LoaderOptions) -> None:
    """Refuse rows that fit into no micro-batch: of a length, or of a budget of tokens."""
    limits = []
    if options.padded is not None and (length := options.padded.length) is not None:
        limits.append((length, rows.lengths_of_sides.max(1), f"micro-batches are padded to {length}"))
    if options.batching == "token_budget":
        limits.append((options.micro_batch_size, rows.lengths, "a micro-batch holds no more"))
    for longest, of_rows, reason in limits:
        if too_long := int(np.count_nonzero(of_rows > longest)):
            what = "pairs" if rows.num_sides == 2 else "documents"
            raise UsageError(
                f"{too_long} of {len(of_rows)} {what} have more than {longest} tokens, the longest {of_rows.max()}: "
                f"{reason}",
                hint="make the micro-batch larger, or leave these rows out: a filter of the recipe on `tokens`",
            )


def _block_len(parts: Sequence[BlockShards]) -> int:
    lengths = sorted({part.block_len for part in parts})
    if len(lengths) > 1:
        raise UsageError(
            f"caches of different block lengths cannot be mixed: {', '.join(map(str, lengths))}",
            hint="a build of one of them with --block-len N and --force packs it again, without tokenizing",
        )
    return lengths[0]
