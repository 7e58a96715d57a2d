"""Texts as words, and words as 64-bit numbers: what near copies and benchmark questions are found by.

A text is normalised by NFKC and then casefolded. A word is a run of letters, marks and digits, or one character of a
script that is written without spaces: Chinese, Japanese, Thai, Lao, Khmer and Myanmar. Everything else parts words.

Worked example: "Größe 10, 你好!" has the words "grösse", "10", "你" and "好".

The categories of characters are those of Python's `unicodedata`; whoever keeps numbers of words keeps the version of
its tables with them.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from packer.batches import Int64, UInt64

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
"""Stands after each text of a piece; it is no part of a word."""

_PIECE_CHARACTERS = 2**15
"""Texts are taken together up to so many characters: the arrays of a piece stay in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words of T texts. W words."""

    number: UInt64  # [W] equal words have equal numbers
    offsets: Int64  # [T + 1]


def constants(name: str, count: int) -> UInt64:
    """Odd 64-bit numbers that are a pure function of a name.  # uint64[count]"""
    return np.array([xxhash.xxh3_64_intdigest(f"{name} {i}".encode()) | 1 for i in range(count)], np.uint64)


def mixed(values: UInt64) -> UInt64:
    """Spread every bit of each value over all 64: the output function of splitmix64, a bijection."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


_BY_PLACE = constants("the character of a word at a place", 256)
"""Places repeat in longer words."""


def words_of(texts: Sequence[str]) -> Words:
    """Take texts apart into words."""
    numbers, counts = [np.zeros(0, np.uint64)], [np.zeros(1, np.int64)]
    for piece in _pieces(texts):
        number, count = _words_of_piece(piece)
        numbers.append(number)
        counts.append(count)
    return Words(number=np.concatenate(numbers), offsets=np.cumsum(np.concatenate(counts)))


def _pieces(texts: Sequence[str]) -> Iterator[list[str]]:
    """The normalised texts, a number of them at a time."""
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
    """Numbers of the words of all texts, and how many each text has."""
    joined = _END.join([*texts, ""])
    if joined.count(_END) > len(texts):  # one of them has it, too
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
    first = np.flatnonzero(begins[inside])  # of each word, among the characters of words
    lengths = np.diff(first, append=len(inside))
    place = np.arange(len(inside)) - np.repeat(first, lengths)
    terms = codes[inside].astype(np.uint64)
    terms *= _BY_PLACE[place & (len(_BY_PLACE) - 1)]
    ends = np.searchsorted(inside[first], np.flatnonzero(codes == 0))
    number = mixed(np.add.reduceat(terms, first)) if len(first) else np.zeros(0, np.uint64)
    return number, np.diff(ends, prepend=0)


def _kinds(codes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Whether each character is no part of a word, part of a run, or a word by itself."""
    kind: npt.NDArray[np.uint8] = _KINDS[codes]
    unknown = codes[kind == _UNKNOWN]
    if len(unknown):
        for code in np.unique(unknown).tolist():
            _KINDS[code] = _kind(code)
        kind = _KINDS[codes]
    return kind


def _kind(code: int) -> int:
    if unicodedata.category(chr(code))[0] not in "LMN":
        return _NOTHING
    return _SINGLE if any(first <= code <= last for first, last in _SINGLE_RANGES) else _RUN


_KINDS: npt.NDArray[np.uint8] = np.full(0x110000, _UNKNOWN, np.uint8)
"""Of each character; filled as characters are met, for all of Unicode would take half a second."""
