"""What an export holds, read literally: JSON and Arrow, no line of packer and of no trainer."""

import json

import pyarrow as pa
from packed_caches import table


def cache_documents(cache, split):
    """(ids, labels) of every document of a cache, from its Arrow files."""
    return [(row["input_ids"], row["labels"]) for row in table(cache, "documents", split)]


def cache_blocks(cache, split):
    return table(cache, "blocks", split)


def datasets_rows(folder):
    """Rows of a save_to_disk folder, and its columns with their types."""
    state = json.loads((folder / "state.json").read_text("utf-8"))
    tables = [pa.ipc.open_stream(folder / file["filename"]).read_all() for file in state["_data_files"]]
    return [row for table in tables for row in table.to_pylist()]
