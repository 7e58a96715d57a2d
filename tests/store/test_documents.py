"""Document shards: what is written is what any Arrow reader sees, and the bytes depend on nothing but the documents."""

import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples
from single_documents import read_document
from store.samples import document_batch, write_documents
from xxhash import xxh3_64_intdigest

from packer.batches import DocumentBatch
from packer.layout import document_labels, offsets_of, select_documents, trained_tokens
from packer.media.carried import Media
from packer.store import writing as documents
from packer.store.arrow_columns import Ragged, document_rows
from packer.store.entries import documents_schema
from packer.store.shards import DocumentShards
from packer.store.writing import find_places


def _table(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def _expected_rows(batch: DocumentBatch) -> list[dict]:
    """What each row must hold, spelled out document by document."""
    labels, trained = document_labels(batch), trained_tokens(batch)
    rows = []
    for i in range(batch.num_documents):
        tokens = slice(batch.offsets[i], batch.offsets[i + 1])
        runs = range(batch.run_offsets[i], batch.run_offsets[i + 1])
        ids = batch.input_ids[tokens].tolist()
        rows.append(
            {
                "input_ids": ids,
                "labels": labels[tokens].tolist(),
                "spans": [
                    {
                        "message": int(batch.run_message[run]),
                        "start": int(batch.run_start[run]),
                        "end": int(batch.run_end[run]),
                    }
                    for run in runs
                ],
                "length": len(ids),
                "num_trained": int(trained[tokens].sum()),
                "row": int(batch.sample[i]),
                "sample_id": batch.sample_id[i],
            }
        )
    return rows


def _oracle_digest(row: dict, *, sides: bytes = b"", rest: bytes = b"") -> int:
    """The row digest of the format's definition, one value at a time; `rest` is what follows a sample's id."""
    name = None if row["sample_id"] is None else row["sample_id"].encode()
    lengths = [len(row[key]) for key in ("input_ids", "labels")]
    header = [row["doc_id"], row["length"], row["num_trained"], row["row"], *lengths]
    header += [len(row["spans"]), -1 if name is None else len(name)]
    content = struct.pack("<8q", *header) + sides
    for key in ("input_ids", "labels"):
        content += struct.pack(f"<{len(row[key])}i", *row[key])
    for key in ("message", "start", "end"):
        content += struct.pack(f"<{len(row['spans'])}i", *(span[key] for span in row["spans"]))
    return xxh3_64_intdigest(content + (name or b"") + rest)


def _oracle_doc_id(row: dict) -> int:
    n = len(row["input_ids"])
    content = struct.pack(f"<2q{n}i{n}i", n, 0, *row["input_ids"], *row["labels"])
    return struct.unpack("<q", struct.pack("<Q", xxh3_64_intdigest(content)))[0]


def test_arrow_reads_the_documents_that_were_written(tmp_path: Path) -> None:
    batch = document_batch(50)
    shard = write_documents(tmp_path, [batch])
    table = _table(tmp_path / shard.path)
    assert table.schema.equals(documents_schema(), check_metadata=True)
    rows = table.to_pylist()
    expected = _expected_rows(batch)
    assert [{key: row[key] for key in expected[0]} for row in rows] == expected
    assert [row["digest"] for row in rows] == [_oracle_digest(row) for row in rows]
    assert [row["doc_id"] for row in rows] == [_oracle_doc_id(row) for row in rows]
    assert (shard.num_rows, shard.num_tokens) == (50, len(batch.input_ids))
    assert shard.num_trained == sum(row["num_trained"] for row in expected)
    table.validate(full=True)


def test_the_reader_gives_back_the_documents_that_were_written(tmp_path: Path) -> None:
    batch = document_batch(50)
    shard = write_documents(tmp_path, [batch])
    reader = DocumentShards(tmp_path, [msgspec.structs.replace(shard, first_row=7, source=3, num_input_rows=50)])
    expected = _expected_rows(batch)
    for i, row in enumerate(expected):
        document = read_document(reader, i)
        assert document.input_ids.tolist() == row["input_ids"]
        assert document.labels.tolist() == row["labels"]
        spans = zip(document.span_message, document.span_start, document.span_end, strict=True)
        assert [{"message": m, "start": s, "end": e} for m, s, e in spans] == row["spans"]
        found = (document.length, document.num_trained, document.row, document.sample_id)
        assert found == (row["length"], row["num_trained"], row["row"], row["sample_id"])
        assert (document.path, document.shard_row) == (shard.path, i)
        assert [int(each[i]) for each in reader.origins()] == [3, 7 + row["row"]]
        assert reader.find(document.doc_id) == i
    assert len(expected) == len(reader) == 50


def test_few_rows_and_many_rows_have_the_same_digests(tmp_path: Path) -> None:
    shard = write_documents(tmp_path, [document_batch(40)])
    rows = document_rows(_table(tmp_path / shard.path).to_batches()[0])
    expected = [_oracle_digest(row) for row in _table(tmp_path / shard.path).to_pylist()]
    assert rows.digests().tolist() == expected
    for count in range(8):
        some = np.random.default_rng(count).permutation(40)[:count]
        assert rows.digests(some).tolist() == [expected[i] for i in some]


def test_a_digest_is_of_sides_images_and_declared_columns_too(tmp_path: Path) -> None:
    shard = write_documents(tmp_path, [document_batch(40)])
    table = _table(tmp_path / shard.path)
    rng = np.random.default_rng(0)
    offsets, wide = np.concatenate([[0], np.cumsum(rng.integers(0, 4, 40))]), rng.random((40, 3), np.float32)
    media = Media(
        offsets=offsets,
        sha256=rng.integers(0, 256, (offsets[-1], 32), np.uint8),
        places=rng.integers(0, 99, (offsets[-1], 5), np.int32),
    )
    side = rng.integers(0, 4, 40).astype(np.int8)
    of_tokens = Ragged(
        values=rng.random((shard.num_tokens, 2), np.float32), offsets=offsets_of(table["length"].to_pylist())
    )
    rows = replace(document_rows(table.to_batches()[0]), side=side, media=media, values={"a": wide, "b": of_tokens})
    expected = []
    for i, row in enumerate(table.to_pylist()):
        images = slice(offsets[i], offsets[i + 1])
        rest = [media.sha256[images], media.places[images], wide[i], of_tokens[i]]
        sides = struct.pack("<q", side[i])
        expected.append(_oracle_digest(row, sides=sides, rest=b"".join(each.tobytes() for each in rest)))
    assert rows.digests().tolist() == expected
    assert rows.digests(np.array([7, 3])).tolist() == [expected[7], expected[3]]


@percent_of_examples(40)
@given(cuts=st.lists(st.integers(0, 60), max_size=8))
def test_bytes_do_not_depend_on_how_documents_are_handed_over(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    tmp_path = tmp_path_factory.mktemp("cache")
    whole = document_batch(60)
    bounds = [0, *sorted(cuts), 60]
    pieces = [select_documents(whole, np.arange(a, b)) for a, b in pairwise(bounds)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "BATCH_ROWS", 9)
        patch.setattr(documents, "BATCH_TOKENS", 200)
        expected = write_documents(tmp_path / "one", [whole])
        found = write_documents(tmp_path / "many", pieces)
    assert found == expected
    assert (tmp_path / "one" / expected.path).read_bytes() == (tmp_path / "many" / found.path).read_bytes()
    assert len(expected.places) > 6
    rows = _table(tmp_path / "one" / expected.path).to_pylist()
    assert [row["digest"] for row in rows] == [_oracle_digest(row) for row in rows]
    assert [row["doc_id"] for row in rows] == [_oracle_doc_id(row) for row in rows]
    assert list((tmp_path / "many" / "documents").iterdir()) == [tmp_path / "many" / found.path]


def test_a_record_batch_ends_with_the_row_that_fills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BATCH_ROWS", 5)
    monkeypatch.setattr(documents, "BATCH_TOKENS", 100)
    batch = document_batch(200)
    places = write_documents(tmp_path, [batch]).places
    rows, tokens, expected = 0, 0, []
    for length in np.diff(batch.offsets).tolist():
        rows, tokens = rows + 1, tokens + length
        if rows == 5 or tokens >= 100:
            expected.append(rows)
            rows = tokens = 0
    expected += [rows] if rows else []
    assert [place.num_rows for place in places] == expected
    assert {5} < set(expected)  # both limits were met


def test_places_lead_to_the_values_without_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BATCH_ROWS", 16)
    shard = write_documents(tmp_path, [document_batch(40)])
    content = (tmp_path / shard.path).read_bytes()
    table = _table(tmp_path / shard.path)
    dtypes = {"doc_id": "<i8", "length": "<i4", "num_trained": "<i4", "row": "<i4", "digest": "<u8"}
    assert [place.first_row for place in shard.places] == [0, 16, 32]
    for place in shard.places:
        rows = table.slice(place.first_row, place.num_rows)
        assert set(place.columns) == {*dtypes}
        for name, dtype in dtypes.items():
            assert np.frombuffer(content, dtype, len(rows), place.columns[name]).tolist() == rows[name].to_pylist()


def test_last_documents_of_rows_count_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BATCH_ROWS", 2)
    batch = document_batch(9, row_of=lambda i: [0, 0, 0, 2, 3, 3, 3, 7, 7][i])
    lengths = np.diff(batch.offsets)
    shard = write_documents(tmp_path, [select_documents(batch, np.arange(5)), select_documents(batch, np.arange(5, 9))])
    assert shard.num_last_tokens == lengths[[2, 3, 6, 8]].sum()


def test_a_partition_without_documents_is_a_shard_without_rows(tmp_path: Path) -> None:
    shard = write_documents(tmp_path, [select_documents(document_batch(3), np.arange(0))])
    assert (shard.num_rows, shard.num_tokens, shard.num_last_tokens, shard.places) == (0, 0, 0, ())
    assert _table(tmp_path / shard.path).num_rows == 0
    full = write_documents(tmp_path, [document_batch(3)])
    reader = DocumentShards(tmp_path, [shard, full, shard])
    reader.verify()
    assert len(reader) == 3
    assert read_document(reader, 2).shard_row == 2
    empty = DocumentShards(tmp_path, [shard])
    assert len(empty.columns().doc_id) == len(empty.lengths()) == len(empty.stored("digest", np.uint64)) == 0
    assert empty.find(1) is None


def test_find_gives_the_first_of_equal_documents_and_none_for_a_stranger(tmp_path: Path) -> None:
    batch = document_batch(3)
    shard = write_documents(tmp_path, [batch, batch])
    reader = DocumentShards(tmp_path, [shard])
    ids = reader.doc_ids().tolist()
    assert [reader.find(doc_id) for doc_id in ids] == [0, 1, 2, 0, 1, 2]
    assert reader.find(next(i for i in range(99) if i not in ids)) is None


def test_a_document_of_a_shard_without_a_source_has_no_origin(tmp_path: Path) -> None:
    shard = write_documents(tmp_path, [document_batch(5)])
    documents = DocumentShards(tmp_path, [shard])
    assert documents.origins()[0].tolist() == [-1] * 5


def test_a_record_batch_without_rows_has_no_place(tmp_path: Path) -> None:
    schema = documents_schema()
    with pa.ipc.new_file(str(tmp_path / "empty.arrow"), schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema))
    with pytest.raises(ValueError, match="has no values"):
        find_places(tmp_path / "empty.arrow")
