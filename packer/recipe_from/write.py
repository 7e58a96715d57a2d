"""Writes the recipe that a configuration comes to, with what could not be carried over in its first lines."""

import os
from pathlib import Path

from packer.errors import UsageError
from packer.recipe import as_yaml
from packer.recipe_from.read import Converted
from packer.recipe_from.template import TEMPLATE_FILE
from packer.store.folder import write_atomically

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
    for path, text in texts.items():
        write_atomically(path, text.encode())
    return tuple(texts)


def recipe_text(converted: Converted) -> str:
    """The recipe in YAML, below comments with the notes."""
    told = [f"{note.shown}\n    {note.says}" for note in converted.notes if note.kind == "differs"]
    others = {"training": "The trainer's own, and not about rows", "unknown": "Not known to packer"}
    for kind, says in others.items():
        keys = [note.key for note in converted.notes if note.kind == kind]
        told += [f"{says}: {', '.join(keys)}"] if keys else []
    head = [f"From {converted.path.name}; packer init --from wrote it.", *([""] if told else []), *told]
    comments = "".join(f"# {_printable(line)}".rstrip() + "\n" for line in "\n".join(head).split("\n"))
    return f"{comments}\n{as_yaml({'version': 1, **converted.values})}"


def _printable(line: str) -> str:
    """What YAML and a terminal can bear: a name may hold anything, bytes that are no text among it."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in line)
