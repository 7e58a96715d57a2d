"""Rows that no cache was built from: files as a build takes them, and tables of ids that another tool prepared."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from packer.audit.check.row_facts import RowPart
from packer.audit.check.token_part import TokenPart
from packer.audit.input_parts import InputPart
from packer.data_files import data_ending
from packer.errors import InputError
from packer.pipeline.input_resolution import SourceFile
from packer.pipeline.inputs import open_input
from packer.pipeline.plan import cut_input, input_of
from packer.recipe import Recipe, Source
from packer.source import data_set_splits, detect_format, expand, is_data_set
from packer.source.partition import TABLE_FORMATS
from packer.source.table_files import table_schema
from packer.store.manifest import MANIFEST_NAME

NamedFile: TypeAlias = tuple[str, Path]
"""A split, and a file with rows of it."""

_SPLIT = re.compile(r"(train|validation|valid|val|dev|test|eval)(?![a-z])")
"""How names of files and folders begin that hold one split, as of the Hugging Face Hub."""


def find_files(asked: Sequence[tuple[str | None, Path]]) -> list[NamedFile]:
    """The files that paths name, each with its split.

    A split that is not given is that of a saved DatasetDict, or what the name of the file, or of a folder on the way to
    it, begins with: ``data/validation-00000-of-00001.parquet``. Else it is ``train``.

    Raises:
        InputError: there is no such file, a folder without any, or a cache.

    """
    found: list[NamedFile] = []
    for split, path in asked:
        if is_data_set(path):
            found += [(split or own or "train", file) for own, files in data_set_splits(path) for file in files]
        elif (path / MANIFEST_NAME).is_file():
            raise InputError(f"{path} is a cache", hint=f"packer check {path}")
        elif path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file() and data_ending(file.name) is not None)
            if not files:
                raise InputError(f"{path}: no file in it that packer reads")
            found += [(split or _split_of(file.relative_to(path)), file) for file in files]
        else:
            found += [(split or _split_of(Path(file.name)), file) for file in expand([str(path)])]
    return found


def _split_of(path: Path) -> str:
    parts = [path.stem, *(folder.name for folder in path.parents)]
    return next((match[1] for part in parts if (match := _SPLIT.match(part))), "train")


def open_files(files: Sequence[NamedFile], recipe: Recipe) -> list[RowPart]:
    """The parts of files."""
    parts: list[RowPart] = []
    for source, (split, path) in enumerate(files):
        kind = detect_format(path)
        if kind in TABLE_FORMATS and "input_ids" in table_schema(path, kind).names:
            parts.append(TokenPart(file=path, source=source))
            continue
        named = SourceFile(source=Source(path=path.as_posix()), name=path.as_posix(), path=path, split=split)
        opened = open_input(named, recipe)
        cut = cut_input(opened, recipe.partition_bytes)
        entry = input_of(opened, cut)
        parts += [InputPart(partition=each, entry=entry, source=source) for each in cut.partitions]
    return parts
