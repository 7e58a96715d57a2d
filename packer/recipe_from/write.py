"""Writes the recipe that a configuration comes to, with what could not be carried over in its first lines."""

import os
import tempfile
from pathlib import Path

from packer.errors import StorageError, UsageError
from packer.recipe import as_yaml
from packer.recipe_from.read import Converted
from packer.recipe_from.template import TEMPLATE_FILE

RECIPE_FILE = "recipe.yaml"


def write_recipe(converted: Converted, folder: Path) -> tuple[Path, ...]:
    """Write `recipe.yaml` into a folder, which is made where it is not there; the recipe comes last.

    Returns:
        Paths of the files written.

    Raises:
        UsageError: there is a recipe already; nothing is written over.
        StorageError: the disk refused.

    """
    texts = {} if converted.template is None else {folder / TEMPLATE_FILE: converted.template}
    texts[folder / RECIPE_FILE] = recipe_text(converted)
    for path in texts:
        if os.path.lexists(path):
            raise UsageError(f"{path}: is there already, and nothing is written over it", hint="name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            _write(path, text)
    except OSError as error:
        raise StorageError(f"cannot write the recipe to {folder}: {error}") from error
    return tuple(texts)


def recipe_text(converted: Converted) -> str:
    """The recipe in YAML, below comments with the notes."""
    told = [f"{note.shown}\n    {note.says}" for note in converted.notes if note.kind == "differs"]
    others = {"training": "The trainer's own, and not about rows", "unknown": "Not known to packer"}
    for kind, says in others.items():
        keys = [note.key for note in converted.notes if note.kind == kind]
        told += [f"{says}: {', '.join(keys)}"] if keys else []
    head = [f"From {converted.path.name}; packer init --from wrote it.", *([""] if told else []), *told]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in "\n".join(head).splitlines())
    return f"{comments}\n{as_yaml({'version': 1, **converted.values})}"


def _write(path: Path, text: str) -> None:
    """A whole file or none, and never over another."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}-", delete=False
    ) as file:
        file.write(text)
    try:
        Path(file.name).chmod(0o666 & ~_mask())
        os.link(file.name, path)
    finally:
        Path(file.name).unlink()


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
