"""Resolves the name of a source to files: paths and globs, saved datasets of `datasets`, standard input.

A dataset written by `save_to_disk` is a folder; a DatasetDict has a subfolder for each split:

    state.json  dataset_info.json  data-00000-of-00002.arrow …        a Dataset
    dataset_dict.json  train/  test/                                   a DatasetDict, with a Dataset in each folder

A build reads its inputs several times: for digests and partitions, in several processes, and again before it commits.
So standard input is first copied to a temporary file (in the folder that `TMPDIR` names), which is deleted on exit.
A cache names such an input ``-``; piping in the same rows again yields the same input.
"""

import atexit
import functools
import glob
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from packer.display import in_shell, show_as
from packer.errors import InputError, StorageError, UsageError, did_you_mean, near_paths
from packer.host.files import out_of, path_within, read_regular_bytes, walk
from packer.names import SPLIT_NAME, FileName, data_ending, in_words, is_file_name, may_be_repository
from packer.source.file_bytes import PIPED, is_plain_text, no_rows_error
from packer.source.jq_commands import texts_as_rows

T = TypeVar("T")

STANDARD_INPUT = "-"

_STATE = "state.json"
_SPLITS = "dataset_dict.json"
_SAVE_AGAIN_HINT = "save it again with save_to_disk"


def expand(patterns: Sequence[str]) -> list[Path]:
    """Return the files that paths and globs name, in the order of the patterns, sorted by name within a glob.

    A pattern that is the path of an existing file means that file, even if its name contains brackets. Any other
    pattern with ``*``, ``?`` or ``[`` in it is a glob; ``**`` matches any number of folders. As in a shell, ``*`` does
    not match names that begin with a dot. A relative pattern yields relative paths.
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
        raise _not_a_data_set(path)
    if path.exists():
        hint = "write its rows to a file, or pipe them in: packer build - …"
        raise InputError(f"{pattern}: is not a regular file", hint=hint)
    is_pattern = glob.has_magic(pattern)
    if files := [match for match in matches(pattern) if match.is_file()] if is_pattern else []:
        return files
    nearest = next((folder for folder in path.parents if folder.is_dir()), Path.cwd())
    looked = f"looked in {nearest.absolute()}"
    if not is_pattern and may_be_repository(pattern):
        looked = f"a data set of the Hub is named hf://datasets/{pattern}/FILE; {looked}"
    what = "no file matches" if is_pattern else "no such file"
    raise InputError(f"{pattern}: {what}", hint=did_you_mean(near_paths(pattern), looked))


def matches(pattern: str) -> list[Path]:
    """Return what a pattern matches, sorted.

    As in a shell, ``*`` and ``?`` do not match names that begin with a dot, ``*`` follows links to folders, and ``**``
    does not. For each part of the pattern, a folder is searched once, under whatever names links give it, so that links
    that lead in circles end. `glob.glob` follows them for ever, and `Path.glob` takes no absolute pattern.
    A folder that cannot be searched is an error: left out, its rows would be missed by nobody.
    """
    try:
        return _found(pattern)
    except OSError as error:
        refused = InputError(
            f"{pattern}: cannot look into {error.filename}: {error.strerror}",
            hint="name the folders that hold the rows, and that this user may read",
        )
        raise out_of(error, f"{pattern}: cannot look for files") or refused from error


def _found(pattern: str) -> list[Path]:
    path = Path(pattern)
    found, parts = [Path(path.anchor)], list(path.parts[bool(path.anchor) :])
    if parts[-1:] == ["**"]:
        parts.append("*")
    for number, part in enumerate(parts, 1):
        found = sorted(match for folder in found for match in _part_matches(folder, part))
        if number < len(parts):
            once: dict[tuple[int, int], Path] = {}
            for folder in (match for match in found if match.is_dir()):
                status = folder.stat()
                once.setdefault((status.st_dev, status.st_ino), folder)
            found = [*once.values()]
    return found


def _part_matches(folder: Path, part: str) -> Iterator[Path]:
    """Yield what one part of a pattern matches, seen from a folder."""
    if part != "**":
        if glob.has_magic(part):
            os.scandir(folder).close()  # glob passes over a folder that it cannot read
        yield from (folder / name for name in glob.glob(part, root_dir=folder))  # noqa: PTH207 - not hidden files
        return
    for parent, folders, _ in walk(folder, _raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield Path(parent)


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # gone meanwhile
        raise error


_HELD_OUT = re.compile(r"(?<![^/_.-])(?:test|validation|valid|val|dev|eval)(?![^/_.-])", re.IGNORECASE)
"""Names of files and folders of a split that is not trained on."""

_MOST_SEEN = 10_000
"""Number of files that are looked at for a hint."""


def _not_a_data_set(folder: Path) -> InputError:
    """Return the error for a folder that is not a dataset. It does not guess which file belongs to which split."""
    if (folder / "manifest.json").is_file() and (folder / "documents").is_dir():
        return InputError(
            f"{folder}: is a cache of packer, not a source: its rows are already packed",
            hint="name the files that it was built from",
        )
    names = (os.path.join(parent, name) for parent, _, names in walk(folder) for name in names)  # noqa: PTH118
    found = sorted(Path(name) for name in islice(names, _MOST_SEEN) if os.path.isfile(name))  # noqa: PTH113 - any name
    kinds = Counter(kind for path in found if (kind := data_ending(path.name)) is not None)
    kind = kinds.most_common(1)[0][0] if kinds else ".jsonl"
    files = [path for path in found if data_ending(path.name) == kind]
    held_out = [path for path in files if _HELD_OUT.search(path.relative_to(folder).as_posix())]
    pattern = (Path(glob.escape(str(folder))) / "**" / f"*{kind}").as_posix()
    hint = f"name its files: {in_shell(pattern)}"
    endings = Counter(path.suffix for path in found if path.suffix and not kinds and is_plain_text(path))
    if endings:
        hint = texts_as_rows(folder, endings.most_common(1)[0][0])
    if 0 < len(held_out) < len(files):
        hint = (
            f"name the training files; those held out by their names, such as "
            f"{held_out[0].relative_to(folder).as_posix()}, belong in a recipe as a source of their own, with `split`"
        )
    return InputError(
        f"{folder}: is a folder that `save_to_disk` did not write: it has neither {_STATE} nor {_SPLITS}", hint=hint
    )


class _File(msgspec.Struct, frozen=True):
    filename: FileName


class _State(msgspec.Struct, frozen=True, rename=lambda name: f"_{name}"):
    data_files: list[_File]
    indices_files: list[_File] | None = None
    indices_data_files: list[_File] | None = None
    """As `indices_files`, from other versions of `datasets`. If set, the rows are a selection or permutation of the
    files'."""


