"""What an export holds, read literally: struct, gzip, JSON and raw bytes, no line of packer and of no trainer."""

import gzip
import itertools
import json
import struct

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


def megatron_sequences(prefix):
    """Sequences of a .bin and .idx, value by value."""
    index = prefix.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, count, entries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1 and entries == count + 1
    letter = {1: "B", 4: "i", 8: "H"}[code]
    at = 9 + 8 + 1 + 8 + 8
    lengths = struct.unpack_from(f"<{count}i", index, at)
    pointers = struct.unpack_from(f"<{count}q", index, at + 4 * count)
    documents = struct.unpack_from(f"<{entries}q", index, at + 12 * count)
    assert documents == tuple(range(entries))
    assert len(index) == at + 12 * count + 8 * entries
    values = prefix.with_suffix(".bin").read_bytes()
    assert len(values) == sum(lengths) * struct.calcsize(letter)
    return [
        list(struct.unpack_from(f"<{length}{letter}", values, pointer))
        for length, pointer in zip(lengths, pointers, strict=True)
    ]


def olmo_parts(folder, width):
    """(ids, mask, borders) of every part; `width` is the bytes of an id."""
    parts = []
    for path in sorted(folder.glob("token_ids_part_*.npy")):
        raw = path.read_bytes()
        ids = [int.from_bytes(raw[i : i + width], "little") for i in range(0, len(raw), width)]
        mask = list((folder / path.name.replace("token_ids", "labels_mask")).read_bytes())
        assert set(mask) <= {0, 1}
        borders = path.with_suffix(".csv.gz")
        lines = gzip.decompress(borders.read_bytes()).decode().splitlines() if borders.exists() else []
        parts.append((ids, mask, [tuple(map(int, line.split(","))) for line in lines]))
    return parts


def mds_samples(folder):
    """The column `turns` of every sample of every shard."""
    index = json.loads((folder / "index.json").read_text("utf-8"))
    assert index["version"] == 2
    samples = []
    for shard in index["shards"]:
        assert (shard["format"], shard["column_names"], shard["column_encodings"]) == ("mds", ["turns"], ["json"])
        raw = (folder / shard["raw_data"]["basename"]).read_bytes()
        assert len(raw) == shard["raw_data"]["bytes"] <= shard["size_limit"]
        (count,) = struct.unpack_from("<I", raw)
        assert count == shard["samples"]
        offsets = struct.unpack_from(f"<{count + 1}I", raw, 4)
        assert offsets[-1] == len(raw)
        for start, end in itertools.pairwise(offsets):
            (size,) = struct.unpack_from("<I", raw, start)
            assert size == end - start - 4
            samples.append(json.loads(raw[start + 4 : end]))
    return samples


def stitched(turns):
    """Ids and labels as llm-foundry joins turns with target_prompts: none, target_responses: all."""
    ids, labels = [], []
    for turn in turns:
        ids += turn["input_ids"] + turn["labels"]
        labels += [-100] * len(turn["input_ids"]) + turn["labels"]
    return ids, labels
