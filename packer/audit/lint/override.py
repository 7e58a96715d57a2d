"""Keys of the recipe that a hint proposes: written for people and applied to a recipe in one place.

What is printed is what is tried: :meth:`Override.apply` takes the text of `--set` through the code that reads it from
the command line. A list is proposed whole, with what the recipe has in it already, since `--set` replaces it; a
template variable has a key of its own, so that the others stay.
"""

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from packer.recipe import Recipe, make_recipe, to_json

_PLAIN = re.compile(r"(?!(?:true|false|null|yes|no|on|off)\Z)[a-z][a-z0-9_]*")
"""Words that YAML takes for text without quotes."""


@dataclass(frozen=True, slots=True)
class Override:
    """One key of the recipe with a value."""

    key: str
    value: Any
    """As JSON has it."""

    @classmethod
    def allowing(cls, recipe: Recipe, kinds: Iterable[str]) -> "Override":
        """Losses the recipe allows already, and these."""
        merged = dict.fromkeys((*recipe.supervision.allow_dropped, *kinds))
        return cls("supervision.allow_dropped", list(merged))

    @classmethod
    def stopping(cls, recipe: Recipe, stop: str) -> "Override":
        """Stop tokens the recipe names already, and this."""
        return cls("supervision.stop", list(dict.fromkeys((*recipe.supervision.stop, stop))))

    @classmethod
    def variable(cls, name: str, value: Any) -> "Override":
        """A variable of the template."""
        return cls(f"template.kwargs.{name}", value)

    @property
    def setting(self) -> str:
        """`KEY=VALUE`, as `--set` takes it."""
        return f"{self.key}={_written(self.value)}"

    def apply(self, recipe: Recipe) -> Recipe:
        """The recipe as it is with `--set`.

        Raises:
            RecipeError: the recipe knows no such key, or takes no such value.

        """
        return make_recipe(to_json(recipe), [self.setting])

    def __str__(self) -> str:
        """As it is typed: `--set supervision.on_prompt_mismatch=continue`."""
        return f"--set {shlex.quote(self.setting)}"


def _written(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    if isinstance(value, list):  # without a space, where a line would be broken
        return f"[{','.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)
