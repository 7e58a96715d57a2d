"""The sources of a configuration as a recipe says them: the files, and what their rows look like."""

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.data_files import data_ending
from packer.hub import SCHEME, may_be_repository
from packer.recipe_from.config_keys import EntryLeftOutError
from packer.source import is_data_set
from packer.source.chat import CALL_ROLES, ROLES

NAME_FILES = "of a data set of the Hub packer takes the files that are named, and guesses none: hf://datasets/…/FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPaths:
    """Finds what a configuration names."""

    bases: tuple[Path, ...]
    """What relative paths may be relative to: where the trainer is started, and the folder of the configuration."""

    target: Path
    """The folder of the recipe."""

    absolute: bool = False
    """Whether every path was given as below an absolute one."""

    def find(self, text: str) -> Path | None:
        """The file or folder that a path names, or the pattern if it matches files; None where there is none."""
        places = [base / text for base in self.bases]
        there = next((place for place in places if os.path.lexists(place)), None)
        return there or next((place for place in places if glob.glob(str(place))), None)  # noqa: PTH207 - as sources are globbed

    def in_recipe(self, path: Path, *, like: str) -> str:
        """A path as the recipe says it: absolute where `like` was, else relative to the recipe's folder."""
        if self.absolute or Path(like).is_absolute():
            return path.absolute().as_posix()
        # Of a folder that is a link, `..` leads to where it really lies.
        return Path(os.path.relpath(path.absolute(), self.target.resolve())).as_posix()

    def tokenizer(self, text: str, revision: str | None) -> str:
        """A tokenizer: a folder of this machine, or a name of the Hub with its revision."""
        found = self.find(text)
        if found is not None:
            return self.in_recipe(found, like=text)
        return f"{text}@{revision}" if revision else text


def are_several(names: Sequence[str]) -> bool:
    """Whether these paths stand for several files, or may do so."""
    return len(names) > 1 or any(
        glob.has_magic(name) or (name.startswith(SCHEME) and data_ending(name) is None) for name in names
    )


def is_on_hub(text: str) -> bool:
    return text.startswith(SCHEME) or may_be_repository(text)


def hub_path(repository: str, revision: str | None = None, path: str = "") -> str:
    """How a recipe names a data set of the Hub, or a file of it."""
    name = repository.removeprefix(SCHEME).removeprefix("datasets/")
    at = f"@{revision.replace('/', '%2F')}" if revision else ""
    return f"{SCHEME}datasets/{name}{at}" + f"/{path}" * bool(path)


def data_set_folder(folder: Path, split: str) -> Path | None:
    """Where a folder of `save_to_disk` has the rows of a split; None where it is no such folder."""
    if not is_data_set(folder):
        return None
    return folder / split if is_data_set(folder / split) else folder


def files_pattern(folder: Path, key: str) -> Path:
    """A pattern for the data files of a plain folder.

    Raises:
        EntryLeftOutError: they are of several kinds, or there are none.

    """
    named = (path.name for path in folder.iterdir() if not path.name.startswith("."))  # as a pattern passes them over
    kinds = {kind for name in named if (kind := data_ending(name)) is not None}
    if len(kinds) != 1:
        raise EntryLeftOutError(key, "a folder with no data files, or with files of several kinds: name those meant")
    return Path(glob.escape(str(folder))) / f"*{kinds.pop()}"


MESSAGE_FIELDS = {
    "role": ("role", "from"),
    "content": ("content", "value"),
    "reasoning_content": ("reasoning_content", "reasoning", "thinking"),
    "tool_calls": ("tool_calls",),
    "tool_call_id": ("tool_call_id",),
    "name": ("name",),
}
"""What packer reads in a message, by the name that templates know it by; a message's own fields cannot be renamed."""


def rows_of(schema: str, columns: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """The keys of a source; columns that are called as packer calls them are left out."""
    renamed = {new: old for new, old in (columns or {}).items() if new != old}
    return {"schema": schema} | ({"columns": renamed} if renamed else {})


def chat_rows(key: str, *, messages: str, role: str, content: str, columns: Mapping[str, str | None]) -> dict[str, Any]:
    """Rows of messages.

    Raises:
        EntryLeftOutError: packer does not read who speaks, or what is said, under these names, which `key` gives.

    """
    if (role, content) == ("role", "content"):
        return rows_of("messages", {"messages": messages, **columns})
    if role in MESSAGE_FIELDS["role"] and content in MESSAGE_FIELDS["content"]:
        return rows_of("sharegpt", {"conversations": messages, **columns})
    raise EntryLeftOutError(
        key, "packer reads who speaks in role or from, and what is said in content or value: rename them in the rows"
    )


def alpaca_rows(columns: Mapping[str, str | None]) -> dict[str, Any]:
    """Rows of instruction, input and output; of what else packer would read in them, only what is asked for."""
    return rows_of("alpaca", dict.fromkeys(("history", "system", "tools")) | dict(columns))


def is_read_as(name: str, role: str) -> bool:
    """Whether packer takes a sender of this name for that role."""
    return ROLES.get(name, ROLES.get(name.lower())) == role or (role == "function_call" and name in CALL_ROLES)
