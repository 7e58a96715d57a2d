"""Which of the configurations a file is, and what it comes to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packer.errors import RecipeError
from packer.recipe import make_recipe
from packer.recipe_from.axolotl import read_axolotl
from packer.recipe_from.dataset_info import is_dataset_info, read_entries
from packer.recipe_from.llamafactory import names_of, read_llamafactory
from packer.recipe_from.load import EXPECTED, load_config
from packer.recipe_from.places import Places
from packer.recipe_from.source_files import SourceFiles
from packer.recipe_from.template import TemplateFiles
from packer.recipe_from.told import Ledger, Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A configuration as a recipe."""

    kind: Literal["axolotl", "llamafactory", "dataset_info"]
    path: Path
    values: dict[str, Any]
    """Of the recipe; what it does not say has packer's default."""

    template: str | None
    """Text of a chat template that stood in the configuration."""

    carried: tuple[str, ...]
    """Keys that mean in the recipe what they meant before."""

    notes: tuple[Note, ...]
    """The other keys, in the order in which they were read."""


def read_config(path: Path, target: Path, *, datasets: Sequence[str] = ()) -> Converted:
    """Read a configuration.

    Args:
        path: The file, YAML or JSON.
        target: The folder the recipe will lie in: its paths are relative to that.
        datasets: Of a bare `dataset_info.json`, the entries to take; all if none is named.

    Raises:
        RecipeError: no such file, not YAML or JSON, no configuration of these, or one that packer has no use for.

    """
    values = load_config(path)
    places = Places(bases=tuple(dict.fromkeys((Path.cwd(), path.absolute().parent))), target=target)
    ledger = Ledger()
    files = TemplateFiles(places=places)
    kind = _kind(values, path)
    if datasets and kind != "dataset_info":
        raise RecipeError(
            f"{path}: says itself which data sets are meant", hint="--dataset is for a bare dataset_info.json"
        )
    recipe: dict[str, Any]
    if kind == "axolotl":
        recipe = read_axolotl(values, places, ledger, files)
    elif kind == "llamafactory":
        recipe = read_llamafactory(values, places, ledger, load=load_config)
    else:
        beside = Places(bases=(path.absolute().parent,), target=target, absolute=path.is_absolute())
        names = [part for name in datasets for part in ([name] if name in values else names_of([name]) or [name])]
        files_taken = SourceFiles(target=target)
        recipe = {"sources": read_entries(values, names or list(values), beside, ledger, files_taken, shared={})}
    recipe = {key: value for key, value in recipe.items() if value not in (None, {}, [])}
    if "sources" not in recipe:
        told = next((f"; {note.shown}: {note.says}" for note in ledger.notes if "left out" in note.says), "")
        raise RecipeError(f"{path}: nothing of it is rows that packer reads{told}", hint=f"expected {EXPECTED}")
    make_recipe(recipe, where=f"{path} as a recipe")
    return Converted(
        kind=kind,
        path=path,
        values=recipe,
        template=files.text,
        carried=ledger.carried,
        notes=tuple(ledger.notes),
    )


def _kind(values: Mapping[str, Any], path: Path) -> Literal["axolotl", "llamafactory", "dataset_info"]:
    if "sources" in values:
        raise RecipeError(f"{path}: is a recipe of packer already", hint=f"packer build -c {path} -o CACHE")
    if not values.keys().isdisjoint(("datasets", "pretraining_dataset")):
        return "axolotl"
    if "dataset" in values:
        return "llamafactory"
    if is_dataset_info(values):
        return "dataset_info"
    found = ", ".join(map(str, list(values)[:8])) or "no keys"
    raise RecipeError(
        f"{path}: expected {EXPECTED}; found {found}", hint="packer init DIR without --from writes a starter recipe"
    )
