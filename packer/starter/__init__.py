"""The starter folder that `packer init` writes: a recipe, samples in five forms, a small tokenizer."""

import tempfile
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from packer.errors import StorageError, UsageError
from packer.starter.families import family_recipe

RECIPE_FILE = "recipe.yaml"


def write_starter(folder: Path) -> tuple[Path, ...]:
    """Write the starter files into `folder`, which must not exist yet or be empty.

    The files are written next to their place and then renamed into it, the recipe last: where there is a recipe,
    everything it names is there too.

    Returns:
        Paths of the files written, sorted.

    Raises:
        UsageError: `folder` is a file, or holds something.
        StorageError: the disk refused.

    """
    _check_free(folder)
    try:
        is_new = not folder.exists()
        parent = folder.parent if is_new else folder
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".packer-init-", dir=parent) as staging:
            # A folder of its own inside: the temporary one is closed to other users, the starter should not be.
            source, files = resources.files(__name__) / "files", Path(staging) / "starter"
            _copy(source, files)
            written = sorted(path.relative_to(files) for path in files.rglob("*") if path.is_file())
            if is_new:
                files.rename(folder)
            else:
                # The folder itself stays: it may be the one the user stands in.
                for entry in sorted(files.iterdir(), key=lambda path: path.name == RECIPE_FILE):
                    entry.rename(folder / entry.name)
    except OSError as error:
        raise StorageError(f"cannot write the starter to {folder}: {error}") from error
    return tuple(folder / path for path in written)


def write_family(name: str, folder: Path) -> tuple[Path, ...]:
    """Write the recipe of a family of :data:`packer.starter.families.FAMILIES` into `folder`, new or empty.

    Raises:
        UsageError: `folder` is a file, or holds something.
        StorageError: the disk refused.

    """
    _check_free(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECIPE_FILE).write_text(family_recipe(name), "utf-8")
    except OSError as error:
        raise StorageError(f"cannot write the recipe to {folder}: {error}") from error
    return (folder / RECIPE_FILE,)


def _check_free(folder: Path) -> None:
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


def _copy(source: Traversable, target: Path) -> None:
    if source.is_file():
        target.write_bytes(source.read_bytes())
        return
    target.mkdir()
    for entry in source.iterdir():
        _copy(entry, target / entry.name)
