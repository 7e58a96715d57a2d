"""Which files hold rows, by the ends of their names: what is offered where a folder or a repository was named."""

import fnmatch
from collections.abc import Sequence
from pathlib import PurePosixPath

_DATA = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
_PACKED = (".gz", ".zst", ".bz2")
_ABOUT_DATA = "dataset_infos.json"
"""What some repositories say of themselves."""


def data_ending(name: str) -> str | None:
    """The end of a data file's name, that of its packing with it; None where it is no name of one.

    Example:
        >>> data_ending("data/train.JSONL.gz"), data_ending("readme.md")
        ('.JSONL.gz', None)

    """
    path = PurePosixPath(name)
    suffixes = path.suffixes
    packed = int(bool(suffixes) and suffixes[-1].lower() in _PACKED)
    kind = suffixes[: len(suffixes) - packed][-1:]
    if not kind or kind[0].lower() not in _DATA or path.name == _ABOUT_DATA:
        return None
    return "".join(suffixes[-packed - 1 :])


def fits(path: str, pattern: str) -> bool:
    """Whether a path fits a glob, as in a shell: `*` stays within a folder, `**` is any number of them."""
    return _fit(path.split("/"), pattern.split("/"))


def _fit(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fit(parts[skipped:], pattern[1:]) for skipped in range(len(parts) + 1))
    if not parts or (parts[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _fit(parts[1:], pattern[1:])
