"""Which format lies at a path, by its files."""

from collections.abc import Sequence
from pathlib import Path

from packer.audit.foreign.foreign_rows import ForeignPart
from packer.audit.foreign.mds import MdsPart, mds_folders
from packer.audit.foreign.megatron import MegatronPart, megatron_pairs, megatron_prefix
from packer.audit.foreign.olmo import OlmoPart, olmo_files
from packer.audit.foreign.tables import TablePart, split_parts, table_files
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
    prefix = megatron_prefix(path)
    prefixes = [prefix] if prefix is not None else megatron_pairs(path)
    if prefixes:
        return "megatron", tuple(map(MegatronPart, prefixes, _names(path, prefixes)))
    folders = mds_folders(path)
    if folders:
        return "mds", tuple(map(MdsPart, folders, _names(path, folders)))
    files = olmo_files(path)
    if files:
        names = _names(path, files)
        return "olmo", tuple(OlmoPart(file, name, model) for file, name in zip(files, names, strict=True))
    tables = table_files(path)
    if tables:
        names = _names(path, tables)
        return tables[0].suffix[1:], tuple(
            TablePart(file, name, [file]) for file, name in zip(tables, names, strict=True)
        )
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    inside = sorted(folder for folder in path.glob("*") if is_data_set(folder))
    raise InputError(
        f"{path} is nothing an audit reads",
        hint=f"it holds data sets; name one of them: {', '.join(map(str, inside[:_MOST_NAMED]))}"
        if inside
        else "it reads what save_to_disk writes, Parquet and Arrow with input_ids, MDS shards, .bin and .idx, .npy; "
        "datasets.load_dataset('json', data_files=…)['train'].save_to_disk(DIR) makes a folder of JSON lines",
    )


def _names(path: Path, places: Sequence[Path]) -> list[str]:
    """What each part is called: its place below the path; nothing where it is the only one."""
    return [""] if len(places) == 1 else [place.relative_to(path).as_posix() for place in places]
