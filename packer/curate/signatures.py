"""What rows are compared by: their words, the shingles of these, and keys that rows with many common shingles share.

A text is normalized by NFKC and then casefolded. A word is a run of letters, marks and digits, or one character of a
script that is written without spaces: Chinese, Japanese, Thai, Lao, Khmer and Myanmar. Everything else separates words,
and so do variation selectors, which many emoji end with. Worked example: "Größe 10, 你好!" has the words "grösse",
"10", "你" and "好". The categories of characters are those of Python's `unicodedata`; code that stores word numbers
must store the version of its tables with them.

A shingle is n consecutive words, hashed to 32 bits; a row of fewer words is one shingle. The similarity of two rows is
the Jaccard similarity of their sets of shingles, |A ∩ B| / |A ∪ B|. A row keeps its 256 smallest. As shingles are
uniformly distributed, those below any bound are a fair sample: two rows with 256 are compared by the shingles up to the
smaller of their two largest ones. So rows of fewer than 256 distinct shingles are compared exactly, and longer ones to
about ±0.03.

Candidates are found by MinHash in bands (Broder, "On the resemblance and containment of documents", 1997; Indyk and
Motwani, 1998). The smallest image of a set under a permutation is the same for two sets with a probability of their
Jaccard similarity J. A band combines five of these; with twenty bands, rows share one with probability 1 - (1 - J⁵)²⁰:
0.9996 at J = 0.8, 0.975 at 0.7, 0.05 at 0.3.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from packer.batches import Int64, UInt64
from packer.layout import array_of, begins_run, concatenated_ranges, numbers_of, offsets_of
from packer.recipe.row_rules import MAX_NGRAM

_SINGLE_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x19E0, 0x19FF),
    (0x3005, 0x3007),  # 々〆〇
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # CJK
    (0x4E00, 0x9FFF),
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F),
    (0x20000, 0x3FFFF),
)
_NOTHING, _RUN, _SINGLE, _UNKNOWN = range(4)
_END = "\0"
"""Terminates each text of a piece; it is not part of any word."""

_PIECE_CHARACTERS = 2**15
"""Texts are processed in pieces of about this many characters, so that the arrays of a piece stay in the processor's
cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The W words of T texts."""

    number: UInt64  # [W] equal words have equal numbers
    offsets: Int64  # [T + 1]


def _constants(name: str, count: int) -> UInt64:
    """Return odd 64-bit numbers that are a pure function of a name.  # uint64[count]"""
    return np.array([xxhash.xxh3_64_intdigest(f"{name} {i}".encode()) | 1 for i in range(count)], np.uint64)


def mixed(values: UInt64) -> UInt64:
    """Spread every bit of each value over all 64: the output function of splitmix64, a bijection."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


_CHARACTER_MULTIPLIERS = _constants("the character of a word at a place", 256)
"""One for each position in a word; longer words reuse them cyclically."""


def words_of(texts: Sequence[str]) -> Words:
    """Split texts into words."""
    numbers, counts = [np.zeros(0, np.uint64)], [np.zeros(1, np.int64)]
    for piece in _pieces(texts):
        number, count = _words_of_piece(piece)
        numbers.append(number)
        counts.append(count)
    return Words(number=np.concatenate(numbers), offsets=np.cumsum(np.concatenate(counts)))


def _pieces(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the normalized texts, several at a time."""
    piece: list[str] = []
    size = 0
    for text in texts:
        piece.append(text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold())
        size += len(text)
        if size >= _PIECE_CHARACTERS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _words_of_piece(texts: Sequence[str]) -> tuple[UInt64, Int64]:
    """Return the numbers of the words of all texts, and the number of words in each text."""
    joined = _END.join([*texts, ""])
    if joined.count(_END) > len(texts):  # one of the texts contains it
        joined = _END.join([*(text.replace(_END, " ") for text in texts), ""])
    codes: npt.NDArray[Any] = (
        np.frombuffer(joined.encode(), np.uint8)
        if joined.isascii()
        else np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    )
    kind = _kinds(codes)
    begins = kind != _NOTHING
    begins[1:] &= (kind[1:] == _SINGLE) | (kind[:-1] != _RUN)
    inside = np.flatnonzero(kind)
    first = np.flatnonzero(begins[inside])  # first character of each word, among all word characters
    lengths = np.diff(first, append=len(inside))
    place = np.arange(len(inside)) - np.repeat(first, lengths)
    terms = codes[inside].astype(np.uint64)
    terms *= _CHARACTER_MULTIPLIERS[place & (len(_CHARACTER_MULTIPLIERS) - 1)]
    ends = np.searchsorted(inside[first], np.flatnonzero(codes == 0))
    number = mixed(np.add.reduceat(terms, first)) if len(first) else np.zeros(0, np.uint64)
    return number, np.diff(ends, prepend=0)


