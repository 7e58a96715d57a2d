"""Template variables whose values are words for how much to reason, such as `reasoning_effort`.

The words are those with which the template's source compares the variable. If one of them means *none*, a prompt under
it asks for an answer without reasoning, even if prompt and turn have nothing else that says so: Mistral's template only
states the effort in front of the question. So a reasoned answer is trained under none of these words, also if it is the
one that the template uses by default.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_NONE = re.compile(r"(?:no(?:t|n|ne)?(?:[ _-]?(?:think|reason)\w*)?|off|false|disabled?)", re.IGNORECASE)
"""Matches a word that means none: `none`, `no_think`, `off`."""


def means_none(value: Any) -> bool:
    """Whether a value is a word that asks for no reasoning."""
    return isinstance(value, str) and _NONE.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Efforts:
    """The variables of a template that a word can set to no reasoning."""

    names: tuple[str, ...]
    none_by_default: frozenset[str]
    """Those that mean none if nothing sets them."""

    asking: tuple[tuple[str, str], ...]
    """Of these, the settings with which the template asks for reasoning."""

    def refusing(self, kwargs: Mapping[str, Any]) -> str | None:
        """Return by which variable a template asks for no reasoning if it is given these; None if by none."""
        for name in self.names:
            value = kwargs.get(name)
            if means_none(value):
                return f"{name}={value}"
            if value is None and name in self.none_by_default:
                return f"{name}, which means none by default"
        return None


def learned(words: Mapping[str, tuple[str, ...]], prompt: Callable[[Mapping[str, Any]], str | None]) -> Efforts:
    """Learn what the words of a template do.

    Args:
        words: by variable, the words with which it is compared.
        prompt: renders a question and the header of its answer with some variables; None if the template raises.
    """
    own = prompt({})
    names, defaults, asking = [], set(), []
    for name, compared in words.items():
        none = [*filter(means_none, compared)]
        if not none or own is None:
            continue
        names.append(name)
        if own in [prompt({name: word}) for word in none]:
            defaults.add(name)
            others = [word for word in compared if word not in none]
            asking += [(name, word) for word in others if prompt({name: word}) not in (None, own)]
    return Efforts(tuple(names), frozenset(defaults), tuple(asking))
