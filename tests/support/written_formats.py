"""The same rows in every format that packer reads."""

import csv
import gzip
import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ["the", "cache", "holds", "tokens", "of", "rows", "every", "block", "proved", "written", "disk", "two"]


def some_rows(number):
    """Rows of a hundred words."""
    chance = random.Random(number)
    return [
        {
            "prompt": f"{i}: " + " ".join(chance.choices(WORDS, k=20)),
            "completion": " ".join(chance.choices(WORDS, k=90)),
        }
        for i in range(number)
    ]


def in_three_files(rows):
    """Rows as JSON lines, Parquet and compressed JSON lines, by the names of the files."""
    half, last = len(rows) // 2, len(rows) * 5 // 6
    return {
        "a.jsonl": as_jsonl(rows[:half]),
        "b.parquet": as_parquet(rows[half:last], row_group_size=200),
        "c.jsonl.zst": packed(as_jsonl(rows[last:]), "zstd"),
    }


def as_jsonl(rows):
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def as_csv(rows, delimiter=","):
    """Texts as they stand, everything else as JSON; what a row has not is an empty cell."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in names])
    return text.getvalue().encode()


def _cell(value):
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def packed(content, codec):
    if codec == "gzip":
        return gzip.compress(content, mtime=0)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def as_table(rows):
    return pa.Table.from_pylist(rows, pa.schema([(name, kind) for name, kind in types_of(rows).items()]))


def types_of(rows):
    """The types of every key of any row, as `datasets` finds them."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _type_of([row[name] for row in rows if row.get(name) is not None]) for name in names}


def _type_of(values):
    if not values:
        return pa.null()
    if isinstance(values[0], dict):
        return pa.struct(list(types_of(values).items()))
    if isinstance(values[0], list):
        return pa.list_(_type_of([item for value in values for item in value if item is not None]))
    return pa.infer_type(values)


def as_parquet(rows, **options):
    sink = io.BytesIO()
    pq.write_table(as_table(rows), sink, **{"row_group_size": 3, **options})
    return sink.getvalue()


def as_arrow(rows, new=pa.ipc.new_stream, batch_rows=3, options=None):
    sink = io.BytesIO()
    table = as_table(rows)
    with new(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return sink.getvalue()


FORMATS = {
    "rows.jsonl": as_jsonl,
    "rows.json": lambda rows: json.dumps(rows, ensure_ascii=False, indent=1).encode(),
    "rows.jsonl.gz": lambda rows: packed(as_jsonl(rows), "gzip"),
    "rows.jsonl.zst": lambda rows: packed(as_jsonl(rows), "zstd"),
    "rows.json.gz": lambda rows: packed(json.dumps(rows).encode(), "gzip"),
    "rows.csv": as_csv,
    "rows.tsv": lambda rows: as_csv(rows, "\t"),
    "rows.csv.zst": lambda rows: packed(as_csv(rows), "zstd"),
    "rows.parquet": as_parquet,
    "snappy.parquet": lambda rows: as_parquet(
        rows, compression="snappy", data_page_version="2.0", use_dictionary=False
    ),
    "stream.arrow": as_arrow,
    "file.arrow": lambda rows: as_arrow(rows, pa.ipc.new_file),
    "lz4.arrow": lambda rows: as_arrow(rows, pa.ipc.new_file, options=pa.ipc.IpcWriteOptions(compression="lz4")),
}
"""File name → how rows become its bytes."""
