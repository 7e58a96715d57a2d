"""Reads a configuration of axolotl or LLaMA-Factory, and writes it as a recipe.

Sources with their columns, tokenizer, template, length and packing are carried over; every other key is listed.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packer.display import in_shell
from packer.errors import RecipeError, UsageError
from packer.names import refuse_address
from packer.recipe.recipe import make_recipe
from packer.recipe.strict_yaml import as_yaml, load_mapping
from packer.recipe_from.configurations import ConfigPaths, Report, read_axolotl, read_llamafactory, shown
from packer.store.folder import write_atomically

RECIPE_FILE = "recipe.yaml"

_EXPECTED = "a configuration of axolotl (datasets:) or of LLaMA-Factory (dataset:)"


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
    values = _load(path)
    paths = ConfigPaths(bases=tuple(dict.fromkeys((Path.cwd(), path.absolute().parent))), target=target)
    report = Report()
    kind = _kind(values, path)
    is_axolotl = kind == "axolotl"
    found = read_axolotl(values, paths, report) if is_axolotl else read_llamafactory(values, paths, report, load=_load)
    recipe = {key: value for key, value in found.items() if value not in ({}, [])}
    if "sources" not in recipe:
        first = "".join(f"; {entry}: {reason}" for entry, reason in list(report.left_out.items())[:1])
        hint = "fix the rows or the entry, then run it again" if first else f"expected {_EXPECTED}"
        raise RecipeError(f"{path}: contains no rows that packer reads{first}", hint=hint)
    make_recipe(recipe, where=f"{path} as a recipe")
    return Converted(
        kind=kind,
        path=path,
        values=recipe,
        carried=tuple(report.carried),
        left={key: shown(value) for key, value in report.left.items()},
        left_out=report.left_out,
    )


def write_recipe(converted: Converted, folder: Path) -> Path:
    """Write `recipe.yaml` into a folder, which is created if necessary, and return its path."""
    refuse_address(os.fspath(folder), place="file")
    path = folder / RECIPE_FILE
    if os.path.lexists(path):
        raise UsageError(f"{path}: already exists, and is not overwritten", hint="name another folder")
    write_atomically(path, _recipe_text(converted).encode())
    return path


def _recipe_text(converted: Converted) -> str:
    """Return the recipe in YAML, below comments with what it does not carry over."""
    head = [f"From {converted.path.name}; packer init --from wrote it."]
    head += [f"Left out: {entry}: {reason}" for entry, reason in converted.left_out.items()]
    head += ["Not carried over:"] * bool(converted.left) + [
        f"  {key}: {value}" for key, value in converted.left.items()
    ]
    comments = "".join(f"# {_printable(line)}".rstrip() + "\n" for line in "\n".join(head).split("\n"))
    return f"{comments}\n{as_yaml({'version': 1, **converted.values})}"


def _printable(line: str) -> str:
    """Escape what YAML and a terminal cannot print: a name may contain anything, even bytes that are not text."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in line)


def _load(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON mapping as plain values that can be written to a recipe and to a screen."""
    values = load_mapping(path, hint=f"FILE is {_EXPECTED}")
    try:
        json.dumps(values, ensure_ascii=False, default=str, skipkeys=True).encode()
    except UnicodeEncodeError as error:
        found = ascii(error.object[max(error.start - 40, 0) : error.start + 40])
        raise RecipeError(f"{path}: {found} is not UTF-8: it has half a surrogate") from None
    except (RecursionError, ValueError) as error:
        raise RecipeError(f"{path}: a value contains itself, is nested too deeply, or is too large: {error}") from None
    return values


def _kind(values: Mapping[str, Any], path: Path) -> Literal["axolotl", "llamafactory"]:
    if "sources" in values:
        raise RecipeError(f"{path}: is a recipe of packer already", hint=f"packer build -c {in_shell(path)} -o CACHE")
    if "datasets" in values or "pretraining_dataset" in values:
        return "axolotl"
    if "dataset" in values:
        return "llamafactory"
    found = ", ".join(map(str, list(values)[:8])) or "no keys"
    raise RecipeError(
        f"{path}: expected {_EXPECTED}; found {found}", hint="packer init DIR without --from writes a starter recipe"
    )
