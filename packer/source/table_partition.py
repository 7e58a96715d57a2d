"""The rows of a partition of a Parquet or Arrow file."""

from collections.abc import Iterator, Mapping
from typing import cast

from packer.source.chunks import changed
from packer.source.partition import Partition
from packer.source.projection import columns_read
from packer.source.schema import Schema
from packer.source.table_digest import ByteRange, digest_bytes, digest_run
from packer.source.tables import Extent, RowValue, Table, TableFormat, table_rows, table_schema


def partition_values(
    partition: Partition, *, schema: Schema, columns: Mapping[str, str | None], max_row_bytes: int
) -> Iterator[RowValue]:
    """The values of the rows, of columns that the schema can use.

    The bytes are hashed and compared with the partition's digest before any is decoded.

    Raises:
        InputError: the file cannot be read, or is not what it was when it was cut.

    """
    path, kind = partition.path, cast("TableFormat", partition.format)
    found = table_schema(path, kind)
    extent = ByteRange(partition.start, partition.stop)
    outline = Table(schema=found, groups=()).outline
    if digest_run(outline, digest_bytes(path, extent), partition.skip) != partition.xxh3:
        raise changed(path, f"bytes {partition.start} to {partition.stop} are not what they were")
    rows = table_rows(
        path,
        kind,
        columns_read(found.names, schema, columns),
        max_row_bytes=max_row_bytes,
        extent=Extent(
            groups=range(partition.first_group, partition.first_group + partition.num_groups),
            start=partition.start,
            stop=partition.stop,
        ),
        skip=partition.skip,
        columns=columns,
    )
    num_rows = 0
    for row in rows:
        if num_rows == partition.num_rows:
            return
        num_rows += 1
        yield row
    if num_rows != partition.num_rows:
        raise changed(path, f"expected {partition.num_rows} rows, found {num_rows}")