class _Splits(msgspec.Struct, frozen=True):
    splits: list[str]


def is_data_set(folder: Path) -> bool:
    return (folder / _STATE).is_file() or (folder / _SPLITS).is_file()


def data_set_files(folder: Path) -> list[tuple[str | None, Path]]:
    """Return the Arrow files of a dataset in the order of its rows, each with its split (None for a Dataset)."""
    if not is_data_set(folder):
        raise _not_a_data_set(folder)
    splits = data_set_splits(folder)
    for split, _ in splits:
        if split is not None and not re.fullmatch(SPLIT_NAME, split):
            raise InputError(f"{folder}: '{split}' cannot be a split's name", hint="name its folder, and give `split`")
    found = [(split, path) for split, files in splits for path in files]
    if not found:
        raise no_rows_error(folder)
    return found


def data_set_splits(folder: Path) -> list[tuple[str | None, list[Path]]]:
    """Return the splits of a dataset (None for a Dataset) with their files, of which there may be none.

    Unlike in :func:`data_set_files`, a split may have any name that a folder can have.
    """
    if (folder / _STATE).is_file():
        return [(None, _arrow_files(folder))]
    splits = _read(path_within(folder, _SPLITS), _Splits).splits
    strange = next((split for split in splits if not is_file_name(split)), None)
    if strange is not None:
        raise InputError(f"{folder / _SPLITS}: '{strange}' does not name a folder within it", hint=_SAVE_AGAIN_HINT)
    return [(split, _arrow_files(folder, split)) for split in splits]


def _arrow_files(top: Path, split: str = "") -> list[Path]:
    folder = top / split
    state = _read(path_within(top, (Path(split) / _STATE).as_posix()), _State)
    selected = [*(state.indices_files or ()), *(state.indices_data_files or ())]
    if selected:
        raise InputError(
            f"{folder}: its rows are a selection of its files, by {selected[0].filename}",
            hint="save it so that its files contain only its rows: load_from_disk(…).flatten_indices().save_to_disk(…)",
        )
    files: list[Path] = []
    for file in state.data_files:
        files.append(path_within(top, (Path(split) / file.filename).as_posix()))
        if not files[-1].is_file():
            raise InputError(f"{files[-1]}: no such file, and {_STATE} names it", hint=_SAVE_AGAIN_HINT)
    return files


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(read_regular_bytes(path), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        refused = InputError(f"{path}: cannot be read as a data set's: {in_words(str(error))}", hint=_SAVE_AGAIN_HINT)
        raise out_of(error) or refused from None


def input_path(name: str) -> Path:
    """Return the file that contains an input, given the name that a recipe or a manifest uses for it."""
    return _standard_input() if name == STANDARD_INPUT else Path(name)


@functools.cache
def _standard_input() -> Path:
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        raise UsageError(
            "source '-' is standard input, but nothing is piped in",
            hint="for example: zcat rows.jsonl.gz | packer build - --tokenizer DIR -o CACHE; or name a file",
        )
    folder = Path(tempfile.mkdtemp(prefix="packer-stdin-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / PIPED
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, 2**20)
    except OSError as error:
        raise StorageError(
            f"{path}: standard input cannot be kept: {error.strerror or error}",
            hint="TMPDIR names the folder; or write the rows to a file and name it",
        ) from error
    show_as(path, "standard input")
    return path
