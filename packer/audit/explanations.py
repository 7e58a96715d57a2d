"""The entries of `packer explain`: codes of rejected rows and of `preview`, schemas, and the recipe's keys."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from packer import rejections
from packer.audit import TEMPLATE_CODES
from packer.errors import UsageError, did_you_mean, near
from packer.recipe.named_options import NAMED_OPTIONS, as_option, key_values, recipe_keys
from packer.recipe.recipe import Recipe
from packer.recipe.strict_yaml import kind_of, places_of
from packer.source.schema import SCHEMAS


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The meaning of a code, of a schema, or of a key of the recipe."""

    name: str
    kind: str
    """`rejected rows`, `finding of preview`, `schema of rows`, `key of a recipe` or `recipe`."""

    meaning: str
    values: dict[str, str] = field(default_factory=dict)
    """What each value of a key trains and costs, if the key takes one of a few."""

    way_out: str | None = None
    """What to do about it, or how the key is set; None if nothing needs to be done."""


def explanations() -> list[Explanation]:
    """Return all explanations, in the order of the reference pages."""
    rejected = [
        Explanation(name=code, kind="rejected rows", meaning=meaning, way_out=rejections.rejection_hint(code))
        for code, meaning in rejections.CODES.items()
    ]
    of_templates = [
        Explanation(name=name, kind="finding of preview", meaning=meaning) for name, meaning in TEMPLATE_CODES.items()
    ]
    schemas = [
        Explanation(
            name=name,
            kind="schema of rows",
            meaning=schema.help,
            way_out=f"{as_option(f'sources.schema={name}')} sets it",
        )
        for name, schema in SCHEMAS.items()
    ]
    return [
        *rejected,
        *of_templates,
        *schemas,
        Explanation(name="recipe", kind="recipe", meaning=recipe_keys()),
        *_keys(),
    ]


_NEXT_LINE = re.compile(r" *\n *# ")
_KEY = re.compile(r"^( *(?:- )?)(\w+):(?: (.*?))? *(?:# (.*(?:\n +# .*)*))?(?=\n|\Z)", re.MULTILINE)


def _keys() -> Iterator[Explanation]:
    """Yield an explanation of each key of a recipe, from the default and the comment that the list of all keys has."""
    all_values = key_values()
    above: list[tuple[int, str]] = []
    for indent, name, default, comment in (line.groups() for line in _KEY.finditer(recipe_keys())):
        above = [*(each for each in above if each[0] < len(indent)), (len(indent), name)]
        path = ".".join(part for _, part in above)
        if comment:
            meaning = f"{_NEXT_LINE.sub(' ', comment)}; by default {default}"
            values = dict(all_values.get(path, {}))
            other = next((value for value in values if value != default), "VALUE")
            example = values.pop("EXAMPLE", other)
            way_out = f"{as_option(f'{path}={example}')} sets it"
            yield Explanation(name=path, kind="key of a recipe", meaning=meaning, values=values, way_out=way_out)


def _is_key(name: str) -> bool:
    try:
        kind_of(Recipe, name)
    except (AttributeError, KeyError):
        return False
    return True


def explain(name: str, commands: Iterable[Explanation] = ()) -> list[Explanation]:
    """Return the explanations of a code, a schema, a key or its end, an option that sets a key, or a command.

    A group is explained by its keys, a value by the keys that take it, and a key within the value of another by that
    one: `filters[0].chars.min` by `filters`.
    """
    every = [*explanations(), *commands]
    named = NAMED_OPTIONS.get(name.removeprefix("--").replace("-", "_"))
    name = named.key if named else name
    found = [each for each in every if each.name == name or each.name.endswith(f".{name}")]
    found = found or [each for each in every if each.name.startswith(f"{name}.")]
    found = found or [each for each in every if name in each.values]
    if not found and _is_key(name):
        above = [each for each in every if name.startswith((f"{each.name}.", f"{each.name}["))]
        found = sorted(above, key=lambda each: len(each.name))[-1:]
    if not found:
        names = {part for each in every for part in (each.name, each.name.rpartition(".")[2])}
        meant = [*places_of(Recipe, name)] or near(name, names)
        hint = did_you_mean(meant, "packer explain lists them all")
        raise UsageError(f"no code, schema, key or command is called '{name}'", hint=hint)
    return found
