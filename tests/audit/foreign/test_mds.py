"""MDS shards written by hand, in every encoding an audit reads, and folders that are not what they say."""

import bz2
import gzip
import json
import struct

import numpy as np
import pyarrow as pa
import pytest

from packer.audit.foreign import audit_foreign
from packer.audit.foreign.mds import MdsPart, mds_folders
from packer.errors import InputError

ROWS = [
    ([5, 70_000, 7], [-100, 70_000, 7]),
    ([300 + i for i in range(300)], [-100] * 299 + [599]),
    ([9], [9]),
    ([1, 2], [-100, 2]),
]


def with_shape(values, dtype):
    """An array as MDSWriter writes one whose shape its column does not name."""
    wide = len(values) > 255
    return bytes([1 << 2 | wide]) + struct.pack("<H" if wide else "B", len(values)) + np.array(values, dtype).tobytes()


ENCODINGS = {
    "json": lambda values: json.dumps(values).encode(),
    "bytes": lambda values: np.array(values, np.int64).tobytes(),
    "ndarray": lambda values: bytes([33]) + with_shape(values, np.int32),
    "ndarray:int32": lambda values: with_shape(values, np.int32),
    "ndarray:int64": lambda values: with_shape(values, np.int64),
}


def write_mds(folder, rows, encodings, *, per_shard=3, pack=None, sizes=None):
    """A folder of shards; `rows` are column → bytes, `pack` an ending and what compresses."""
    folder.mkdir(parents=True)
    names = sorted(encodings)
    config = {"column_names": names, "column_encodings": [encodings[name] for name in names], "format": "mds"}
    config["column_sizes"] = [(sizes or {}).get(name) for name in names]
    shards = []
    for first in range(0, len(rows), per_shard):
        samples = [
            b"".join(len(row[name]).to_bytes(4, "little") for name in names if not (sizes or {}).get(name))
            + b"".join(row[name] for name in names)
            for row in rows[first : first + per_shard]
        ]
        head = json.dumps(config).encode()
        offsets = np.cumsum([4 + 4 * (len(samples) + 1) + len(head), *map(len, samples)]).astype("<u4")
        content = len(samples).to_bytes(4, "little") + offsets.tobytes() + head + b"".join(samples)
        name = f"shard.{len(shards):05d}.mds"
        info = {"basename": name, "bytes": len(content), "hashes": {}}
        zipped = None
        if pack is not None:
            name, content = f"{name}.{pack[0]}", pack[1](content)
            zipped = {"basename": name, "bytes": len(content), "hashes": {}}
        (folder / name).write_bytes(content)
        more = {"raw_data": info, "zip_data": zipped, "compression": pack and pack[0], "samples": len(samples)}
        shards.append(config | more)
    (folder / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))
    return folder


def rows_of(part, numbers):
    return [(row.input_ids.tolist(), row.labels.tolist()) for row in part.read(numbers)]


def ids_of(part):
    return [token for row in part.read(range(len(part))) for token in row.input_ids.tolist()]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_ids_and_labels_are_read_in_every_encoding(tmp_path, encoding):
    encode = ENCODINGS[encoding]
    rows = [{"input_ids": encode(ids), "labels": encode(labels), "text": b"words"} for ids, labels in ROWS]
    folder = write_mds(tmp_path / "mds", rows, {"input_ids": encoding, "labels": encoding, "text": "str"})
    part = MdsPart(folder, "")
    assert (len(part), part.columns) == (4, ("input_ids", "labels"))
    assert rows_of(part, range(4)) == ROWS
    assert rows_of(part, [1, 3]) == [ROWS[1], ROWS[3]]


@pytest.mark.parametrize(
    "pack",
    [
        ("zstd", lambda data: pa.Codec("zstd").compress(data, asbytes=True)),
        ("gz", gzip.compress),
        ("bz2", bz2.compress),
    ],
)
def test_compressed_shards_are_unpacked(tmp_path, pack):
    rows = [{"tokens": np.array(ids, np.int64).tobytes()} for ids, _ in ROWS]
    part = MdsPart(write_mds(tmp_path / "mds", rows, {"tokens": "bytes"}, pack=pack), "")
    assert ids_of(part) == [token for ids, _ in ROWS for token in ids]


def test_arrays_of_one_length_have_no_size_in_front(tmp_path):
    ids = np.arange(24, dtype=np.uint16).reshape(4, 6)
    rows = [{"input_ids": row.tobytes()} for row in ids]
    folder = write_mds(tmp_path / "mds", rows, {"input_ids": "ndarray:uint16:6"}, sizes={"input_ids": 12})
    assert ids_of(MdsPart(folder, "")) == list(range(24))


