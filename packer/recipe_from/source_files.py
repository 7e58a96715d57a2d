"""Which files the sources of a recipe come to, as far as that can be seen before it is built."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packer.data_files import data_ending
from packer.hub import SCHEME
from packer.recipe_from.places import Places
from packer.recipe_from.told import Keys

_TWICE = "for this split: packer takes no file twice"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFiles:
    """Filled while the sources of a recipe are read, one after the other."""

    target: Path
    """The folder of the recipe."""

    taken: set[tuple[str, str]] = field(default_factory=set)
    """Each file where it really lies, with its split."""

    def take(self, paths: Sequence[str], split: str | None, keys: Keys, key: str, places: Places) -> list[str]:
        """Paths of those files that no source has for this split yet; what is left out is told.

        A build refuses a file that is named twice.

        Args:
            paths: As the recipe says them.
            split: None is `train`.
            keys: Of the entry.
            key: The one that names the paths.
            places: Writes a path.

        """
        fresh: list[str] = []
        for path in paths:
            files = self._seen(path) or [Path(path)]
            left = [file for file in files if self._is_new(path, file, split or "train")]
            if len(left) == len(files):
                fresh.append(path)
                continue
            fresh += [places.written(file, like=path) for file in left]
            which = f"{path} has files that are named before {_TWICE}; the others are taken, each by its name"
            keys.tell(key, which if left else f"{path} is named before {_TWICE}; it is left out")
        return fresh

    def _is_new(self, path: str, file: Path, split: str) -> bool:
        real = path if path.startswith(SCHEME) else os.path.realpath(self.target.resolve() / file)
        is_new = (real, split) not in self.taken
        self.taken.add((real, split))
        return is_new

    def are_several(self, paths: Sequence[str]) -> bool:
        """Whether these paths come to several files, or may do so."""
        return len(paths) > 1 or any(self._may_be_several(path) for path in paths)

    def _may_be_several(self, path: str) -> bool:
        files = self._seen(path)
        if files:
            return len(files) > 1
        return glob.has_magic(path) or (path.startswith(SCHEME) and data_ending(path) is None)

    def _seen(self, path: str) -> list[Path]:
        """Files of a path; none where they cannot be seen from here: they are on the Hub, or not there."""
        if path.startswith(SCHEME):
            return []
        place = Path(os.path.normpath(self.target.resolve() / path))
        if place.is_dir():
            return sorted(place.rglob("*.arrow"))
        if place.is_file():
            return [place]
        found = glob.glob(str(place), recursive=True)  # noqa: PTH207 - as sources are globbed
        return sorted(Path(name) for name in found if Path(name).is_file())
