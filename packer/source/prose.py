"""Tells texts from labels, ids, addresses, numbers and dates: the one measure of what is asked about."""

import re
import string

_LABEL_WORDS = 3
_LABEL_COLUMNS = 32
_LONGEST_ID = 256
"""Characters without a blank that may be an id, a digest, a path or an address."""

_BEGINNING = 256
"""Characters of a long text that are looked at first: most are told by four words."""

_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")
"""Letters of scripts without blanks between words. Two of the first are about a word, and four of the second."""

_OF_IDS = re.compile(r"[\d/_@\\:]")
"""Characters that ids, paths, addresses and times have, and a word that stands alone has not."""


def is_text(*texts: str) -> bool:
    """Whether a text, or several in a list, are longer than a label, and no ids, addresses, numbers or dates.

    Example:
        >>> is_text("Always answer in Gaelic."), is_text("CC BY-NC-SA 4.0"), is_text("https://example.org/" + "a" * 40)
        (True, False, False)
        >>> is_text("maths", "word problem"), is_text("Oban", "Mull", "early", "Mallaig", "Skye", "late", "Ullapool")
        (False, True)
    """
    num_columns = -1
    for text in texts:
        if len(text) > _BEGINNING and is_text(text[:_BEGINNING]):
            return True
        spaced, num_han = _HAN.subn("", text)
        spaced, num_others = _UNSPACED.subn("", spaced)
        words = (
            [] if " " not in text and _OF_IDS.search(spaced) else [word for word in spaced.split() if _is_word(word)]
        )
        num_columns += 2 * num_han + num_others + sum(len(word) + 1 for word in words)
        if len(words) + num_han / 2 + num_others / 4 > _LABEL_WORDS or num_columns > _LABEL_COLUMNS:
            return True
    return False


def _is_word(word: str) -> bool:
    word = word.strip(string.punctuation)
    if len(word) > _LABEL_COLUMNS and word.isascii():
        return len(word) > _LONGEST_ID
    return any(map(str.isalpha, word))
