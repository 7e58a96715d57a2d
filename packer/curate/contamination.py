"""Finds rows that contain a benchmark question, by the n-grams they share.

A row contains a question if it has at least half of the question's distinct n-grams. N-grams that several
different questions of a benchmark have in common, such as those of its instructions, do not count. A question of fewer
than n words is compared as a whole, with messages of exactly the same words.

The index is exact: sorted 64-bit hashes of the n-grams, looked up by binary search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from packer.batches import Bool, Int64, UInt64
from packer.curate.signatures import Words, ngrams, words_of
from packer.layout import begins_run, concatenated_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """H pairs of a row and a question that it contains: rows ascending, and of each row the best covered one first."""

    row: Int64  # [H]
    question: Int64  # [H] number among the questions of all benchmarks
    cover: npt.NDArray[np.float64]  # [H] fraction of the question's n-grams that the row has

    def best(self) -> "Hits":
        """Return the first pair of each row."""
        first = begins_run(self.row)
        return Hits(row=self.row[first], question=self.question[first], cover=self.cover[first])


class BenchmarkQuestions:
    """An index of benchmark questions to search for in rows."""

    def __init__(
        self, benchmarks: Sequence[Sequence[str]], *, ngram: int = 8, common: int = 5, cover: float = 0.5
    ) -> None:
        """Index the questions of each benchmark; see :class:`packer.recipe.row_rules.Decontaminate`."""
        self._ngram, self._cover = ngram, cover
        words = words_of([question for questions in benchmarks for question in questions])
        lengths = np.diff(words.offsets)
        grams, counts = _distinct(*ngrams(words, words.offsets[:-1], words.offsets[1:], ngram))
        question = np.repeat(np.arange(len(counts)), counts)
        benchmark = np.repeat(np.arange(len(benchmarks)), [len(questions) for questions in benchmarks])
        is_short = (lengths > 0) & (lengths < ngram)
        first = _first_alike(words, benchmark)  # a file may have each question once for every answer to it
        is_new = first == np.arange(len(counts))
        counted = is_short[question] | (_occurrences(grams, benchmark[question], is_new[question]) < common)
        is_long = counted & ~is_short[question]
        self._size = np.bincount(question[is_long], minlength=len(counts))
        searched = [chosen & is_new[question] for chosen in (is_long, is_short[question])]
        self._grams, self._short = (_Postings(grams[chosen], question[chosen]) for chosen in searched)
        self.num_untestable = int((~is_short & (self._size == 0)).sum())
        """Questions without words, or with only n-grams that other questions have too: never found."""

    def find(self, words: Words, rows: Int64) -> Hits:
        """Search rows for the questions; of those with the same words in one benchmark, only the first is found.

        The words are of messages; those of row i are ``rows[i] … rows[i + 1] - 1``.  # int64[N + 1]
        """
        start, stop = words.offsets[rows[:-1]], words.offsets[rows[1:]]
        found_row, found_question, cover = self._in_text(words, start, stop)
        messages = np.flatnonzero((lengths := np.diff(words.offsets)) * (lengths < self._ngram))
        whole, _ = ngrams(words, words.offsets[messages], words.offsets[messages + 1], self._ngram)
        at, question = self._short.of(whole)
        row = np.concatenate([found_row, np.searchsorted(rows, messages[at], "right") - 1])
        question = np.concatenate([found_question, question])
        cover = np.concatenate([cover, np.ones(len(at))])
        order = np.lexsort((question, -cover, row))
        return Hits(row=row[order], question=question[order], cover=cover[order])

    def _in_text(self, words: Words, start: Int64, stop: Int64) -> tuple[Int64, Int64, npt.NDArray[np.float64]]:
        """Return rows and long questions of which they share at least `cover` of the n-grams, with that fraction."""
        grams, counts = ngrams(words, start, stop, self._ngram)
        at, question = self._grams.of(grams)
        row = np.repeat(np.arange(len(counts)), counts)[at]
        # An n-gram that occurs twice in a row counts once.
        once = np.unique(np.stack([row, question, grams[at].view(np.int64)], axis=1), axis=0)
        pairs, shared = np.unique(once[:, :2], axis=0, return_counts=True)
        share = shared / np.maximum(self._size[pairs[:, 1]], 1)
        enough = share >= self._cover
        return pairs[enough, 0], pairs[enough, 1], share[enough]


class _Postings:
    """Inverted index: the questions that have an n-gram."""

    def __init__(self, grams: UInt64, question: Int64) -> None:
        order = np.lexsort((question, grams))
        self._grams, self._question = grams[order], question[order]

    def of(self, grams: UInt64) -> tuple[Int64, Int64]:
        """Return, for each n-gram found, its index in `grams` and a question that has it; one entry per question."""
        first = np.searchsorted(self._grams, grams)
        last = np.minimum(first, max(len(self._grams) - 1, 0))
        at = np.flatnonzero(self._grams[last] == grams) if len(self._grams) else np.zeros(0, np.int64)
        counts = np.searchsorted(self._grams, grams[at], "right") - first[at]
        return np.repeat(at, counts), self._question[concatenated_ranges(first[at], counts)]


def _distinct(grams: UInt64, counts: Int64) -> tuple[UInt64, Int64]:
    """Return the distinct n-grams of each question, ascending, and the number of them in each question."""
    question = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((grams, question))
    grams, question = grams[order], question[order]
    new = begins_run(grams, question)
    return grams[new], np.bincount(question[new], minlength=len(counts))


def _first_alike(words: Words, benchmark: Int64) -> Int64:
    """Return the first question of the same benchmark that has the words of each question.  # int64[Q]"""
    texts = (words.number[first:last].tobytes() for first, last in pairwise(words.offsets.tolist()))
    keys = [*zip(benchmark.tolist(), texts, strict=True)]
    first_with = {key: number for number, key in reversed([*enumerate(keys)])}
    return np.fromiter((first_with[key] for key in keys), np.int64, len(keys))


def _occurrences(grams: UInt64, benchmark: Int64, is_new: Bool) -> Int64:
    """Count, for each n-gram, the new questions of its benchmark that have it."""
    _, group = np.unique(np.stack([grams.view(np.int64), benchmark], axis=1), axis=0, return_inverse=True)
    group = group.reshape(-1)
    return np.bincount(group[is_new], minlength=len(group))[group]
