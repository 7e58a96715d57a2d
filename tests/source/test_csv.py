"""CSV and TSV: cells are what Python's own reader says, whatever stands in them."""

import csv
import gzip
import io
import shlex
import subprocess
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import InputError
from packer.pipeline.plan.inputs import detected_schema
from packer.source import file_bytes as chunks_module
from packer.source import text_rows
from packer.source.detect import detect_format
from packer.source.file_bytes import delimiter_of, text_stream
from packer.source.partition import partition_file
from packer.source.rows import read_rows
from packer.source.text_rows import CsvFile

cells = st.text(alphabet='a",;\t \n', max_size=8)
tables = st.lists(st.lists(cells, min_size=2, max_size=3), max_size=6)


def pieces(content, step):
    return text_stream("f", (content[i : i + step] for i in range(0, len(content), step)), None)


def begins(text):
    """Line and text of every record, character by character, as far as all quotes close."""
    records, line, start, record, state = [], 1, 1, "", "start"
    for character in text:
        if character == "\n" and state != "quoted":
            records.append((start, record))
            record, state, start = "", "start", line + 1
        else:
            record += character
            if state == "quoted":
                state = "closing" if character == '"' else "quoted"
            elif character == '"' and state in {"start", "closing"}:
                state = "quoted"
            else:
                state = "start" if character == "," else "plain"
        line += character == "\n"
    return [*records, (start, record)], state != "quoted"


def values(content, *, kind="csv", columns=None, max_row_bytes=1000, step=2**20):
    rows = CsvFile("rows.csv", pieces(content, step), kind).rows(columns or {}, max_row_bytes)
    return [
        (row.line, row.content if isinstance(row.content, dict) else (row.content.code, row.content.reason))
        for row in rows
    ]


@given(
    table=tables,
    step=st.integers(1, 30),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    crlf=st.booleans(),
)
def test_what_python_writes_is_read_as_it_was(table, step, quoting, crlf):
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=quoting, lineterminator="\r\n" if crlf else "\n")
    writer.writerows([["a", "b", "c"], *table])
    found = [value for _, value in values(text.getvalue().encode(), step=step)]
    expected = [
        dict(zip("abc", row, strict=True)) if len(row) == 3 else ("wrong_type", "the header has 3 columns, the row 2")
        for row in table
    ]
    assert found == expected


@given(text=st.text(alphabet='ab",\n', max_size=30), step=st.integers(1, 10))
def test_records_and_cells_are_those_of_pythons_reader_however_the_quotes_stand(text, step):
    """Quotes inside of a cell, text behind a closing quote: the same readings, except where nothing closes a quote."""
    expected = [
        dict(zip(("h", "h2"), row, strict=True)) if len(row) == 2 else f"the header has 2 columns, the row {len(row)}"
        for row in csv.reader(io.StringIO(text, newline=""))
        if row
    ]
    try:
        rows = [*CsvFile("x", pieces(b"h,h2\n" + text.encode(), step), "csv").rows({}, 99)]
    except InputError:
        assert not begins(text)[1]
        return
    assert [row.content if isinstance(row.content, dict) else row.content.reason for row in rows] == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@given(
    header=st.sampled_from(["text", "text,n", '"te\nxt",n']),
    before=st.text(alphabet=" \t\n", max_size=12).map("{}\n".format),
    text=st.text(alphabet='a", \n', max_size=40),
    end=st.sampled_from(["\n", "\r\n"]),
    packed=st.booleans(),
    mark=st.booleans(),
    read_bytes=st.integers(8, 40),
    max_row_bytes=st.integers(1, 30),
    limit=st.none() | st.integers(1, 4),
)
def test_every_record_is_a_row_with_its_line_however_it_is_read(
    folder, header, before, text, end, packed, mark, read_bytes, max_row_bytes, limit
):
    """Rows counted, rows read and their lines agree: blank lines, quoted ones, borders of reads, rows too large."""
    records, closed = begins(before + header + "\n" + text)
    if not closed:
        return
    blank = "" if header == "text" else " \t"
    (named, *rest) = [(line, record) for line, record in records if record.strip(" \t")]
    expected = [(line, record) for line, record in records if line > named[0] and record.strip(blank)][:limit]
    content = ("\ufeff" * mark + before + header + "\n" + text).replace("\n", end).encode()
    path = folder / "rows.csv"
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks_module, "READ_BYTES", read_bytes)
        if not expected:
            assert not rest
            with pytest.raises(InputError, match="holds no rows"):
                partition_file(path, format="csv", partition_bytes=1000)
            return
        (piece,) = partition_file(path, format="csv", partition_bytes=1000, limit=limit).partitions
        batches = list(read_rows(piece, schema="text", columns={}, max_row_bytes=max_row_bytes))
    assert [line for batch in batches for line in batch.lines] == [line for line, _ in expected]
    assert sum(batch.num_rows for batch in batches) == len(expected)
    assert sum(len(batch.samples) + len(batch.rejections) for batch in batches) == len(expected)


