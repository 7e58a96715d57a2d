"""Whether a path within a folder stays there, whatever links it passes; for files that are read."""

import os
from collections.abc import Collection
from functools import cache
from pathlib import Path

from packer.errors import CheckError


def is_inside(root: Path, path: str) -> bool:
    """Whether a path within a folder stays inside after following symbolic links; `root` must be resolved already.

    The Hub's client keeps files in `blobs/`, and links to them in `snapshots/COMMIT/` beside it: these count as inside.
    """
    # Unlike Path.resolve, this does not raise for circular links on any version of Python; opening them fails later.
    place = Path(os.path.realpath(root / path))
    blobs = next((parent.parent / "blobs" for parent in root.parents if parent.name == "snapshots"), None)
    return place.is_relative_to(root) or (blobs is not None and not blobs.is_symlink() and place.parent == blobs)


def refuse_outside(folder: Path, path: str) -> None:
    """Refuse a path of a cache that a link leads out of it, before anything of what it leads to is read or shown.

    Raises:
        CheckError: it leads out.
    """
    if leads_outside(folder, path):
        raise CheckError(f"{folder / path} is a link that leads out of the cache", hint="copy the file itself")


def leads_outside(folder: Path, path: str) -> bool:
    """Whether a path leads out of a folder, which need not be resolved; without links on the way, some microseconds."""
    parts = path.split("/")
    ways = ("/".join(parts[: number + 1]) for number in range(len(parts)))
    has_link = any(os.path.islink(f"{folder}/{way}") for way in ways)  # noqa: PTH114 - for every file; a Path takes longer
    return (has_link or not {"", ".."}.isdisjoint(parts)) and not is_inside(folder.resolve(), path)


class ContainedPaths:
    """The paths that stay in a folder, as :func:`is_inside` defines it; efficient for many paths.

    Resolving a path takes 70 µs. So each folder is listed once, and only paths that are symbolic links are resolved.
    """

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()
        self._links = cache(self._links_of)

    def __contains__(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        links = self._links(folder)
        return (links is not None and name not in links) or is_inside(self._root, path)

    def _links_of(self, folder: str) -> Collection[str] | None:
        """Return the names of symbolic links directly in a folder; None if it leads outside or cannot be listed."""
        if not is_inside(self._root, folder):
            return None
        try:
            with os.scandir(self._root / folder) as entries:
                return {entry.name for entry in entries if entry.is_symlink()}
        except FileNotFoundError:
            return ()
        except OSError:
            return None
