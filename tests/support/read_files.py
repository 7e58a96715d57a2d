"""Files read as a build reads them, partition by partition."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from packer.batches import Sample
from packer.pipeline.plan.inputs import detected_schema
from packer.source.detect import detect_format
from packer.source.partition import partition_file
from packer.source.rows import read_rows


class ReadFile(NamedTuple):
    """What a file is, and what becomes of each of its rows: its sample, or code and reason."""

    format: str
    schema: str
    rows: list[Any]

    @property
    def samples(self) -> list[Sample]:
        return [row for row in self.rows if isinstance(row, Sample)]

    @property
    def codes(self) -> list[str]:
        return [row[0] for row in self.rows if not isinstance(row, Sample)]


def read_file(
    path: Path,
    *,
    schema: str | None = None,
    columns: Mapping[str, str | None] | None = None,
    partition_bytes: int = 2**20,
    max_row_bytes: int = 2**26,
) -> ReadFile:
    columns = dict(columns or {})
    kind = detect_format(path)
    schema = schema or detected_schema(path, format=kind, columns=columns)
    rows: list[Any] = []
    for piece in partition_file(path, format=kind, partition_bytes=partition_bytes).partitions:
        assert piece.first_row == len(rows)
        found: dict[int, Any] = {}
        for batch in read_rows(piece, schema=schema, columns=columns, max_row_bytes=max_row_bytes):
            found |= {sample.row: sample for sample in batch.samples}
            found |= {each.row: (each.code, each.reason) for each in batch.rejections}
        assert sorted(found) == list(range(piece.num_rows))
        rows += [found[row] for row in range(piece.num_rows)]
    return ReadFile(kind, schema, rows)
