"""Reads a configuration of axolotl 0.19 or LLaMA-Factory 0.9.5, and writes it as a recipe.

Sources with their columns, tokenizer, template, length and packing are carried over; every other key is listed.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packer.display import in_shell
from packer.errors import RecipeError, UsageError
from packer.names import refuse_address
from packer.recipe.recipe import make_recipe
from packer.recipe.strict_yaml import as_yaml
from packer.recipe_from import axolotl, llamafactory
from packer.recipe_from.keys import EXPECTED, Keys, Paths, load_config, one_line_of
from packer.store.folder import write_atomically

RECIPE_FILE = "recipe.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A configuration as a recipe."""

    kind: Literal["axolotl", "llamafactory"]
    path: Path
    values: dict[str, Any]
    """Values of the recipe; other keys have packer's defaults."""

    carried: tuple[str, ...]
    """Keys that decided something of the recipe."""

    left: dict[str, str]
    """Keys that are not carried over, with their values, truncated."""

    left_out: dict[str, str]
    """Entries whose rows packer cannot read, and why."""


def read_config(path: Path, target: Path) -> Converted:
    """Read a configuration and convert it to a recipe.

    Args:
        path: YAML or JSON.
        target: The folder that the recipe will be in; its paths are relative to it.
    """
    values = load_config(path)
    paths = Paths(bases=tuple(dict.fromkeys((Path.cwd(), path.absolute().parent))), target=target)
    kind = _kind(values, path)
    keys = Keys(values)
    found = (axolotl if kind == "axolotl" else llamafactory).recipe_of(keys, paths)
    recipe = {key: value for key, value in found.items() if value not in ({}, [])}
    if "sources" not in recipe:
        first = "".join(f"; {entry}: {reason}" for entry, reason in list(keys.left_out.items())[:1])
        hint = "fix the rows or the entry, then run it again" if first else f"expected {EXPECTED}"
        raise RecipeError(f"{path}: contains no rows that packer reads{first}", hint=hint)
    make_recipe(recipe, where=f"{path} as a recipe")
    carried, left = tuple(keys.carried), {key: one_line_of(value) for key, value in keys.left.items()}
    return Converted(kind=kind, path=path, values=recipe, carried=carried, left=left, left_out=keys.left_out)


def write_recipe(converted: Converted, folder: Path) -> Path:
    """Write `recipe.yaml` into a folder, which is created if necessary, and return its path.

    Comments above it say what it does not carry over. A name may contain anything, even bytes that are not text: what
    YAML and a terminal cannot print is escaped.
    """
    refuse_address(os.fspath(folder), place="file")
    path = folder / RECIPE_FILE
    if os.path.lexists(path):
        raise UsageError(f"{path}: already exists, and is not overwritten", hint="name another folder")
    head = [f"From {converted.path.name}; packer init --from wrote it."]
    head += [f"Left out: {entry}: {reason}" for entry, reason in converted.left_out.items()]
    head += ["Not carried over:"] * bool(converted.left)
    head += [f"  {key}: {value}" for key, value in converted.left.items()]
    lines = "\n".join(head).split("\n")
    printable = ("".join(each if each.isprintable() else ascii(each)[1:-1] for each in line) for line in lines)
    comments = "".join(f"# {line}".rstrip() + "\n" for line in printable)
    write_atomically(path, f"{comments}\n{as_yaml({'version': 1, **converted.values})}".encode())
    return path


def _kind(values: Mapping[str, Any], path: Path) -> Literal["axolotl", "llamafactory"]:
    if "sources" in values:
        raise RecipeError(f"{path}: is a recipe of packer already", hint=f"packer build -c {in_shell(path)} -o CACHE")
    if "datasets" in values or "pretraining_dataset" in values:
        return "axolotl"
    if "dataset" in values:
        return "llamafactory"
    found = ", ".join(map(str, list(values)[:8])) or "no keys"
    raise RecipeError(
        f"{path}: expected {EXPECTED}; found {found}", hint="packer init DIR without --from writes a starter recipe"
    )