def test_blank_lines_of_more_than_a_read_are_no_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks_module, "READ_BYTES", 64)
    monkeypatch.setattr(text_rows, "READ_BYTES", 64)
    for blank in (b" " * 200 + b"\n", b"\r\n" * 100, b"\n" * 200):
        path = tmp_path / "rows.csv"
        path.write_bytes(blank + b"text,n\n" + blank + b"a,1\n" + blank)
        (piece,) = partition_file(path, format="csv", partition_bytes=1000).partitions
        (batch,) = read_rows(piece, schema="text", columns={}, max_row_bytes=100)
        assert [sample.text for sample in batch.samples] == ["a"]
        assert [*batch.lines] == [2 * blank.count(b"\n") + 2]


def test_a_row_that_is_too_large_is_one_bad_row():
    content = b'text\nshort\n"' + b"long,\n" * 100 + b'"\nshort\n'
    found = values(content, max_row_bytes=50, step=7)
    assert found == [
        (2, {"text": "short"}),
        (3, ("row_too_large", "more than rows.max_bytes, 50 bytes")),
        (104, {"text": "short"}),
    ]


def test_a_record_that_goes_on_for_ever_is_an_error_that_says_where_it_begins(monkeypatch):
    monkeypatch.setattr(text_rows, "MAX_RECORD_BYTES", 1000)
    endless = chain([b'text\nshort\n"never closed\n'], repeat(b"more\n" * 100, 1000))
    with pytest.raises(InputError, match="the record of line 3 has more than 1,000 bytes"):
        list(CsvFile("x", text_stream("x", endless, None), "csv").rows({}, 50))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (
            b'a,b\n1,"2\r"\n1\r,2\n',
            [{"a": "1", "b": "2\r"}, ("wrong_type", "a bare carriage return outside of quotes")],
        ),
        (b"text\na\xff\nb\n", [("not_utf8", "invalid UTF-8 at byte 1"), {"text": "b"}]),
    ],
)
def test_a_bare_carriage_return_or_a_row_that_is_no_utf8_is_one_bad_row(content, found):
    assert values(content) == [*enumerate(found, 2)]


def test_cells_are_texts_except_for_labels_and_media():
    content = b'chat,label,images,text\n"[{""role"": ""user""}]",True,[],"[1]"\n,no,x.png,\n,no,False,\n,no,0.0,\n'
    assert [value for _, value in values(content, columns={"messages": "chat"})] == [
        {"chat": '[{"role": "user"}]', "label": True, "images": None, "text": "[1]"},
        {"chat": "", "label": "no", "images": "x.png", "text": ""},
        *([{"chat": "", "label": "no", "images": None, "text": ""}] * 2),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no rows"),
        (b" \n\n", "holds no rows"),
        (b"a,b,a\n1,2,3\n", "has more than one column `a`"),
        (b'a,b\n1,2\n3,"4\n5,6\n', "a quote that opens in the record of line 3 is never closed"),
        (b"\xff,b\n", "its header has invalid UTF-8"),
        (b"x" * 2**21, "its header is longer than 1,048,576 bytes"),
    ],
)
def test_a_file_that_is_no_csv_is_one_error_that_says_where(content, said):
    with pytest.raises(InputError, match=said) as caught:
        values(content)
    assert caught.value.hint


def test_a_header_in_another_encoding_has_the_command_that_rewrites_the_file(tmp_path):
    """Without the encoding that it is in, iconv takes the file for UTF-8, too."""
    path = tmp_path / "in rows.csv"
    path.write_bytes("größe,b\n".encode("cp1252"))
    with pytest.raises(InputError, match="its header has invalid UTF-8") as caught:
        detected_schema(path, format="csv", columns={})
    command = caught.value.hint.removeprefix("rewrite it as UTF-8: ").replace("ENCODING", "cp1252")
    assert subprocess.run(shlex.split(command), capture_output=True, check=True).stdout == "größe,b\n".encode()


@pytest.mark.parametrize(
    ("header", "delimiter"),
    [(b"a,b\n", ","), (b"a;b,c;d\n", ";"), (b'"a,b,c"\td\n', "\t"), (b"text\n", ","), (b"a|b\r\n", "|")],
)
def test_the_header_shows_the_delimiter(header, delimiter):
    assert delimiter_of(header) == delimiter


@pytest.mark.parametrize(("name", "kind"), [("rows.csv", "csv"), ("rows.tsv", "tsv"), ("rows.CSV", "csv")])
def test_a_name_says_that_a_single_column_is_csv(tmp_path, name, kind):
    (tmp_path / name).write_bytes(b"\xef\xbb\xbftext\r\nonce upon a time\r\n")
    assert detect_format(tmp_path / name) == kind
    assert detected_schema(tmp_path / name, format=kind, columns={}) == "text"


def test_a_header_of_very_many_columns_is_read_at_once(tmp_path):
    """To compare each of the 120,000 with all before it would take minutes."""
    names = [f"c{number}" for number in range(120_000)]
    (tmp_path / "wide.csv").write_text(f"text,{','.join(names)}\na{',' * len(names)}\n")
    with (tmp_path / "wide.csv").open("rb") as stream:
        found = CsvFile(tmp_path / "wide.csv", stream, "csv").names
    assert found == ("text", *names)
    (tmp_path / "wide.csv").write_text(f"text,{','.join(names)},c7,c5\n")
    with (tmp_path / "wide.csv").open("rb") as stream, pytest.raises(InputError, match="more than one column `c5`"):
        CsvFile(tmp_path / "wide.csv", stream, "csv")
