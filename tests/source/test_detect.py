import datetime as dt
import decimal
import gzip
import json
import re
import shlex
import shutil
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packer.errors import InputError
from packer.pipeline.plan.inputs import detected_schema
from packer.questions.schema_errors import schema_hint
from packer.source import detect as detect_module
from packer.source.detect import detect_format, first_rows, has_field
from packer.source.rows import InputFile

LINE = b'{"text": "a"}'


def write(tmp_path, content, name="rows.jsonl"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def lines(*rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (LINE, "jsonl"),
        (LINE + b"\r\n" + LINE, "jsonl"),
        (b"\xef\xbb\xbf\n \n" + LINE + b"\n", "jsonl"),
        (b'{"text": broken}\n' + LINE + b"\n", "jsonl"),
        (b"oops\n" + LINE + b"\n", "jsonl"),
        (b'{"text": "cut off', "jsonl"),
        (b'["a row that is an array"]\n' + LINE + b"\n", "jsonl"),
        (b"[" + LINE + b"]", "json"),
        (b"\xef\xbb\xbf [\n" + LINE + b",\n" + LINE + b"\n]\n", "json"),
        (b"[" + LINE + b"]\n\n", "json"),
        (json.dumps({"conversations": [{}, {"from": "human"}]}, indent=2).encode(), "json"),
        (b'{"text": "' + b"x" * 2**20 + b'"}\n' + LINE, "jsonl"),
        (gzip.compress(LINE, mtime=0), "jsonl"),
        (gzip.compress(b"[" + LINE + b"]", mtime=0), "json"),
        (b"PAR1" + bytes(20), "parquet"),
        (b"ARROW1\x00\x00", "arrow"),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00", "arrow"),
        (b'{"text": "' + b"m" * 247 + b'ustard"}\n', "jsonl"),  # "ustar" is where tar archives have it
    ],
)
def test_the_bytes_decide_the_format_whatever_the_name(tmp_path, name, content, expected):
    assert detect_format(write(tmp_path, content, name)) == expected


@pytest.mark.parametrize("content", [b"system,instruction,output\n,a,b\n", b'prompt\tcompletion\n"a\tb"\tc\n'])
def test_what_may_be_csv_by_another_name_is_refused_with_how_to_say_so(tmp_path, content):
    with pytest.raises(InputError, match="found text that is not JSON") as caught:
        detect_format(write(tmp_path, content, "rows"))
    assert "--set sources.format=csv" in (caught.value.hint or "")
    assert detect_format(write(tmp_path, content, "rows.csv")) == "csv"


def archive_of_rows(kind):
    """Return an archive of JSON lines. Those of a zip archive are not compressed: they look like rows."""
    with tempfile.TemporaryDirectory() as folder:
        rows = write(Path(folder), LINE * 3, "rows.jsonl")
        if kind == "zip":
            with zipfile.ZipFile(Path(folder, "rows.zip"), "w") as archive:
                archive.write(rows, "rows.jsonl")
            return Path(folder, "rows.zip").read_bytes()
        return Path(shutil.make_archive(f"{folder}/rows", kind, folder, "rows.jsonl")).read_bytes()


