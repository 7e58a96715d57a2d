"""Texts whose middle is trained after what stands around it.

What happens to a text depends on its bytes alone: not on its file, its place or the texts beside it.
"""

import functools

import xxhash

from packer.recipe.supervision import Infilling

_ALL = 2**64


def infilled(text: str, rule: Infilling | None) -> str:
    """Return a text in the order in which it is trained, with the tokens of the rule between its parts.

    Cuts fall between characters. A text that has one of the tokens is left as it is, as it may be cut already.

    Example:
        >>> rule = Infilling(tokens=("<P>", "<S>", "<M>"), rate=1, spm=0)
        >>> infilled("def one(): return 1", rule)
        '<P>def one(): re<S>rn 1<M>tu'
    """
    if rule is None or any(token in text for token in rule.tokens):
        return text
    chosen, order, *cuts = (xxhash.xxh3_64_intdigest(text.encode(), seed=number) for number in range(4))
    if chosen >= rule.rate * _ALL:
        return text
    start, end = sorted(cut % (len(text) + 1) for cut in cuts)
    prefix, middle, suffix = text[:start], text[start:end], text[end:]
    before_prefix, before_suffix, before_middle = rule.tokens
    if order < rule.spm * _ALL:
        return f"{before_prefix}{before_suffix}{suffix}{before_middle}{prefix}{middle}"
    return f"{before_prefix}{prefix}{before_suffix}{suffix}{before_middle}{middle}"


def without_tokens(text: str, rule: Infilling | None) -> str:
    """Return what a text says beside the tokens of the rule, with which it may come cut already."""
    return functools.reduce(lambda said, token: said.replace(token, ""), rule.tokens if rule else (), text)