def test_turns_are_a_context_and_its_target_each(tmp_path):
    turns = [{"input_ids": [1, 2, 3], "labels": [4, 5]}, {"input_ids": [6], "labels": [7]}]
    part = MdsPart(write_mds(tmp_path / "mds", [{"turns": json.dumps(turns).encode()}], {"turns": "json"}), "")
    assert part.columns == ("turns",)
    assert rows_of(part, [0]) == [([1, 2, 3, 4, 5, 6, 7], [-100, -100, -100, 4, 5, -100, 7])]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "json"}, "expected shards of format mds, found json"),
        ({"column_encodings": ["pkl"]}, "is encoded as pkl; json, bytes and ndarray are read"),
        ({"column_encodings": ["ndarray:float32"]}, "whole numbers are expected"),
        ({"column_names": ["text"]}, "neither a column turns nor input_ids nor tokens"),
        ({"column_sizes": []}, "lack an encoding or a size"),
        ({"column_sizes": [3]}, "sample 0 cannot be read: it does not end with its columns"),
        ({"samples": 2}, "expected 2 samples, found a shard"),
        ({"samples": 2**62}, "expected 4,611,686,018,427,387,904 samples, found a shard"),
        ({"samples": 2**63}, r"shard\.00000\.mds: expected 9,223,372,036,854,775,808 samples, found a shard"),
        ({"raw_data": {"basename": "../shard.00000.mds", "bytes": 1}}, r"Expected a relative path .*raw_data.basename"),
        ({"raw_data": {"basename": "none.mds", "bytes": 1}}, "no such file, and index.json names it"),
        ({"raw_data": 5}, "cannot be read as an index of MDS shards"),
    ],
)
def test_an_index_that_is_not_true_is_an_input_error(tmp_path, change, words):
    folder = write_mds(tmp_path / "mds", [{"input_ids": b"[1, 2]"}], {"input_ids": "json"})
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0] |= change
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=words):
        ids_of(MdsPart(folder, ""))


@pytest.mark.parametrize("samples", [2**62, 2**31, 2**29, 60, 7, 2])
@pytest.mark.parametrize("pack", [None, ("gz", gzip.compress)])
def test_samples_that_no_shard_has_are_no_more_than_a_number(tmp_path, samples, pack):
    rows = [{"tokens": np.arange(9).tobytes()}] * 19
    folder = write_mds(tmp_path / "mds", rows, {"tokens": "bytes"}, pack=pack, per_shard=9)
    assert audit_foreign(folder, sample=None).tokens_looked_at == 19 * 9
    index = json.loads((folder / "index.json").read_text())
    index["shards"][2]["samples"] = samples
    if pack is not None:
        index["shards"][2]["raw_data"]["bytes"] = 2**62
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=rf"shard\.00002\.mds.*: expected {samples:,} samples, found a shard of"):
        audit_foreign(folder, sample=None)


@pytest.mark.parametrize("token", [2**63, -(2**63) - 1, 2**70])
@pytest.mark.parametrize(
    ("name", "text"),
    [("input_ids", "[1, {}]"), ("tokens", "[{}]"), ("turns", '[{{"input_ids": [{}], "labels": []}}]')],
)
def test_ids_that_are_beyond_any_number_of_64_bits_are_an_input_error(tmp_path, name, text, token):
    rows = [{name: text.format(value).encode()} for value in (2**63 - 1, token)]
    folder = write_mds(tmp_path / "mds", rows, {name: "json"})
    with pytest.raises(InputError, match="mds: sample 1 cannot be read"):
        audit_foreign(folder, sample=None)


def test_shards_packed_in_a_way_that_is_not_read_or_into_more_than_they_say_are_refused(tmp_path):
    rows = [{"tokens": bytes(80)}]
    folder = write_mds(tmp_path / "br", rows, {"tokens": "bytes"}, pack=("br", lambda data: b"\x0b" + data))
    with pytest.raises(InputError, match="compressed as br, which an audit does not unpack"):
        ids_of(MdsPart(folder, ""))
    folder = write_mds(
        tmp_path / "bomb", rows, {"tokens": "bytes"}, pack=("gz", lambda data: gzip.compress(data + bytes(9)))
    )
    with pytest.raises(InputError, match="holds more than the"):
        ids_of(MdsPart(folder, ""))


def test_an_index_of_something_else_is_no_folder_of_shards(tmp_path):
    (tmp_path / "index.json").write_text('{"pages": []}')
    assert mds_folders(tmp_path) == mds_folders(tmp_path / "none") == []