@pytest.mark.parametrize(
    ("content", "found", "hint"),
    [
        (b"BZh91AY&SY", "bzip2", "bunzip2 -k"),
        (b"\xfd7zXZ\x00....", "xz", "xz -dk"),
        ('{"text": "a"}'.encode("utf-16"), "UTF-16", "iconv"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a pointer of Git LFS", "git lfs pull"),
        (archive_of_rows("zip"), "a zip archive", "unzip "),
        (archive_of_rows("zip"), "a zip archive", "save the table as CSV"),
        (f"{ {'text': 'a'} }\n{ {'text': 'b'} }\n".encode(), "objects as Python prints them", "json.dumps"),
        (str([{"text": "a"}]).encode(), "objects as Python prints them", "json.dumps"),
        (archive_of_rows("tar"), "a tar archive", "tar -xf "),
        (archive_of_rows("gztar"), "a tar archive", "tar -xf "),
        (bytes(range(256)), "binary data", "JSON lines"),
        (b"question,answer\na,b\n", "text that is not JSON", "--set sources.format=csv"),
        (b'\xef\xbb\xbf\n"text"\r\na\r\n', "text that is not JSON", "--set sources.format=csv"),
        (b"Once upon a time\nthere was a file.\n", "text that is not JSON", "JSON lines"),
    ],
)
def test_a_file_that_is_neither_has_an_error_that_says_what_it_looks_like(tmp_path, content, found, hint):
    with pytest.raises(InputError, match=f"found .*{found}") as caught:
        detect_format(write(tmp_path, content))
    assert hint in caught.value.hint


def test_an_empty_file_has_no_format(tmp_path):
    with pytest.raises(InputError, match="holds no rows"):
        detect_format(write(tmp_path, b"\xef\xbb\xbf \n"))


TURNS = [{"role": "user", "content": "a"}]
SCHEMAS = [
    ({"messages": TURNS}, "messages"),
    ({"messages": TURNS, "text": "rendered"}, "messages"),
    ({"conversations": []}, "sharegpt"),
    ({"conversation": []}, "sharegpt"),
    ({"instruction": "a", "output": "b"}, "alpaca"),
    ({"query": "a", "response": "b"}, "alpaca"),
    ({"prompt": "a", "completion": "b"}, "completion"),
    ({"text": "a", "messages": None}, "text"),
    ({"messages": TURNS, "images": ["x.png"]}, "messages"),
    ({"conversations": [], "chosen": {"from": "gpt"}, "rejected": {"from": "gpt"}}, "preference"),
    ({"messages": TURNS, "chosen": TURNS, "rejected": TURNS}, "preference"),
    ({"prompt": "a", "chosen": "b", "rejected": "c", "completion": "d"}, "preference"),
    ({"prompt": "a", "completion": "b", "chosen": "c"}, "completion"),
    ({"prompt": "a", "chosen": "b"}, "preference"),
    ({"messages": TURNS, "chosen": "", "rejected": ""}, "messages"),
    ({"messages": TURNS, "chosen": True, "rejected": False}, "messages"),
    ({"messages": TURNS, "label": False}, "rated"),
    ({"messages": TURNS, "label": "sports"}, "messages"),
]


@pytest.mark.parametrize(("row", "expected"), SCHEMAS)
def test_fields_decide_the_schema(tmp_path, row, expected):
    assert detected_schema(write(tmp_path, lines(row)), format="jsonl", columns={}) == expected
    array = write(tmp_path, json.dumps([row], indent=1).encode())
    assert detected_schema(array, format="json", columns={}) == expected


@pytest.mark.parametrize("schema", ["messages", "sharegpt", "completion", "alpaca", "text"])
def test_a_pair_among_rows_of_another_schema_is_rejected_as_such(schema, refusal):
    assert refusal({"prompt": "a", "chosen": "b", "rejected": "c"}, schema)[0] == "preference"


def test_most_rows_decide(tmp_path):
    rows = [{"text": "a"}, {"messages": TURNS}, {"text": "b"}, 7, {"note": 1}]
    assert detected_schema(write(tmp_path, b"{broken\n" + lines(*rows)), format="jsonl", columns={}) == "text"


def test_a_row_too_long_has_no_vote_and_a_look_at_long_rows_stays_a_look(tmp_path, monkeypatch):
    monkeypatch.setattr(detect_module, "_SAMPLED_BYTES", 100)
    monkeypatch.setattr(detect_module, "_LONGEST_SAMPLED_BYTES", 100)
    rows = [{"prompt": "x" * 200, "completion": ""}, *[{"text": "x" * 40}] * 3, *[{"messages": TURNS}] * 9]
    assert detected_schema(write(tmp_path, lines(*rows)), format="jsonl", columns={}) == "text"


def test_columns_are_renamed_before_they_vote(tmp_path):
    path = write(tmp_path, lines({"q": "a", "a": "b", "text": "c"}))
    columns = {"instruction": "q", "output": "a"}
    assert detected_schema(path, format="jsonl", columns={}) == "text"
    assert detected_schema(path, format="jsonl", columns=columns) == "alpaca"
    assert detected_schema(path, format="jsonl", columns={"messages": "text"}) == "messages"


def test_a_column_that_no_row_has_is_named_with_those_there_are(tmp_path):
    path, columns = write(tmp_path, lines({"messages": TURNS, "id": 1})), {"messages": "mesages"}
    said = "`columns` takes 'messages' from `mesages`, but no sampled row has it; found: `messages`, `id`"
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        detected_schema(path, format="jsonl", columns=columns)
    assert caught.value.hint == "did you mean 'messages'?"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": TURNS}, "`messages`, which fit --schema messages; so does --schema auto"),
        ({"note": "a"}, "`note`; say which field is which: "),
    ],
)
def test_rows_that_do_not_fit_the_schema_named_say_which_they_would(tmp_path, row, said):
    path = write(tmp_path, lines(row))
    assert said in schema_hint([*first_rows(path, "jsonl", {})], "alpaca", {})


