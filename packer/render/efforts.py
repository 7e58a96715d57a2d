"""Template variables whose values are words for how much to reason, such as `reasoning_effort`.

The words are those with which the template's source compares the variable. What they ask for is tried: a word asks for
reasoning if a made-up answer with some continues its prompt. Where that is so for all words or for none, as with
Mistral's template, which only states the effort in front of the question, what a word means in English decides. A
reasoned answer is trained under no word that asks for none, also if it is the one that the template uses by default.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packer.render.reasoning import goes_on

WORD = "Zq0W"
"""The reasoning of the made-up answer."""

_NONE = re.compile(r"(?:no(?:t|n|ne)?(?:[ _-]?(?:think|reason)\w*)?|off|false|disabled?)", re.IGNORECASE)
"""Matches a word that means none: `none`, `no_think`, `off`."""


def means_none(word: str) -> bool:
    """Whether a word asks for no reasoning."""
    return _NONE.fullmatch(word) is not None


@dataclass(frozen=True, slots=True)
class Efforts:
    """The variables of a template that a word can set to no reasoning."""

    none: Mapping[str, tuple[str, ...]]
    """By variable, the words that ask for none."""

    none_by_default: frozenset[str]
    """Those that mean none if nothing sets them."""

    asking: tuple[tuple[str, str], ...]
    """Of these, the settings with which the template asks for reasoning."""

    def refusing(self, kwargs: Mapping[str, Any]) -> str | None:
        """Return by which variable a template asks for no reasoning if it is given these; None if by none."""
        for name, words in self.none.items():
            value = kwargs.get(name)
            if isinstance(value, str) and value.lower() in map(str.lower, words):
                return f"{name}={value}"
            if value is None and name in self.none_by_default:
                return f"{name}, which means none by default"
        return None


def learned(
    words: Mapping[str, tuple[str, ...]],
    prompt: Callable[[Mapping[str, Any]], str | None],
    answered: Callable[[Mapping[str, Any]], str | None],
) -> Efforts:
    """Learn what the words of a template do.

    Args:
        words: by variable, the words with which it is compared.
        prompt: renders a question and the header of its answer with some variables; None if the template raises.
        answered: renders the question and an answer that has reasoning.
    """

    def asks(kwargs: Mapping[str, Any]) -> bool | None:
        asked, whole = prompt(kwargs), answered(kwargs)
        if asked is None or whole is None:
            return None
        return WORD in whole and whole.startswith(asked) and goes_on(asked, whole[len(asked) :])

    found, defaults, asking = {}, set(), []
    own, own_asks = (prompt({}), asks({})) if any(words.values()) else (None, None)
    for name, compared in words.items() if own is not None else ():
        tried = {word: asks({name: word}) for word in compared}
        if {own_asks, *tried.values()} >= {True, False}:
            none, is_default = [word for word in compared if tried[word] is False], own_asks is False
        else:
            none = [*filter(means_none, compared)]
            is_default = own in [prompt({name: word}) for word in none]
        if none or is_default:
            found[name] = tuple(none)
        if is_default:
            defaults.add(name)
            others = [word for word in compared if word not in none]
            asking += [(name, word) for word in others if prompt({name: word}) not in (None, own)]
    return Efforts(found, frozenset(defaults), tuple(asking))
