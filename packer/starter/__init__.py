"""What `packer init` writes: a recipe, samples in five forms and a small tokenizer, or the recipe of a family."""

from pathlib import Path

from packer.errors import StorageError, UsageError

RECIPE_FILE = "recipe.yaml"

_FILES = Path(__file__).parent / "files"
_FAMILIES = Path(__file__).parent / "families"

FAMILIES = tuple(sorted(path.stem for path in _FAMILIES.glob("*.yaml")))
"""Families of models with a recipe: what their templates need, so that rows of several turns build at the first try."""


def write_starter(folder: Path) -> tuple[Path, ...]:
    """Write the starter files into `folder`, which must not exist yet or be empty; the recipe last.

    Returns:
        Paths of the files written, sorted.

    Raises:
        UsageError: `folder` is a file, or holds something.
        StorageError: the disk refused.

    """
    _check_free(folder)
    names = sorted(path.relative_to(_FILES) for path in _FILES.rglob("*") if path.is_file())
    try:
        for name in sorted(names, key=lambda name: name.name == RECIPE_FILE):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((_FILES / name).read_bytes())
    except OSError as error:
        raise StorageError(f"cannot write the starter to {folder}: {error}") from error
    return tuple(folder / name for name in names)


def write_family(name: str, folder: Path) -> tuple[Path, ...]:
    """Write the recipe of a family of :data:`FAMILIES` into `folder`, new or empty.

    Raises:
        UsageError: `folder` is a file, or holds something.
        StorageError: the disk refused.

    """
    _check_free(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECIPE_FILE).write_bytes((_FAMILIES / f"{name}.yaml").read_bytes())
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
