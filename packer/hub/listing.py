"""Which files of a repository the name of a source stands for."""

import fnmatch
import glob
from collections.abc import Sequence

from packer.data_files import data_ending
from packer.errors import InputError
from packer.hub.names import HubName

_SHOWN_FILES = 6


def choose(name: HubName, listed: Sequence[str]) -> list[str]:
    """The files of a repository that the name stands for, sorted.

    A path without a wildcard that is no file stands for the one data file below it; several are not guessed among.

    Args:
        name: of a data set.
        listed: paths of all its files.

    Raises:
        InputError: it stands for none, or for several that it does not name.

    """
    if name.path in listed:
        return [name.path]
    if glob.has_magic(name.path):
        chosen = sorted(path for path in listed if _matches(path.split("/"), name.path.split("/")))
        if not chosen:
            raise InputError(f"{name}: no file matches", hint=f"the repository has {_told(listed)}")
        return chosen
    inside = [path for path in listed if path.startswith(f"{name.path}/" * bool(name.path))]
    chosen = [path for path in inside if data_ending(path) is not None]
    if not chosen:
        raise InputError(f"{name}: no such data file in the repository", hint=f"the repository has {_told(listed)}")
    if len(chosen) > 1:
        raise InputError(
            f"{name}: stands for {len(chosen)} data files", hint=f"say which of them, or give a glob: {_told(chosen)}"
        )
    return chosen


def _told(listed: Sequence[str]) -> str:
    files = sorted(path for path in listed if data_ending(path) is not None) or sorted(listed)
    more = f", and {len(files) - _SHOWN_FILES:,} more" if len(files) > _SHOWN_FILES else ""
    return ", ".join(files[:_SHOWN_FILES]) + more if files else "no files"


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path fits a glob, as in a shell: `*` stays within a folder, `**` is any number of them."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[skipped:], pattern[1:]) for skipped in range(len(parts) + 1))
    if not parts or (parts[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
