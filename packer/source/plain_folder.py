"""What to say of a folder that is no data set: it may be a cache of packer, or hold files to be named."""

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from packer.data_files import data_ending
from packer.errors import InputError

_MANIFEST = "manifest.json"
_MOST_NAMED = 4


_CACHE_MARK = re.compile(rb'"format"\s*:\s*"packer-cache"')
"""Near the start of every manifest; other files of that name lack it."""


def is_cache(folder: Path) -> bool:
    """Whether packer wrote this folder."""
    try:
        with (folder / _MANIFEST).open("rb") as file:
            return _CACHE_MARK.search(file.read(1024)) is not None
    except OSError:
        return False


def no_data_set(folder: Path, needed: str) -> InputError:
    """The error for a folder that is no data set; it names a pattern for the files it holds.

    Which of them belong to which split nobody can know, so they are not all taken.

    Args:
        folder: What a source names.
        needed: The files that a data set has.

    """
    if is_cache(folder):
        return InputError(
            f"{folder}: is a cache of packer, and no source: its rows are packed already",
            hint=f"for other blocks of the same documents: packer pack {folder} -o CACHE2; "
            "for anything else, name the files it was built from",
        )
    message = f"{folder}: is a folder, and no data set of `save_to_disk`, which holds {needed}"
    found: dict[str, list[Path]] = {}
    for path in _files_below(folder):
        if (kind := data_ending(path.name)) is not None and path.is_file():
            found.setdefault(kind, []).append(path)
    if not found:
        return InputError(message, hint=f"name its files: '{(folder / '*.jsonl').as_posix()}'")
    kinds = sorted(found.items(), key=lambda item: -len(item[1]))
    holds = ", ".join(f"{len(files)} file{'s'[: len(files) > 1]} {kind}" for kind, files in kinds[:_MOST_NAMED])
    return InputError(message, hint=f"it holds {holds}: name them, {_patterns(folder, *kinds[0])}")


def _patterns(folder: Path, kind: str, files: list[Path]) -> str:
    """Globs that match these files and no others, however deep they lie; a file alone is named by its path."""
    if len(files) == 1:
        return f"'{files[0].as_posix()}'"
    for pattern in ("*", "**/*"):
        whole = (Path(glob.escape(str(folder))) / f"{pattern}{kind}").as_posix()
        if len(glob.glob(whole, recursive=True)) == len(files):  # noqa: PTH207 - as sources are globbed
            return f"'{whole}'"
    # Caches between them hold files of that kind as well.
    places = sorted({path.parent for path in files})
    return " ".join(
        f"'{(Path(glob.escape(str(place))) / f'*{kind}').as_posix()}'" for place in places[:_MOST_NAMED]
    ) + (" …" if places[_MOST_NAMED:] else "")


def _files_below(folder: Path) -> Iterator[Path]:
    """Files that a glob would match, without those of caches."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not is_cache(Path(place) / name))
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))
