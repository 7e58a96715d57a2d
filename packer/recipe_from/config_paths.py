"""The files that a configuration names, and how a recipe in another folder names them."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packer.data_files import data_ending
from packer.hub import SCHEME, may_be_repository
from packer.recipe_from.config_keys import EntryLeftOutError, Keys
from packer.source import is_data_set

NAME_FILES = "of a data set of the Hub packer takes the files that are named, and guesses none: hf://datasets/…/FILE"

_TWICE = "for this split: packer takes no file twice"


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
        """The file or folder that a path names, None where there is none."""
        return next((base / text for base in self.bases if os.path.lexists(base / text)), None)

    def find_files(self, text: str) -> Path | None:
        """As :meth:`find`, of a path that may be a pattern for files."""
        patterns = (base / text for base in self.bases)
        return self.find(text) or next((pattern for pattern in patterns if glob.glob(str(pattern))), None)  # noqa: PTH207 - as sources are globbed

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFiles:
    """The files of a recipe's sources as far as they can be seen from here, filled while the sources are read."""

    target: Path
    """The folder of the recipe."""

    taken: set[tuple[str, str]] = field(default_factory=set)
    """Each file where it really lies, with its split."""

    def take(self, names: Sequence[str], split: str | None, keys: Keys, key: str, paths: ConfigPaths) -> list[str]:
        """Those of some paths that no source has for this split yet, as a build refuses a file that is named twice.

        Args:
            names: The paths, as the recipe says them.
            split: None is `train`.
            keys: Of the entry.
            key: The one that names the paths.
            paths: Writes a path.

        Raises:
            EntryLeftOutError: none is left.

        """
        fresh: list[str] = []
        repeated: list[str] = []
        for name in names:
            files = self._seen(name) or [Path(name)]
            left = [file for file in files if self._is_new(name, file, split or "train")]
            if len(left) == len(files):
                fresh.append(name)
            else:
                fresh += [paths.in_recipe(file, like=name) for file in left]
                repeated.append(name)
        if repeated and not fresh:
            raise EntryLeftOutError(key, f"{', '.join(repeated)} is named before {_TWICE}")
        if repeated:
            which = ", ".join(repeated)
            keys.report(
                key, f"{which} has files that are named before {_TWICE}; the others are taken, each by its name"
            )
        return fresh

    def are_several(self, names: Sequence[str]) -> bool:
        """Whether these paths stand for several files, or may do so."""
        if len(names) != 1:
            return len(names) > 1
        (name,) = names
        may_be = glob.has_magic(name) or (name.startswith(SCHEME) and data_ending(name) is None)
        return len(files) > 1 if (files := self._seen(name)) else may_be

    def _is_new(self, name: str, file: Path, split: str) -> bool:
        real = name if name.startswith(SCHEME) else os.path.realpath(self.target.resolve() / file)
        is_new = (real, split) not in self.taken
        self.taken.add((real, split))
        return is_new

    def _seen(self, name: str) -> list[Path]:
        """Files of a path; none where they cannot be seen from here: they are on the Hub, or not there."""
        if name.startswith(SCHEME):
            return []
        place = Path(os.path.normpath(self.target.resolve() / name))
        if place.is_dir():
            return sorted(place.rglob("*.arrow"))
        if place.is_file():
            return [place]
        found = glob.glob(str(place), recursive=True)  # noqa: PTH207 - as sources are globbed
        return sorted(Path(name) for name in found if Path(name).is_file())
