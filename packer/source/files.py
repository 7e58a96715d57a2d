"""From the patterns of a recipe to the files they name."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from packer.errors import InputError
from packer.hub import may_be_repository
from packer.source.dataset_folder import DATA_SET_FILES
from packer.source.plain_folder import no_data_set


def expand(patterns: Sequence[str]) -> list[Path]:
    """The files that paths and globs name: in the order of the patterns, sorted by name within a glob.

    A pattern that is the path of a file is that file, brackets in its name or not. Everything else with ``*``, ``?``
    or ``[`` in it is a glob; ``**`` stands for any number of folders. As in a shell, ``*`` passes over names that
    begin with a dot. A relative pattern gives relative paths.

    Raises:
        InputError: a file is missing, is a folder, or is named twice; a glob matches no file.

    """
    files = [file for pattern in patterns for file in _matches(pattern)]
    seen: dict[str, Path] = {}
    for file in files:
        first = seen.setdefault(os.path.realpath(file), file)
        if first is not file:
            raise InputError(
                f"{file}: named twice" + (f", also as {first}" if str(first) != str(file) else ""),
                hint="name every file once, or let one glob cover it; to weigh a source, repeat its rows in the file",
            )
    return files


def _matches(pattern: str) -> list[Path]:
    path = Path(pattern)
    if path.is_file():
        return [path]
    if path.is_dir():
        raise no_data_set(path, DATA_SET_FILES)
    if not glob.has_magic(pattern):
        if path.exists():
            raise InputError(
                f"{pattern}: is not a regular file", hint="write its rows to a file, or pipe them in: packer build - …"
            )
        on_hub = f"a data set of the Hub is named hf://datasets/{pattern}/FILE; " if may_be_repository(pattern) else ""
        raise InputError(f"{pattern}: no such file", hint=on_hub + _nearest_folder(path))
    files = sorted(Path(match) for match in glob.glob(pattern, recursive=True) if Path(match).is_file())  # noqa: PTH207 - Path.glob takes no absolute pattern
    if not files:
        raise InputError(f"{pattern}: no file matches", hint=_nearest_folder(path))
    return files


def _nearest_folder(path: Path) -> str:
    """Where the path stops being true, for the hint."""
    for folder in path.parents:
        if folder.is_dir():
            return f"looked in {folder.absolute()}"
    return f"looked in {Path.cwd()}"
