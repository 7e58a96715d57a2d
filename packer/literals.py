"""Patterns that match one of many literal texts, the longest that stands there."""

import re
from collections.abc import Iterable


def longest_of(literals: Iterable[str]) -> str:
    """A pattern for the longest of some texts that stands at a place; none of them is empty.

    Python tries them one by one, where one of their first letters stands: on texts of chats that costs as much as a
    tree of their common beginnings would.

    Example:
        >>> longest_of(["ab", "abc", "ax"])
        'abc|ab|ax'

    """
    return "|".join(re.escape(literal) for literal in sorted(set(literals), key=lambda text: (-len(text), text)))
