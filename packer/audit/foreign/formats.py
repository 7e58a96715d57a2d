"""Which format lies at a path, by its files."""

from collections.abc import Sequence
from pathlib import Path

from packer.audit.foreign.foreign_row import ForeignPart
from packer.audit.foreign.mds import MdsPart, mds_folders
from packer.audit.foreign.tables import TablePart, split_parts, table_files
from packer.audit.foreign.token_arrays import ArrayPart, token_arrays
from packer.errors import InputError
from packer.model import Model
from packer.source import is_data_set
from packer.store.manifest import MANIFEST_NAME

_MOST_NAMED = 4


def open_foreign(path: Path, model: Model | None) -> tuple[str, tuple[ForeignPart, ...]]:
    """The format at a path, and its parts.

    Raises:
        InputError: nothing that is understood lies there, or it cannot be read.

    """
    if "\0" in str(path):
        raise InputError(f"{str(path)!r}: a path cannot hold a NUL character")
    if is_data_set(path):
        return "datasets", split_parts(path)
    if (path / MANIFEST_NAME).is_file():
        raise InputError(f"{path} is a cache, and not what another tool prepared", hint=f"packer verify {path}")
    if places := mds_folders(path):
        return "mds", tuple(map(MdsPart, places, _names(path, places)))
    if places := token_arrays(path):
        names = _names(path, places)
        return "olmo", tuple(ArrayPart(place, name, model) for place, name in zip(places, names, strict=True))
    if places := table_files(path):
        names = _names(path, places)
        parts = tuple(TablePart(place, name, [place]) for place, name in zip(places, names, strict=True))
        return places[0].suffix[1:], parts
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    inside = sorted(folder for folder in path.glob("*") if is_data_set(folder))
    raise InputError(
        f"{path} is nothing an audit reads",
        hint=f"it holds data sets; name one of them: {', '.join(map(str, inside[:_MOST_NAMED]))}"
        if inside
        else "it reads what save_to_disk writes, Parquet and Arrow with input_ids, MDS shards and .npy; "
        "datasets.load_dataset('json', data_files=…)['train'].save_to_disk(DIR) makes a folder of JSON lines",
    )


def _names(path: Path, places: Sequence[Path]) -> list[str]:
    """What each part is called: its place below the path; nothing where it is the only one."""
    return [""] if len(places) == 1 else [place.relative_to(path).as_posix() for place in places]
