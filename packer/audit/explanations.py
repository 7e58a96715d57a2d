"""The entries of `packer explain`: codes of rejected rows, codes of `lint`, and the recipe's keys."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from packer import rejections
from packer.audit.lint.codes import CODES
from packer.errors import UsageError
from packer.near import did_you_mean, near
from packer.recipe.named_options import NAMED_OPTIONS
from packer.recipe.recipe import recipe_keys
from packer.withdrawn import refuse_withdrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The meaning of a code, or of a key of the recipe."""

    name: str
    kind: str
    """`rejected rows`, `lint: error`, `lint: warning`, `lint: note`, `key of a recipe`, or `recipe`."""

    meaning: str
    way_out: str | None = None
    """What to do about it; None if nothing needs to be done."""


def explanations() -> list[Explanation]:
    """Return all explanations, in the order of the reference pages."""
    rejected = [
        Explanation(name=code, kind="rejected rows", meaning=meaning, way_out=rejections.rejection_hint(code))
        for code, meaning in rejections.CODES.items()
    ]
    linted = [Explanation(name=name, kind=f"lint: {code.level}", meaning=code.meaning) for name, code in CODES.items()]
    return [*rejected, *linted, Explanation(name="recipe", kind="recipe", meaning=recipe_keys()), *_keys()]


_NEXT_LINE = re.compile(r" *\n *# ")
_KEY = re.compile(r"^( *(?:- )?)(\w+):(?: (.*?))? *(?:# (.*(?:\n +# .*)*))?(?=\n|\Z)", re.MULTILINE)


def _keys() -> Iterator[Explanation]:
    """Yield an explanation of each key of a recipe, from the default and the comment that the list of all keys has."""
    above: list[tuple[int, str]] = []
    for indent, name, default, comment in (line.groups() for line in _KEY.finditer(recipe_keys())):
        above = [*(each for each in above if each[0] < len(indent)), (len(indent), name)]
        path = ".".join(part for _, part in above)
        if comment:
            meaning = f"{_NEXT_LINE.sub(' ', comment)}; by default {default}"
            way_out = None if path.startswith("sources.") else f"--set {path}=VALUE sets it"
            yield Explanation(name=path, kind="key of a recipe", meaning=meaning, way_out=way_out)


def explain(name: str) -> list[Explanation]:
    """Return the explanations of a name: two of a code that rejected rows and `lint` use, and of the end of some keys.

    The name of an option, such as `history`, is that of its key.

    Raises:
        UsageError: there is no such code or key.
    """
    every = explanations()
    option = NAMED_OPTIONS.get(name.replace("-", "_"))
    key = option.key if option is not None else name
    found = [each for each in every if each.name == key]
    found = found or [each for each in every if each.name.endswith(f".{key}")]
    if not found:
        refuse_withdrawn(f"packer explain {name}")
        hint = did_you_mean(near(name, {each.name for each in every}), "packer explain lists them all")
        raise UsageError(f"no code or key is called '{name}'", hint=hint)
    return found
