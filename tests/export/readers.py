"""What an export holds, read literally: JSON and Arrow, no line of packer and of no trainer."""

import json

import pyarrow as pa


def cache_documents(cache, split):
    """(ids, labels) of every document of a cache, from its Arrow files."""
    return [(row["input_ids"], row["labels"]) for row in _cache_rows(cache, "documents", split)]


def cache_blocks(cache, split):
    return _cache_rows(cache, "blocks", split)


def _cache_rows(cache, kind, split):
    manifest = json.loads((cache / "manifest.json").read_text("utf-8"))
    paths = [s["path"] for s in manifest["shards"] if (s["kind"], s["split"]) == (kind, split)]
    return [row for path in paths for row in pa.ipc.open_file(cache / path).read_all().to_pylist()]


def datasets_rows(folder):
    """Rows of a save_to_disk folder, and its columns with their types."""
    state = json.loads((folder / "state.json").read_text("utf-8"))
    tables = [pa.ipc.open_stream(folder / file["filename"]).read_all() for file in state["_data_files"]]
    return [row for table in tables for row in table.to_pylist()]
