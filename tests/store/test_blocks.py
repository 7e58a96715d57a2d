"""Block shards: what is written is what any Arrow reader sees; the reader gathers rows in any order."""

import pickle
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples
from store.samples import block_batch, write_blocks
from xxhash import xxh3_64_intdigest

from packer.batches import BlockBatch
from packer.store.arrow_columns import BlockRows
from packer.store.entries import blocks_schema
from packer.store.shards import BlockShards


def _table(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


PIECES = ("doc_ids", "doc_starts", "doc_lengths", "doc_places")


def _rows(batch: BlockBatch) -> list[dict]:
    """What each row must hold, spelled out block by block."""
    rows = []
    for i in range(batch.num_blocks):
        pieces = slice(batch.doc_offsets[i], batch.doc_offsets[i + 1])
        row = {name: getattr(batch, name)[i].tolist() for name in ("input_ids", "labels", "position_ids")}
        row |= {name: getattr(batch, name)[pieces].tolist() for name in PIECES}
        row["seq_lengths"] = batch.seq_lengths[batch.seq_offsets[i] : batch.seq_offsets[i + 1]].tolist()
        row |= {"length": int(batch.length[i]), "num_trained": int(batch.num_trained[i])}
        rows.append(row)
    return rows


def _oracle_digest(row: dict) -> int:
    """The row digest of the format's definition, one value at a time."""
    L, lists = len(row["input_ids"]), (*PIECES, "seq_lengths")
    content = struct.pack("<8q", row["length"], row["num_trained"], L, *(len(row[name]) for name in lists))
    for name in ("input_ids", "labels", "position_ids"):
        content += struct.pack(f"<{L}i", *row[name])
    for name, code in zip(lists, "qiiii", strict=True):
        content += struct.pack(f"<{len(row[name])}{code}", *row[name])
    return xxh3_64_intdigest(content)


def test_arrow_reads_the_blocks_that_were_written(tmp_path: Path) -> None:
    batches = [block_batch(5, seed=seed) for seed in range(3)]
    shard = write_blocks(tmp_path, batches)
    table = _table(tmp_path / shard.path)
    assert table.schema.equals(blocks_schema(32), check_metadata=True)
    expected = [row for batch in batches for row in _rows(batch)]
    assert table.drop_columns(["digest"]).to_pylist() == expected
    digests = [_oracle_digest(row) for row in expected]
    assert table["digest"].to_pylist() == digests
    assert np.concatenate([BlockRows.of(batch).digests() for batch in batches]).tolist() == digests
    assert [place.num_rows for place in shard.places] == [5, 5, 5]
    assert (shard.num_rows, shard.num_tokens) == (15, sum(row["length"] for row in expected))
    assert shard.num_trained == sum(row["num_trained"] for row in expected)
    table.validate(full=True)


@percent_of_examples(40)
@given(picks=st.lists(st.integers(0, 29), max_size=20))
def test_any_rows_come_in_the_order_asked(tmp_path_factory: pytest.TempPathFactory, picks: list[int]) -> None:
    tmp_path = tmp_path_factory.mktemp("cache")
    batches = [block_batch(5, seed=seed) for seed in range(6)]
    shards = [write_blocks(tmp_path, batches[i : i + 2], index=i) for i in (0, 2, 4)]
    reader = BlockShards(tmp_path, list(shards))
    assert (len(reader), reader.block_len) == (30, 32)
    everything = [row for batch in batches for row in _rows(batch)]
    for _ in range(2):  # the second time, their digests are known
        assert _rows(reader.read(np.array(picks, np.int64))) == [everything[i] for i in picks]


def test_rows_that_are_not_there_are_refused(tmp_path: Path) -> None:
    reader = BlockShards(tmp_path, [write_blocks(tmp_path, [block_batch(3)])])
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match="expected rows from 0 to 2"):
            reader.read(np.array([0, wrong]))


def test_places_lead_to_the_tokens_without_arrow(tmp_path: Path) -> None:
    batch = block_batch(5)
    shard = write_blocks(tmp_path, [batch])
    content = (tmp_path / shard.path).read_bytes()
    columns = shard.places[0].columns
    names = {"input_ids", "labels", "position_ids", "length", "num_trained"}
    assert set(columns) == names | {"digest"}
    for name in names:
        expected = getattr(batch, name)
        found = np.frombuffer(content, expected.dtype, expected.size, columns[name]).reshape(expected.shape)
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.frombuffer(content, "<u8", 5, columns["digest"]), BlockRows.of(batch).digests())


def test_a_batch_without_blocks_adds_nothing(tmp_path: Path) -> None:
    nothing = block_batch(0)
    shard = write_blocks(tmp_path, [nothing, block_batch(2), nothing])
    assert shard == write_blocks(tmp_path / "other", [block_batch(2)])
    empty = write_blocks(tmp_path, [nothing], index=1)
    assert empty.places == ()
    reader = BlockShards(tmp_path, [empty, shard])
    assert _rows(reader.read(np.array([1, 0]))) == _rows(block_batch(2))[::-1]


def test_threads_and_pickled_readers_read_the_same(tmp_path: Path) -> None:
    shards = [write_blocks(tmp_path, [block_batch(5, seed=seed)], index=seed) for seed in range(4)]
    reader = BlockShards(tmp_path, list(shards))
    expected = [_rows(block_batch(5, seed=seed)) for seed in range(4)]
    expected = [row for rows in expected for row in rows]
    orders = [np.random.default_rng(seed).permutation(20) for seed in range(16)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(reader.read, orders))
    for order, result in zip(orders, results, strict=True):
        assert _rows(result) == [expected[i] for i in order]
    again = pickle.loads(pickle.dumps(reader))
    assert _rows(again.read(np.arange(20))) == expected


def test_what_was_read_may_be_written_to(tmp_path: Path) -> None:
    reader = BlockShards(tmp_path, [write_blocks(tmp_path, [block_batch(3)])])
    batch = reader.read(np.array([1]))
    for name in ("input_ids", "labels", "position_ids", "seq_lengths", *PIECES, "length"):
        getattr(batch, name)[...] = 0
    assert _rows(reader.read(np.array([1]))) == [_rows(block_batch(3))[1]]


def test_a_block_knows_its_file_and_row(tmp_path: Path) -> None:
    shards = [write_blocks(tmp_path, [block_batch(2, seed=seed), block_batch(3)], index=seed) for seed in range(2)]
    reader = BlockShards(tmp_path, list(shards))
    assert [reader.place(i) for i in (0, 4, 5, 8)] == [
        (shards[0].path, 0),
        (shards[0].path, 4),
        (shards[1].path, 0),
        (shards[1].path, 3),
    ]
