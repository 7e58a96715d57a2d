"""Where the files lie that a foreign configuration names, and how a recipe in another folder names them."""

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from packer.data_files import data_ending
from packer.hub import SCHEME, may_be_repository
from packer.source import is_data_set

NAME_FILES = "of a data set of the Hub packer takes the files that are named, and guesses none: hf://datasets/…/FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    bases: tuple[Path, ...]
    """What relative paths may be relative to: where the trainer is started, and the folder of the configuration."""

    target: Path
    """The folder of the recipe."""

    absolute: bool = False
    """Whether every path was given as below an absolute one."""

    def find(self, text: str) -> Path | None:
        """The file or folder that a path names, None where there is none."""
        return next((base / text for base in self.bases if os.path.lexists(base / text)), None)

    def find_files(self, text: str) -> Path | None:
        """As :meth:`find`, of a path that may be a pattern for files."""
        patterns = (base / text for base in self.bases)
        return self.find(text) or next((pattern for pattern in patterns if glob.glob(str(pattern))), None)  # noqa: PTH207 - as sources are globbed

    def written(self, path: Path, *, like: str) -> str:
        """A path as the recipe says it: absolute where `like` was, else relative to the recipe's folder."""
        if self.absolute or Path(like).is_absolute():
            return path.absolute().as_posix()
        # Of a folder that is a link, `..` leads to where it really lies.
        return Path(os.path.relpath(path.absolute(), self.target.resolve())).as_posix()

    def model(self, text: str, revision: str | None) -> str:
        """A tokenizer: a folder of this machine, or a name of the Hub with its revision."""
        found = self.find(text)
        if found is not None:
            return self.written(found, like=text)
        return f"{text}@{revision}" if revision else text


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


def files_pattern(folder: Path) -> Path | None:
    """A pattern for the data files of a plain folder; None where they are of several kinds, or there are none."""
    named = (path.name for path in folder.iterdir() if not path.name.startswith("."))  # as a pattern passes them over
    kinds = {kind for name in named if (kind := data_ending(name)) is not None}
    return Path(glob.escape(str(folder))) / f"*{kinds.pop()}" if len(kinds) == 1 else None
