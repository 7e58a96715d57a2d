"""The entries of `packer explain`: codes of rejected rows, codes of `lint`, and the recipe's keys."""

from dataclasses import dataclass

from packer import rejections
from packer.audit.lint.codes import CODES
from packer.errors import UsageError
from packer.near import did_you_mean, near
from packer.recipe.recipe import recipe_keys
from packer.withdrawn import refuse_withdrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The meaning of a code, or of the recipe's keys."""

    name: str
    kind: str
    """`rejected rows`, `lint: error`, `lint: warning`, `lint: note`, or `recipe`."""

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
    keys = Explanation(name="recipe", kind="recipe", meaning=recipe_keys())
    return [*rejected, *linted, keys]


def explain(name: str) -> list[Explanation]:
    """Return the explanations of a code; there are two if rejected rows and `lint` both use the name.

    Raises:
        UsageError: there is no such code.
    """
    every = explanations()
    found = [each for each in every if each.name == name]
    if not found:
        refuse_withdrawn(f"packer explain {name}")
        hint = did_you_mean(near(name, {each.name for each in every}), "packer explain lists them all")
        raise UsageError(f"no code is called '{name}'", hint=hint)
    return found
