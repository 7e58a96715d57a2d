"""Folders that `save_to_disk` of the library `datasets` writes: one data set, or one for each split.

state.json  dataset_info.json  data-00000-of-00002.arrow …        a Dataset
dataset_dict.json  train/  test/                                   a DatasetDict, with a Dataset in each folder
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from packer.errors import InputError
from packer.limits import out_of
from packer.names import SPLIT_NAME, FileName, in_words, is_file_name
from packer.source.file_bytes import no_rows
from packer.source.files import no_data_set

T = TypeVar("T")

_STATE = "state.json"
_SPLITS = "dataset_dict.json"


class _File(msgspec.Struct, frozen=True):
    filename: FileName


class _State(msgspec.Struct, frozen=True, rename=lambda name: f"_{name}"):
    data_files: list[_File]
    indices_files: list[_File] | None = None
    indices_data_files: list[_File] | None = None
    """As the one above, of other versions: rows are not taken in the order of the files, or not all."""


class _Splits(msgspec.Struct, frozen=True):
    splits: list[str]


def is_data_set(folder: Path) -> bool:
    return (folder / _STATE).is_file() or (folder / _SPLITS).is_file()


def data_set_files(folder: Path) -> list[tuple[str | None, Path]]:
    """The Arrow files of a data set, in the order of its rows, each with its split; None where it is no DatasetDict.

    A data set without rows has no files.

    Raises:
        InputError: the folder is no data set, is not whole, or its rows are not those of its files.
        NoRowsError: there are no files.

    """
    found: list[tuple[str | None, Path]]
    if (folder / _STATE).is_file():
        found = [(None, path) for path in _files(folder)]
    elif (folder / _SPLITS).is_file():
        found = [(split, path) for split in _splits(folder) for path in _files(folder / split)]
    else:
        raise no_data_set(folder)
    if not found:
        raise no_rows(folder)
    return found


def splits_without_files(folder: Path) -> list[str]:
    """The splits of a DatasetDict that hold no rows, and so have no files.

    Raises:
        InputError: as :func:`data_set_files`.

    """
    if not (folder / _SPLITS).is_file() or (folder / _STATE).is_file():
        return []
    return [split for split in _splits(folder) if not _files(folder / split)]


def _splits(folder: Path) -> Iterator[str]:
    for split in _read(folder / _SPLITS, _Splits).splits:
        if not re.fullmatch(SPLIT_NAME, split):
            raise InputError(f"{folder}: '{split}' cannot be a split's name", hint="name its folder, and give `split`")
        if not (folder / split / _STATE).is_file():
            raise InputError(f"{folder}: holds no data set '{split}', which {_SPLITS} names", hint=_AGAIN)
        yield split


_AGAIN = "save it again with save_to_disk"


def _files(folder: Path) -> list[Path]:
    state = _read(folder / _STATE, _State)
    selected = [*(state.indices_files or ()), *(state.indices_data_files or ())]
    if selected:
        raise InputError(
            f"{folder}: its rows are a selection of its files, by {selected[0].filename}",
            hint="save it so that its files hold its rows: load_from_disk(…).flatten_indices().save_to_disk(…)",
        )
    files = [folder / file.filename for file in state.data_files]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise InputError(f"{missing}: no such file, and {_STATE} names it", hint=_AGAIN)
    return files


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        refused = InputError(f"{path}: cannot be read as a data set's: {in_words(str(error))}", hint=_AGAIN)
        raise out_of(error) or refused from None


def files_of_splits(folder: Path) -> list[tuple[str | None, list[Path]]]:
    """Each split of a data set, whatever its name is, with its files, of which there may be none; None of a Dataset.

    Raises:
        InputError: the data set is not whole, or its rows are not those of its files.

    """
    if (folder / _STATE).is_file():
        return [(None, _files(folder))]
    splits = _read(folder / _SPLITS, _Splits).splits
    strange = next((split for split in splits if not is_file_name(split)), None)
    if strange is not None:
        raise InputError(f"{folder / _SPLITS}: '{strange}' is no name of a folder within it", hint=_AGAIN)
    return [(split, _files(folder / split)) for split in splits]
