"""Read columns of shards from where the manifest says they are, without mapping or downloading the shards."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.display import repair_hint
from packer.errors import CheckError
from packer.layout import offsets_of
from packer.store.bounds import check_column
from packer.store.files import CacheFiles
from packer.store.manifest import Place, Shard
from packer.store.mapping import as_damage, as_missing


def read_columns(
    folder: Path, wanted: Sequence[tuple[Shard, Sequence[Place]]], columns: Mapping[str, type[np.generic]]
) -> Iterator[list[npt.NDArray[Any]]]:
    """Yield fixed-width columns of some record batches, shard by shard; digests are not checked.

    Only a few shards' columns are in memory at a time. Columns that are stored close together, as ``length`` and
    ``num_trained`` are, take one request to a bucket per record batch.

    `wanted` are shards, and record batches of each; `columns` are names and stored types.

    Yields:
        The columns of each shard.  # [rows of its record batches] each

    Raises:
        CheckError: a shard is truncated, has no such column, or a value out of its bounds.
        StorageError: it cannot be read.
    """
    sizes = [np.dtype(kind).itemsize for kind in columns.values()]

    def ranges(shard: Shard, places: Sequence[Place]) -> list[tuple[int, int]]:
        try:
            return [
                (place.columns[name], size * place.num_rows)
                for name, size in zip(columns, sizes, strict=True)
                for place in places
            ]
        except KeyError as error:
            reason = f"{folder / shard.path} is damaged: not all its rows have a {error.args[0]}"
            raise CheckError(reason, hint=repair_hint(folder)) from None

    contents = CacheFiles(folder).read_ranges((shard.path, ranges(shard, places)) for shard, places in wanted)
    for shard, places in wanted:
        with as_missing(folder, shard):
            try:
                content = next(contents)
            except CheckError as error:
                raise CheckError(error.message, hint=error.hint or repair_hint(folder)) from None
        num_rows = sum(place.num_rows for place in places)
        starts = offsets_of([size * num_rows for size in sizes]).tolist()
        found = [
            np.frombuffer(content, kind, num_rows, start) for kind, start in zip(columns.values(), starts, strict=False)
        ]
        with as_damage(folder, shard):
            for name, values in zip(columns, found, strict=True):
                check_column(name, values, shard)
        yield found
