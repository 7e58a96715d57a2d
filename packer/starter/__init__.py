"""Writes what `packer init` creates: a recipe, samples in five formats and a small tokenizer, or a family's recipe."""

import os
from collections.abc import Mapping
from pathlib import Path

from packer.errors import StorageError, UsageError

RECIPE_FILE = "recipe.yaml"

_FILES = Path(__file__).parent / "files"
_FAMILIES = Path(__file__).parent / "families"

FAMILIES = tuple(sorted(path.stem for path in _FAMILIES.glob("*.yaml")))
"""Model families with a recipe: it has what their templates need, so that multi-turn rows build at the first try."""


def write_starter(folder: Path) -> tuple[Path, ...]:
    """Write the starter files into `folder`, which must be empty or not exist yet; the recipe is written last.

    Returns:
        Paths of the files written, sorted.
    """
    return _write({path.relative_to(_FILES): path for path in _FILES.rglob("*") if path.is_file()}, folder)


def write_family(name: str, folder: Path) -> tuple[Path, ...]:
    """Write the recipe of one of the :data:`FAMILIES`, as :func:`write_starter` writes the starter files."""
    return _write({Path(RECIPE_FILE): _FAMILIES / f"{name}.yaml"}, folder)


def _write(files: Mapping[Path, Path], folder: Path) -> tuple[Path, ...]:
    """Copy files to the given names, the recipe last."""
    _check_free(folder)
    try:
        for name in sorted(files, key=lambda name: (name.name == RECIPE_FILE, name)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(files[name].read_bytes())
    except OSError as error:
        raise StorageError(f"cannot write the starter to {folder}: {error}") from error
    return tuple(folder / name for name in sorted(files))


def _check_free(folder: Path) -> None:
    from packer.names import refuse_address  # noqa: PLC0415 - not for --help, which lists the families

    refuse_address(os.fspath(folder), place="file")
    hint = "name a folder that does not exist yet, for example: packer init my-first-cache"
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"cannot write the starter to {folder}: it is a file, expected a folder", hint=hint)
    try:
        first = min(folder.iterdir(), default=None) if folder.is_dir() else None
    except OSError as error:
        raise StorageError(f"cannot read {folder}: {error}") from error
    if first is not None:
        raise UsageError(
            f"cannot write the starter to {folder}: expected an empty folder, found {first.name} in it", hint=hint
        )
