"""Patterns that match one of many literal texts, the longest that stands there.

An alternation of literals is tried one by one: of a tokenizer's 256 special tokens that all begin with ``<|``, each. So
they are written as a tree of their common beginnings instead, where each letter decides.

Worked example: ``ab``, ``abc``, ``ax`` give ``a(?:b(?:c)?|x)``, which matches ``abc`` in ``abcd``,
and ``ab`` in ``aby``.
"""

import re
from collections.abc import Iterable
from itertools import groupby

_DEEPEST = 40
"""Branchings on a way through the tree; what lies deeper is tried one by one. Patterns nest by recursion."""


def longest_of(literals: Iterable[str]) -> str:
    """A pattern for the longest of some texts that stands at a place; none of them is empty."""
    return _tree(sorted(set(literals)), _DEEPEST)


def _tree(literals: list[str], depth: int) -> str:
    """Of texts in their order. The empty text among them says that another one ends here."""
    longer = [literal for literal in literals if literal]
    if depth:
        branches = [_branch(list(group), depth) for _, group in groupby(longer, key=lambda literal: literal[0])]
    else:
        branches = [re.escape(literal) for literal in sorted(longer, key=len, reverse=True)]
    ends = len(longer) < len(literals)
    if not branches or (len(branches) == 1 and not ends):
        return "".join(branches)
    return f"(?:{'|'.join(branches)})" + "?" * ends


def _branch(literals: list[str], depth: int) -> str:
    first, last = literals[0], literals[-1]  # of texts in their order; what they share, those between them do
    length = next((i for i, letters in enumerate(zip(first, last, strict=False)) if len(set(letters)) > 1), len(first))
    return re.escape(first[:length]) + _tree([literal[length:] for literal in literals], depth - 1)
