"""Sizes that messages of Arrow say, against what pyarrow decodes of them."""

import random

import pyarrow as pa
import pytest

from packer.host.arrow_messages import batch_sizes

TABLE = pa.table(
    {
        "number": pa.array([*range(900), *[None] * 100]),
        "text": ["x" * n for n in range(1000)],
        "nothing": pa.nulls(1000),
        "many": pa.array([[n] * (n % 7) for n in range(1000)]),
        "either": pa.array(["a", "b"] * 500).dictionary_encode(),
    }
)


def written(table: pa.Table, compression: str | None, *, is_file: bool) -> bytes:
    sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression=compression)
    with (pa.ipc.new_file if is_file else pa.ipc.new_stream)(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=400)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def buffers(batch: pa.RecordBatch) -> int:
    """Bytes of the decoded buffers, without those of dictionaries."""
    columns = [batch.column(i) for i in range(batch.num_columns)]
    plain = [each.indices if pa.types.is_dictionary(each.type) else each for each in columns]
    return sum(buffer.size for each in plain for buffer in each.buffers() if buffer is not None)


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_rows_and_bytes_are_those_that_pyarrow_decodes(compression: str | None, is_file: bool) -> None:
    content = written(TABLE, compression, is_file=is_file)
    file = pa.BufferReader(content)
    file.seek(8 if is_file else 0)
    sizes = [*batch_sizes(file)]
    decoded = [*pa.ipc.open_stream(pa.BufferReader(content[8:] if is_file else content))]
    of_rows = [size for size in sizes if not size.is_dictionary]
    assert [size.num_rows for size in of_rows] == [batch.num_rows for batch in decoded] == [400, 400, 200]
    assert [size.num_bytes for size in of_rows] == [buffers(batch) for batch in decoded]
    assert [(size.num_rows, size.num_bytes) for size in sizes if size.is_dictionary] == [(2, 14)]
    assert {size.is_compressed for size in sizes} == {compression is not None}


def test_damaged_messages_are_errors_of_values_alone() -> None:
    """Whatever bits are flipped; each file is read to its end or refused."""
    draw, content, refused = random.Random(0), written(TABLE.slice(0, 20), "zstd", is_file=False), 0
    for _ in range(3000):
        damaged = bytearray(content)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        try:
            assert len([*batch_sizes(pa.BufferReader(bytes(damaged[: draw.choice((None, -1, -40))])))]) < 20
        except ValueError:
            refused += 1
    assert refused > 300
