"""Which files hold rows, by the ends of their names: what is offered where a folder or a repository was named."""

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