def _kinds(codes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Classify each character: separator, part of a run, or a word by itself."""
    kind: npt.NDArray[np.uint8] = _KINDS[codes]
    unknown = codes[kind == _UNKNOWN]
    if len(unknown):
        for code in np.unique(unknown).tolist():
            _KINDS[code] = _kind(code)
        kind = _KINDS[codes]
    return kind


def _kind(code: int) -> int:
    character = chr(code)
    if unicodedata.category(character)[0] not in "LMN":
        return _NOTHING
    if unicodedata.name(character, "").startswith("VARIATION SELECTOR"):
        return _NOTHING  # a mark, but as a word of its own it would make all emoji that end with one alike
    return _SINGLE if any(first <= code <= last for first, last in _SINGLE_RANGES) else _RUN


_KINDS: npt.NDArray[np.uint8] = np.full(0x110000, _UNKNOWN, np.uint8)
"""Kind of each character, filled in lazily: classifying all of Unicode would take half a second."""


MOST_SHINGLES = 256
NUM_BANDS = 20
BAND_SIZE = 5

_WORD_MULTIPLIERS = _constants("the word of an n-gram at a place", MAX_NGRAM)
_FLIP, _MULTIPLIER = (_constants(f"permutation, {part}", NUM_BANDS * BAND_SIZE).astype(np.uint32) for part in "ab")
_MINHASH_MULTIPLIERS = _constants("the minhash of a band at a place", BAND_SIZE)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_PIECE_SHINGLES = 2**16
"""Rows are processed in pieces of about this many shingles, which stay in the processor's cache while they are
permuted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatures:
    """Shingles and bands of N rows, S shingles in all."""

    shingles: npt.NDArray[np.uint32]  # [S] ascending and different within a row, at most 256
    offsets: Int64  # [N + 1]
    bands: npt.NDArray[np.uint32]  # [N, 20]; meaningless for a row without shingles

    def rows(self, rows: Int64) -> "Signatures":
        """Select some of the rows, in the given order."""
        counts = np.diff(self.offsets)[rows]
        shingles = self.shingles[concatenated_ranges(self.offsets[rows], counts)]
        return Signatures(shingles=shingles, offsets=offsets_of(counts), bands=self.bands[rows])

    def at(self, place: Int64, number: int) -> "Signatures":
        """Scatter the rows to ascending places among `number` rows; the others get no shingles."""
        counts = np.zeros(number, np.int64)
        counts[place] = np.diff(self.offsets)
        bands = np.zeros((number, NUM_BANDS), np.uint32)
        bands[place] = self.bands
        return Signatures(shingles=self.shingles, offsets=offsets_of(counts), bands=bands)


def signature_columns(rows: Signatures, of: str, ngram: int) -> dict[str, pa.Array]:
    """Return signatures as two columns of a table of rows."""
    shingles = pa.LargeListArray.from_arrays(array_of(rows.offsets), array_of(rows.shingles))
    bands = pa.FixedSizeListArray.from_arrays(array_of(rows.bands.reshape(-1)), NUM_BANDS)
    return dict(zip(_column_names(of, ngram), (shingles, bands), strict=True))


def signature_types(of: str, ngram: int) -> dict[str, pa.DataType]:
    """Return the types of these columns."""
    types = (pa.large_list(pa.uint32()), pa.list_(pa.uint32(), NUM_BANDS))
    return dict(zip(_column_names(of, ngram), types, strict=True))


def signatures_in(table: pa.Table, of: str, ngram: int) -> Signatures:
    """Read signatures from the columns of a table of rows."""
    chunks = (table.column(name).chunks for name in _column_names(of, ngram))
    parts = [
        Signatures(
            shingles=numbers_of(shingles.flatten()),
            offsets=numbers_of(shingles.offsets) - shingles.offsets[0].as_py(),
            bands=numbers_of(bands.flatten()).reshape(-1, NUM_BANDS),
        )
        for shingles, bands in zip(*chunks, strict=True)
    ]
    return joined(parts)


def _column_names(of: str, ngram: int) -> tuple[str, str]:
    return f"shingles {of} {ngram}", f"bands {of} {ngram}"


def ngrams(words: Words, start: Int64, stop: Int64, n: int) -> tuple[UInt64, Int64]:
    """Return the n-grams of ranges of words, `start` to `stop`, in order, and how many each has.  # uint64[G], int64[N]

    A range of 1 to n - 1 words has one.
    """
    lengths = stop - start
    counts = np.where(lengths >= n, lengths - n + 1, np.minimum(lengths, 1))
    padded = np.concatenate([words.number, np.zeros(n, np.uint64)])
    at_each_word = padded[: len(words.number)] * _WORD_MULTIPLIERS[0]
    for place in range(1, n):
        at_each_word += padded[place : place + len(at_each_word)] * _WORD_MULTIPLIERS[place]
    found = at_each_word[concatenated_ranges(start, counts)]
    first = offsets_of(counts)
    for row in np.flatnonzero((lengths > 0) & (lengths < n)).tolist():
        short = words.number[start[row] : stop[row]] * _WORD_MULTIPLIERS[: lengths[row]]
        found[first[row]] = short.sum(dtype=np.uint64)
    return mixed(found), counts


def ranges_of(offsets: Int64, size: int) -> Iterator[tuple[int, int]]:
    """Yield ranges ``[first, last)`` of items with about `size` entries of a flat array, at least one item each."""
    cuts = np.unique(np.searchsorted(offsets, np.arange(0, int(offsets[-1]), size)))
    return pairwise([*cuts.tolist(), len(offsets) - 1])


def _distinct(values: UInt64, counts: Int64) -> tuple[UInt64, Int64]:
    """Return the distinct 32-bit values of each row, ascending, and the number of them in each row."""
    keys = np.repeat(np.arange(len(counts), dtype=np.uint64) << _HALF, counts) | values
    keys.sort()
    keys = keys[begins_run(keys)]
    return keys & _LOW, np.bincount((keys >> _HALF).astype(np.int64), minlength=len(counts))


def signatures(words: Words, start: Int64, stop: Int64, n: int) -> Signatures:
    """Compute the shingles of n words, and the bands, of rows of the words `start` to `stop`, int64[N] each."""
    grams, counts = ngrams(words, start, stop, n)
    found, counts = _distinct(grams >> _HALF, counts)
    shingles, offsets = found.astype(np.uint32), offsets_of(counts)
    bands = np.zeros((len(start), NUM_BANDS), np.uint32)
    # Bands are made of all shingles, so that rows share one with the probability above; then the smallest are kept.
    for first, last in ranges_of(offsets, _PIECE_SHINGLES):
        _fill_bands(bands[first:last], shingles[offsets[first] : offsets[last]], counts[first:last])
    rank = concatenated_ranges(np.zeros(len(counts), np.int64), counts)
    kept = np.minimum(counts, MOST_SHINGLES)
    return Signatures(shingles=shingles[rank < MOST_SHINGLES], offsets=offsets_of(kept), bands=bands)


def joined(parts: "list[Signatures]") -> Signatures:
    """Concatenate the rows of all parts."""
    counts = np.concatenate([np.zeros(0, np.int64), *(np.diff(part.offsets) for part in parts)])
    return Signatures(
        shingles=np.concatenate([np.zeros(0, np.uint32), *(part.shingles for part in parts)]),
        offsets=offsets_of(counts),
        bands=np.concatenate([np.zeros((0, NUM_BANDS), np.uint32), *(part.bands for part in parts)]),
    )


def _fill_bands(bands: npt.NDArray[np.uint32], shingles: npt.NDArray[np.uint32], counts: Int64) -> None:
    rows = np.flatnonzero(counts)
    if not len(rows):
        return
    first = (np.cumsum(counts) - counts)[rows]
    images = np.empty_like(shingles)
    for band in range(NUM_BANDS):
        key = np.zeros(len(rows), np.uint64)
        for place in range(BAND_SIZE):
            number = band * BAND_SIZE + place
            np.bitwise_xor(shingles, _FLIP[number], out=images)
            np.multiply(images, _MULTIPLIER[number], out=images)
            key += np.minimum.reduceat(images, first).astype(np.uint64) * _MINHASH_MULTIPLIERS[place]
        bands[rows, band] = (mixed(key) >> _HALF).astype(np.uint32)
