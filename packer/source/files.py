"""From the patterns of a recipe to the files they name, and what is said of a folder that is no data set."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from packer.data_files import data_ending
from packer.errors import InputError
from packer.hub import may_be_repository

_DATA_SET_FILES = "state.json or dataset_dict.json"
_MANIFEST = "manifest.json"
_CACHE_MARK = re.compile(rb'"format"\s*:\s*"packer-cache"')
"""Near the start of every manifest; other files of that name lack it."""

_MOST_NAMED = 4


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
        raise no_data_set(path)
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


def _is_cache(folder: Path) -> bool:
    """Whether packer wrote this folder."""
    try:
        with (folder / _MANIFEST).open("rb") as file:
            return _CACHE_MARK.search(file.read(1024)) is not None
    except OSError:
        return False


def no_data_set(folder: Path) -> InputError:
    """The error for a folder that is no data set; it names a pattern for the files it holds.

    Which of them belong to which split nobody can know, so they are not all taken.
    """
    if _is_cache(folder):
        return InputError(
            f"{folder}: is a cache of packer, and no source: its rows are packed already",
            hint=f"for other blocks of the same documents: packer pack {folder} -o CACHE2; "
            "for anything else, name the files it was built from",
        )
    message = f"{folder}: is a folder, and no data set of `save_to_disk`, which holds {_DATA_SET_FILES}"
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
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not _is_cache(Path(place) / name))
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))
