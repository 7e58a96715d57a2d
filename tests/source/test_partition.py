import hashlib
import itertools
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import InputError
from packer.source import file_bytes as chunks_module
from packer.source.file_bytes import text_stream
from packer.source.partition import partition_file
from packer.source.rows import read_rows
from packer.source.text_rows import split_lines

MARK = b"\xef\xbb\xbf"


def oracle(content, limit=None):
    """Rows of a file with the nominal start of each: (first byte of its line, the row without blanks)."""
    rows, position = [], 0
    for line in content.split(b"\n"):
        text = line.removeprefix(MARK) if position == 0 else line
        if text.strip(b" \t\r\n"):
            rows.append((position, text.strip(b" \t\r\n")))
        position += len(line) + 1
    return rows[:limit]


def rows_of(content, partition):
    piece = content[partition.start : partition.stop]
    assert xxhash.xxh3_128_hexdigest(piece) == partition.xxh3
    if partition.start == 0:
        piece = piece.removeprefix(MARK)
    return [row for row in (line.strip(b" \t\r\n") for line in piece.split(b"\n")) if row]


def cut(tmp_path, content, **options):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    return partition_file(path, **{"format": "jsonl", "partition_bytes": 10} | options)


line = st.one_of(
    st.sampled_from([b"", b" ", b"\r", b"\t \r", b"{}", b'{"a": 1}\r', b"  x", b"\x0b"]),
    st.binary(min_size=1, max_size=30).map(lambda data: data.replace(b"\n", b"-")),
)


def grouped(rows, partition_bytes):
    """The rows of each partition: nominal cuts one after another, each as far as the size of its kind."""
    unit = max(1, partition_bytes // 8)
    sizes = itertools.chain([unit] * 8, [2 * unit] * 8, [4 * unit] * 8, itertools.repeat(partition_bytes))
    groups, end = [], 0
    opened = False
    for start, row in rows:
        while start >= end:
            end += next(sizes)
            opened = False
        if not opened:
            groups.append([])
            opened = True
        groups[-1].append(row)
    return groups


contents = st.builds(
    lambda mark, lines, end: mark + b"\n".join(lines) + end,
    st.sampled_from([b"", MARK]),
    st.lists(line, max_size=20),
    st.sampled_from([b"", b"\n", b"\r\n"]),
)


@given(
    content=contents,
    partition_bytes=st.integers(1, 60),
    limit=st.none() | st.integers(1, 12),
    read_bytes=st.integers(3, 50),
)
def test_partitions_tile_the_rows_of_any_file_once_and_in_order(
    tmp_path_factory, content, partition_bytes, limit, read_bytes
):
    expected = oracle(content, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks_module, "READ_BYTES", read_bytes)
        options = {"partition_bytes": partition_bytes, "limit": limit}
        if not expected:
            with pytest.raises(InputError, match="holds no rows"):
                cut(tmp_path_factory.getbasetemp(), content, **options)
            return
        found = cut(tmp_path_factory.getbasetemp(), content, **options)
        read = [
            [batch.num_rows for batch in read_rows(piece, schema="text", columns={}, max_row_bytes=10**6, batch_rows=3)]
            for piece in found.partitions
        ]
    groups = grouped(expected, partition_bytes)
    assert [rows_of(content, piece) for piece in found.partitions] == groups
    assert [piece.num_rows for piece in found.partitions] == [len(group) for group in groups]
    assert [sum(batches) for batches in read] == [len(group) for group in groups]
    assert all(max(batches) <= 3 for batches in read)
    first_rows = [0, *itertools.accumulate(len(group) for group in groups)]
    assert [piece.first_row for piece in found.partitions] == first_rows[:-1]
    assert found.num_rows == len(expected)
    assert found.num_bytes == len(content)
    assert found.sha256 == hashlib.sha256(content).hexdigest()


@given(
    rows=st.lists(st.binary(min_size=1, max_size=30).map(lambda data: b"x" + data.replace(b"\n", b"-")), min_size=1),
    added=st.lists(st.binary(max_size=30), min_size=1, max_size=5),
    partition_bytes=st.integers(1, 60),
)
def test_appending_changes_no_partition_but_the_last(tmp_path_factory, rows, added, partition_bytes):
    content = b"\n".join(rows) + b"\n"
    folder = tmp_path_factory.getbasetemp()
    before = cut(folder, content, partition_bytes=partition_bytes).partitions
    after = cut(folder, content + b"\n".join(added), partition_bytes=partition_bytes).partitions
    assert len(before) >= 1
    assert after[: len(before) - 1] == before[:-1]


@given(content=contents, max_row_bytes=st.integers(0, 20), step=st.integers(1, 15))
def test_lines_do_not_depend_on_how_the_file_is_read(content, max_row_bytes, step):
    expected = [
        (text.strip(b" \t\r\n") if len(text) <= max_row_bytes else None, number)
        for number, text in enumerate(content.split(b"\n"), 1)
        if text.strip(b" \t\r\n")
    ]
    pieces = [content[i : i + step] for i in range(0, len(content), step)]
    stream = text_stream(Path("f"), iter(pieces), None, at_start=False)
    assert list(split_lines(stream, max_row_bytes=max_row_bytes)) == expected


def test_the_worked_example_of_the_docstring(tmp_path):
    content = b"abc\n" + b"x" * 8 + b"\n" + b"y" * 11 + b"\n" + b"z\n"
    found = [
        (piece.start, piece.stop, piece.num_rows) for piece in cut(tmp_path, content, partition_bytes=80).partitions
    ]
    assert found == [(0, 13, 2), (13, 25, 1), (25, 27, 1)]


def test_a_large_file_has_partitions_of_the_whole_size(tmp_path):
    content = b"".join(b"%9d\n" % i for i in range(20_000))
    found = cut(tmp_path, content, partition_bytes=8000).partitions
    sizes = [piece.stop - piece.start for piece in found]
    assert sizes == [1000] * 8 + [2000] * 8 + [4000] * 8 + [8000] * 18


def test_an_array_is_one_partition_of_the_whole_file(tmp_path):
    content = MARK + b' [{"a": 1},\n {"a": "]"}, 3]\n'
    found = cut(tmp_path, content, format="json", limit=2)
    (piece,) = found.partitions
    assert (piece.start, piece.stop, piece.first_row, piece.num_rows) == (0, len(content), 0, 2)
    assert piece.xxh3 == xxhash.xxh3_128_hexdigest(content)
    assert found.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        *(("jsonl", content, "holds no rows") for content in (b"", MARK, b"\n \r\n\n")),
        *(("json", content, "holds no rows") for content in (b"", b"[]", b" [ \n] ")),
        *(("json", content, "is not JSON") for content in (b'[{"a": 1}', b"[1] 2", b"7", b'{"a": "', b"[1]]")),
        ("json", b'{"a": 1}\n{"a": 2}', "is not JSON"),
    ],
)
def test_a_file_without_rows_and_a_broken_array_are_errors_with_a_hint(tmp_path, kind, content, said):
    with pytest.raises(InputError, match=said) as caught:
        cut(tmp_path, content, format=kind)
    assert caught.value.hint


def test_a_file_that_cannot_be_read_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        partition_file(tmp_path / "gone.jsonl", format="jsonl", partition_bytes=10)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        partition_file(tmp_path, format="jsonl", partition_bytes=10)
