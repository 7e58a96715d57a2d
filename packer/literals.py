"""Regular expressions that match the longest of several literal texts."""

import re
from collections.abc import Iterable


def longest_of(literals: Iterable[str]) -> str:
    """Return a pattern that matches the longest of several non-empty texts.

    Python tries the alternatives one by one, but only at places where one of their first letters occurs. On chats this
    is as fast as a trie.

    Example:
        >>> longest_of(["ab", "abc", "ax"])
        'abc|ab|ax'
    """
    return "|".join(re.escape(literal) for literal in sorted(set(literals), key=lambda text: (-len(text), text)))
