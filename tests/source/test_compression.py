"""Compressed inputs: streamed, told apart by their bytes, and refused where they are not whole."""

import gzip
import tracemalloc
from pathlib import Path

import pytest
from written_formats import as_csv, as_jsonl, packed

from packer.errors import InputError
from packer.pipeline.plan.inputs import detected_schema
from packer.source import file_bytes as chunks_module
from packer.source.detect import detect_format
from packer.source.partition import partition_file
from packer.source.rows import read_rows

ROWS = [{"text": f"row {i} " + str(i * 7919 % 1000) * 20} for i in range(300)]
CODECS = ["gzip", "zstd"]


def rows_of(path, *, max_row_bytes=2**20, limit=None, kind="jsonl"):
    cut = partition_file(path, format=kind, partition_bytes=1000, limit=limit)
    (piece,) = cut.partitions
    batches = list(read_rows(piece, schema="text", columns={}, max_row_bytes=max_row_bytes))
    return [sample.text for batch in batches for sample in batch.samples], [
        (each.row, each.code) for batch in batches for each in batch.rejections
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_file_is_one_partition_whatever_its_name(tmp_path, codec):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(packed(as_jsonl(ROWS), codec))
    assert detect_format(path) == "jsonl"
    assert detected_schema(path, format="jsonl", columns={}) == "text"
    assert rows_of(path) == ([row["text"] for row in ROWS], [])
    assert rows_of(path, limit=7)[0] == [row["text"] for row in ROWS[:7]]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 7, 2**20])
def test_members_of_any_size_in_chunks_of_any_size_are_one_text_and_what_follows_them_is_refused(codec, size):
    empty = packed(b"", codec)
    whole = b"".join([empty, packed(b"one\n" * 9000, codec), empty, empty, packed(b"two\n", codec), empty])

    def text_of(content):
        pieces = (content[start : start + size] for start in range(0, len(content), size))
        return b"".join(chunks_module.decompressed(Path("rows"), pieces, codec))

    assert text_of(whole) == b"one\n" * 9000 + b"two\n"
    for damaged in (whole + b"junk", whole[:-1]):
        with pytest.raises(InputError, match=f"rows: {codec} data is damaged or cut off: "):
            text_of(damaged)


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_that_is_cut_off_anywhere_is_one_error_that_says_how_far_it_went(tmp_path, codec):
    whole = packed(as_jsonl(ROWS), codec)
    path = tmp_path / "rows.jsonl.gz"
    checked = 0
    for length in range(4, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:length])
        with pytest.raises(
            InputError, match=rf"rows.jsonl.gz: {codec} data is damaged or cut off: .*bytes of text"
        ) as caught:
            partition_file(path, format="jsonl", partition_bytes=1000)
        assert caught.value.hint
        checked += 1
    assert checked > 30


@pytest.mark.parametrize("padding", [1, 511, 70000])
def test_zeros_behind_members_of_gzip_are_nothing_and_other_bytes_are_an_error(tmp_path, monkeypatch, padding):
    monkeypatch.setattr(chunks_module, "READ_BYTES", 100)
    path = tmp_path / "rows"
    members = [packed(as_jsonl(ROWS[:5]), "gzip"), bytes(padding), packed(as_jsonl(ROWS[5:9]), "gzip"), bytes(padding)]
    whole = b"".join(members)
    path.write_bytes(whole)
    assert rows_of(path) == ([row["text"] for row in ROWS[:9]], [])
    assert gzip.decompress(whole) == as_jsonl(ROWS[:9])
    path.write_bytes(whole + b"something else")
    with pytest.raises(InputError, match="gzip data is damaged or cut off: something else follows it"):
        rows_of(path)


def test_small_and_empty_members_are_read_together(tmp_path):
    (tmp_path / "rows").write_bytes(b"".join(gzip.compress(bytes([byte]), mtime=0) for byte in b"\xef\xbb\xbf[{}]"))
    assert detect_format(tmp_path / "rows") == "json"


@pytest.mark.parametrize("codec", CODECS)
def test_a_row_that_unfolds_to_many_megabytes_is_never_held(tmp_path, codec):
    path = tmp_path / "rows"
    bomb = b'{"text": "' + b"x" * (16 * 2**20) + b'"}\n'
    path.write_bytes(packed(as_jsonl(ROWS[:2]) + bomb + as_jsonl(ROWS[2:4]), codec))
    del bomb
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    texts, rejected = rows_of(path, max_row_bytes=2**20)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(texts), rejected) == (4, [(2, "row_too_large")])
    assert held < 12 * 2**20


def test_lines_of_rejected_rows_are_those_of_the_text(tmp_path):
    for kind, content, lines in (("jsonl", b"\n\n{}\n\nx\n", [3, 5]), ("csv", as_csv(ROWS[:3]), [2, 4])):
        path = tmp_path / kind
        path.write_bytes(gzip.compress(content, mtime=0))
        (piece,) = partition_file(path, format=kind, partition_bytes=1000).partitions
        (batch,) = read_rows(piece, schema="text", columns={}, max_row_bytes=1000)
        assert (batch.lines[0], batch.lines[-1]) == tuple(lines)


def test_a_packed_table_has_a_hint_to_unpack_it(tmp_path):
    (tmp_path / "rows").write_bytes(gzip.compress(b"PAR1" + bytes(50), mtime=0))
    with pytest.raises(InputError, match="holds parquet data inside gzip") as caught:
        detect_format(tmp_path / "rows")
    assert "unpack" in caught.value.hint


def test_an_empty_packed_file_holds_no_rows(tmp_path):
    (tmp_path / "rows").write_bytes(gzip.compress(b"", mtime=0))
    with pytest.raises(InputError, match="holds no rows"):
        detect_format(tmp_path / "rows")
