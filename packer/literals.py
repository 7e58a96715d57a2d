"""Searches for several literal texts at once, replaces what was found, and measures what two texts share."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import AnyStr

_FEW = 8
_MAX_DEPTH = 4
"""Of nested groups: the 6,400 added tokens of Gemma 3 come down to 60 alternatives, and every pattern compiles."""


def longest_of(literals: Iterable[str]) -> str:
    """Return a pattern that matches the longest of several non-empty texts.

    Python tries alternatives one by one, so many are grouped by what they begin with.

    Example:
        >>> longest_of(["ab", "abc", "ax"])
        'abc|ab|ax'
    """
    return _alternatives(sorted(set(literals)), _MAX_DEPTH)


def finder(literals: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a text contains any of several non-empty texts.

    Most texts contain few of their first letters, and a single letter is found in a fraction of the time.
    """
    by_letter = groupby(sorted(set(literals)), key=lambda text: text[0])
    patterns = [(letter, re.compile(longest_of(group))) for letter, group in by_letter]

    def contains(text: str) -> bool:
        for letter, pattern in patterns:  # noqa: SIM110 - a generator takes twice the time
            if letter in text and pattern.search(text) is not None:
                return True
        return False

    return contains


def replaced(
    text: AnyStr, pattern: re.Pattern[AnyStr], of: Callable[[re.Match[AnyStr]], AnyStr]
) -> tuple[AnyStr, list[tuple[int, int]], Callable[[int], int]]:
    """Replace each match of a pattern by what `of` returns.

    Returns:
        The text; the ranges of what was put in place; and a function that maps a position in `text` to one in the
        result. Worked example: with `<s>` in place of the 3 characters `␣0␣`, the ranges of "a␣0␣b" are [(1, 4)].
    """
    pieces: list[AnyStr] = []
    ranges: list[tuple[int, int]] = []
    ends: list[int] = []
    shifts: list[int] = []
    length = last = 0
    for match in pattern.finditer(text):
        before, own = text[last : match.start()], of(match)
        pieces += (before, own)
        start, last = length + len(before), match.end()
        length = start + len(own)
        ranges.append((start, length))
        ends.append(last)
        shifts.append(length - last)
    pieces.append(text[last:])

    def moved(position: int) -> int:
        number = bisect_right(ends, position)
        return position + (shifts[number - 1] if number else 0)

    return text[:0].join(pieces), ranges, moved


def common_length(a: str, b: str) -> int:
    """Return the length of the common prefix of two texts, by bisection rather than character by character."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _alternatives(literals: Sequence[str], depth: int) -> str:
    """`literals`: distinct, in order."""
    if len(literals) <= _FEW or not depth:
        return "|".join(map(re.escape, sorted(literals, key=len, reverse=True)))
    return "|".join(_group(list(group), depth) for _, group in groupby(literals, key=lambda text: text[:1]))


def _group(literals: Sequence[str], depth: int) -> str:
    """Return a pattern for texts with the same first letter, in order: what the first and last share, all do."""
    first, last = literals[0], literals[-1]
    if len(literals) == 1:
        return re.escape(first)
    start = first[: next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]
    rest = [literal[len(start) :] for literal in literals if literal != start]
    ending = "?" if start in literals else ""
    return f"{re.escape(start)}(?:{_alternatives(rest, depth - 1)}){ending}"