def test_the_hint_for_a_file_of_several_schemas_says_so(tmp_path):
    """That `--schema auto` fits the others, too, led to the same build."""
    path = write(tmp_path, lines({"messages": TURNS}, {"instruction": "a", "output": "b"}))
    hint = schema_hint([*first_rows(path, "jsonl", {})], detected_schema(path, format="jsonl", columns={}), {})
    assert "here messages; other first rows fit --schema alpaca: give them files of their own" in hint


FOREIGN = {
    "timestamp": pa.array([0], pa.timestamp("us")),
    "date": pa.array([0], pa.date32()),
    "duration": pa.array([0], pa.duration("s")),
    "decimal": pa.array([decimal.Decimal(1)], pa.decimal128(5, 2)),
    "bytes": pa.array([b"x"]),
    "infinite": pa.array([float("inf")]),
    "embedding": pa.array([[float("inf")]], pa.list_(pa.float64(), 1)),
    "places": pa.array([{"at": b"x"}]),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_hint_is_made_of_the_other_columns_of_a_table(tmp_path, kind):
    """Every row was refused for its timestamp, and the hint that names columns was lost."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"q": ["a"], "question": ["a"], "solution": ["b"], "at": FOREIGN[kind]}), path)
    with pytest.raises(InputError, match="match no schema") as caught:
        detected_schema(path, format="parquet", columns={})
    assert "--columns instruction=question,output=solution" in caught.value.hint
    (row,) = first_rows(path, "parquet", {}, every_column=True)
    assert {name for name, value in row.items() if value is not None} == {"q", "question", "solution"}


def test_a_field_in_json_text_is_found_beside_a_column_that_no_row_can_be_read_with(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"prompt": [b"x"], "completion": ["b"], "meta": ['{"lang": "en"}']}), path)
    file = InputFile(
        name="rows", path=path, split="train", format="parquet", schema="text", columns={}, limit=None, max_row_bytes=99
    )
    assert [has_field(file, name) for name in ("meta.lang", "completion", "meta.other")] == [True, True, False]


def test_a_hint_is_made_of_messages_with_times_too(tmp_path):
    turns = [*TURNS, {"role": "assistant", "content": "b"}]
    said = [message | {"at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)} for message in turns]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([{"dialog": said, "photos": [{"bytes": b"x"}]}]), path)
    timed = [message | {"at": "2024-01-01T00:00:00+00:00"} for message in turns]
    assert [*first_rows(path, "parquet", {}, every_column=True)] == [{"dialog": timed}]
    with pytest.raises(InputError, match="match no schema") as caught:
        detected_schema(path, format="parquet", columns={})
    assert "--columns messages=dialog" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("rows.jsonl", [TURNS, TURNS], 'rows are lists; give them a name, as in {"messages": [...]}'),
        ("rows.json", [TURNS, TURNS], "rows are lists"),
        ("rows.jsonl", [{"instruction": "a", "input": float("nan")}], "the first: not_json, "),
        ("rows.jsonl", [{"instruction": "a", "input": float("nan")}], "to write one object per line: jq -c . "),
        ("rows.jsonl", [[1]], "expected one object per row"),
    ],
)
def test_the_hint_for_rows_that_are_no_objects_says_what_the_first_is(tmp_path, name, content, hint):
    """XTuner's rows are lists of messages, and what Python writes for a missing number is no JSON."""
    is_array = name == "rows.json"
    data = json.dumps(content) if is_array else "".join(json.dumps(row) + "\n" for row in content)
    with pytest.raises(InputError, match="none of the sampled rows is a JSON object") as caught:
        detected_schema(write(tmp_path, data.encode()), format=name.removeprefix("rows."), columns={})
    assert hint in caught.value.hint


@pytest.mark.parametrize("name", ["data", "a b's"])
def test_rows_in_a_field_of_one_object_have_a_hint_that_takes_them_out(tmp_path, name):
    path = write(tmp_path, json.dumps({"version": 1, name: [{"messages": TURNS}] * 2}).encode(), "rows.json")
    with pytest.raises(InputError, match="match no schema") as caught:
        detected_schema(path, format="json", columns={})
    command = caught.value.hint.partition(": jq")[2]
    assert shlex.split(command) == ["-c", f".{json.dumps(name)}[]", str(path), ">", f"{path.stem}_lines.jsonl"]


def test_a_table_of_bare_carriage_returns_is_reported_as_such(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"instruction,output\rhi,there\ra,b\r")
    with pytest.raises(InputError, match="a bare carriage return") as raised:
        detected_schema(path, format="csv", columns={})
    assert raised.value.hint == r"end lines with newlines: tr '\r' '\n'"
