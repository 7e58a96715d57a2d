import gzip
import json
import random

import pytest

from packer.errors import InputError
from packer.source import file_bytes as chunks_module
from packer.source import rows as rows_module
from packer.source.decode import Refused, decode_json
from packer.source.partition import partition_file
from packer.source.rows import read_rows
from packer.source.schema import read_plain_rows, read_row


def partitions(tmp_path, content, name="rows.jsonl", **options):
    path = tmp_path / name
    path.write_bytes(content)
    return partition_file(path, **{"format": "jsonl", "partition_bytes": 2**20} | options).partitions


def read_all(partition, **options):
    return list(read_rows(partition, **{"schema": "text", "columns": {}, "max_row_bytes": 1000} | options))


HALF = "; an escape may stand for half of a surrogate pair"

BAD_ROWS = [
    (b'{"text": "a\xff"}', "not_utf8", "invalid UTF-8 at byte 11"),
    (b'{"text": "a", "other": "\xff"}', "not_utf8", "invalid UTF-8 at byte 24"),
    (rb'{"text": "\ud800"}', "not_json", f"ends too early, at byte 18{HALF}"),
    (rb'{"text": "\udc00\ud800"}', "not_json", f"invalid utf-16 surrogate pair near byte 16{HALF}"),
    (
        rb'{"text": "\ud83d", "text": "a"}',
        "not_json",
        f"unexpected end of escaped utf-16 surrogate pair near byte 16{HALF}",
    ),
    (rb'{"text": "\ud83d\ude00", "score": NaN}', "not_json", f"invalid character near byte 34{HALF}"),
    (b'{"text": "a"', "not_json", "ends too early, at byte 12"),
    (b'{"text": "a"} x', "not_json", "trailing characters near byte 15"),
    (b'{"text": "a\x01"}', "not_json", "invalid character near byte 11"),
    (b'{"text": "a", "score": NaN}', "not_json", "invalid character near byte 23"),
    (b'{"text": "a", "deep": ' + b"[" * 256 + b"]" * 256 + b"}", "not_json", "nested deeper than 256 levels"),
    (b'{"text": ' + b"[" * 256 + b"]" * 256 + b', "text": "a"}', "not_json", "nested deeper than 256 levels"),
    (b'{"text": "a", "deep": ' + b"[" * 300, "not_json", "nested deeper than 256 levels"),
    (b'{"text": "a", "score": 1e999}', "wrong_type", "a number is out of range"),
    (b'{"text" : "a", "\\u0074ext" : 7}', "wrong_type", "expected `str`, got `int` at $.text"),
    (b'["text"]', "wrong_type", "expected `object`, got `array`"),
    (b"7", "wrong_type", "expected `object`, got `int`"),
    (b'{"text": 7}', "wrong_type", "expected `str`, got `int` at $.text"),
    (b'{"txt": "a"}', "unknown_schema", "no field `text` or `segments`, which schema text needs"),
    (b'{"text": null}', "unknown_schema", "no field `text` or `segments`, which schema text needs"),
    (b'{"text": ""}', "empty", "`text` is empty"),
    (b'{"text": "' + b"x" * 1000 + b'"}', "row_too_large", "more than rows.max_bytes, 1000 bytes"),
]


BAD_LINES = [("jsonl", *bad) for bad in BAD_ROWS]
BAD_ELEMENTS = [
    ("json", row, code, reason)
    for row, code, reason in BAD_ROWS
    if row.count(b"[") + row.count(b"{") == row.count(b"]") + row.count(b"}")  # else the array is broken as a whole
]


@pytest.mark.parametrize(("kind", "row", "code", "reason"), BAD_LINES + BAD_ELEMENTS)
def test_a_bad_row_is_rejected_with_its_reason_and_spoils_no_other(tmp_path, kind, row, code, reason):
    good = b'{"text": "good"}'
    content = good + b"\n" + row + b"\n" + good if kind == "jsonl" else b"[" + good + b"," + row + b"," + good + b"]"
    (partition,) = partitions(tmp_path, content, format=kind)
    (batch,) = read_all(partition)
    assert [(sample.row, sample.text) for sample in batch.samples] == [(0, "good"), (2, "good")]
    assert [(rejected.row, rejected.code, rejected.reason) for rejected in batch.rejections] == [(1, code, reason)]
    assert batch.num_rows == 3


def test_what_only_looks_like_a_key_twice_is_none(tmp_path):
    rows = [
        {"text": '"a": 1, "a": 2', "a": {"a": [{"a": 1}, {"a": 2}]}},
        {"text": '\\":"', "b\\": '\\\\":\\":', '"': ' :"', "": ":", ":": '":'},
        {"text": "a :b", "text ": 1, " text": 2, "Text": 3},
    ]
    styles = [(",", ":"), (", ", ": "), (" ,\t", "\r :")]
    content = b"\n".join(json.dumps(row, separators=style).encode() for row in rows for style in styles)
    (partition,) = partitions(tmp_path, content)
    (batch,) = read_all(partition)
    assert [sample.text for sample in batch.samples] == [row["text"] for row in rows for _ in styles]


@pytest.mark.parametrize("partition_bytes", [1, 64, 400, 2**20])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_every_row_knows_its_line(tmp_path, monkeypatch, partition_bytes, mark):
    """Blank lines, those that a partition begins or ends with too, and lines longer than a read."""
    monkeypatch.setattr(chunks_module, "READ_BYTES", 11)
    chance = random.Random(partition_bytes)
    lines = [
        chance.choice((b"", b" ", b"\r", b"\t \r", b'{"text": "a"}', b'{"text": "a"}\r', b"x" * 30)) for _ in range(200)
    ]
    for ending in (b"", b"\n"):
        expected = [number for number, line in enumerate(lines, 1) if line.strip(b" \t\r")]
        found = []
        for partition in partitions(tmp_path, mark + b"\n".join(lines) + ending, partition_bytes=partition_bytes):
            found += [line for batch in read_all(partition, batch_rows=7) for line in batch.lines]
        assert found == expected


def test_rows_are_lines_also_where_values_are_not(tmp_path):
    """A line with two values beside a blank one, and a value in two lines beside two in one, are as many as lines."""
    plain = b'{"text": "a"}\n' * 20
    content = plain + b'{"text": "b"} {"text": "c"}\n\n' + plain + b'{"m": [1,\n{}]}\n{"m": 1}, {"m": 2}\n' + plain
    (partition,) = partitions(tmp_path, content)
    (batch,) = read_all(partition)
    assert [(each.row, each.code) for each in batch.rejections] == [(n, "not_json") for n in (20, 41, 42, 43)]
    assert batch.lines == (*range(1, 22), *range(23, 66))


def test_a_row_that_is_too_deep_or_too_large_is_told_from_the_rows_around_it(tmp_path):
    around = b'{"text": "a", "m": [[]]}\n' * 100
    deep = b'{"text": "a", "m": ' + b"[" * 256 + b"]" * 256 + b"}\n"
    large = b'{"text": "' + b"w" * 989 + b'"}\n'
    (partition,) = partitions(tmp_path, around + deep + around + large + around)
    (batch,) = read_all(partition)
    assert [(each.row, each.code) for each in batch.rejections] == [(100, "not_json"), (201, "row_too_large")]


MAYBE_MORE = [
    *(
        {"text": text}
        for text in ("", " \n", None, 5, ["a"], "an <img>a.png</img>", "an <img>", "[1]", "é", "<image>\nb")
    ),
    *({"text": "a", name: value} for name, value in (("id", 7), ("id", ""), ("id", True), ("uuid", "u"))),
    *({"text": "a", "m": log} for log in ({"truncated": True}, '{"finish_reason": "length"}', "[", {"n": [1]}, None)),
    {"text": "a", "finish_reason": "length"},
    {"text": "a", "images": ["a.png"]},
    {"text": "a", "kto_tag": True},
    {"text": "a", "weight": 0},
    {"text": "a", "segments": "["},
    {"text": "a", "conversations": [{"toolUse": 5}]},
    {"text": "a", "messages": [{"role": "user", "content": "q"}], "response": {"content": "b"}},
    {"text": "a", "response": {"choices": [{"message": {"content": "b"}}]}, "request": {"messages": []}},
    {"text": "a", "prompt": "q", "response_a": "b", "response_b": "c", "winner": "response_a"},
    {"text": "a"} | {f"k{n}": n for n in range(70)},
    *(
        {"prompt": "p", "completion": text}
        for text in ("", " ", None, 5, "a <img>b.png</img>", "c", '[{"role": "user"')
    ),
    *(
        {"prompt": text, "completion": "c"}
        for text in (
            "",
            None,
            5,
            "a <img>b.png</img>",
            "<image>",
            "<video>?",
            "an <audio> tag",
            ' [{"role": "user", "content": "q"}]',
            '[{"role": "user"',
        )
    ),
    {"prompt": [{"role": "user", "content": "q"}], "completion": "a"},
    *({"prompt": "p", "completion": "c", name: "x"} for name in ("system", "tools", "functions", "reasoning", "id")),
    {"prompt": "p", "completion": "c", "chat_template_kwargs": "{"},
    ["a"],
    "a",
]


@pytest.mark.parametrize("schema", ["text", "completion"])
def test_rows_that_are_read_together_are_the_samples_that_each_is_alone(schema):
    values = [value for each in MAYBE_MORE for value in (each, {"text": "a"}, {"prompt": "p", "completion": "c"})]
    together = read_plain_rows(values, 7, schema=schema, columns={}, roles={})
    assert sum(sample is not None for sample in together) > len(MAYBE_MORE)
    for number, (value, sample) in enumerate(zip(values, together, strict=True), 7):
        if sample is not None:
            assert sample == read_row(value, number=number, schema=schema, columns={})
    for options in ({"columns": {"text": "body"}, "roles": {}}, {"columns": {}, "roles": {"text": "user"}}):
        assert set(read_plain_rows(values, 7, schema=schema, **options)) == {None}


def test_rows_of_an_array_have_no_lines(tmp_path):
    (partition,) = partitions(tmp_path, b'[\n{"text": "a"}]', format="json")
    assert [batch.lines for batch in read_all(partition)] == [None]


def test_rows_of_a_file_that_changed_are_an_error(tmp_path):
    (partition,) = partitions(tmp_path, b'{"text": "a"}\n{"text": "b"}')
    partition.path.write_bytes(b'{"text": "a"} {"text": "b"}')
    with pytest.raises(InputError, match="changed while being read: expected 2 rows, found 1"):
        read_all(partition)


@pytest.mark.parametrize(
    "row",
    [
        b'{"text": "a", "deep": ' + b"[" * 255 + b"]" * 255 + b"}",
        json.dumps({"text": '[{"\\"' * 200, "rest": [{}] * 300}).encode(),
    ],
)
def test_256_levels_and_brackets_within_strings_are_not_too_deep(tmp_path, row):
    (partition,) = partitions(tmp_path, row)
    (batch,) = read_all(partition, max_row_bytes=10**5)
    assert [sample.text for sample in batch.samples] == [json.loads(row)["text"]]


@pytest.mark.parametrize("ending", ["", "\\"])
def test_a_row_that_is_cut_off_within_code_is_told_by_its_end_at_once(ending):
    """It has a quote in every line; the time of a search that begins anew at each of them would be counted in hours."""
    row = json.dumps({"text": 'print({"a": [1, 2\n' * 200_000})[:-2] + ending
    with pytest.raises(Refused, match=f"ends too early, at byte {len(row)}"):
        decode_json(row.encode())


def test_rows_are_numbered_from_the_start_of_their_partition_across_batches(tmp_path):
    content = b"".join(b'{"text": "%d"}\n' % i for i in range(100))
    cut = partitions(tmp_path, content, partition_bytes=600)
    assert len(cut) == 8 + 6
    seen = []
    for partition in cut:
        batches = read_all(partition, batch_rows=3)
        assert len(batches) > 1
        assert [batch.num_rows for batch in batches[:-1]] == [3] * (len(batches) - 1)
        samples = [sample for batch in batches for sample in batch.samples]
        assert [sample.row for sample in samples] == list(range(partition.num_rows))
        assert [int(sample.text) for sample in samples] == [partition.first_row + sample.row for sample in samples]
        seen += samples
    assert len(seen) == 100


def test_batches_of_large_rows_end_early(tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "BATCH_BYTES", 100)
    (partition,) = partitions(tmp_path, b'{"text": "%s"}\n' % (b"x" * 48) * 10)
    assert [batch.num_rows for batch in read_all(partition)] == [2] * 5


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv"])
def test_a_limit_far_from_the_end_of_a_file_is_no_change_of_the_file(tmp_path, monkeypatch, kind, packed):
    monkeypatch.setattr(chunks_module, "READ_BYTES", 16)
    row = '{"text": "a"}'
    content = {"jsonl": f"{row}\n" * 50, "json": f"[{', '.join([row] * 50)}]", "csv": "text,n\n" + "a,1\n" * 50}[kind]
    (partition,) = partitions(tmp_path, packed(content.encode()), format=kind, limit=3)
    assert [batch.num_rows for batch in read_all(partition)] == [3]


def test_columns_rename_and_hide(tmp_path):
    (partition,) = partitions(tmp_path, b'{"body": "a", "text": "old", "images": ["x"]}')
    (batch,) = read_all(partition, columns={"text": "body", "images": None})
    assert [sample.text for sample in batch.samples] == ["a"]


@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_a_file_that_shrank_since_it_was_cut_is_an_error(tmp_path, kind):
    content = b'{"text": "a"}\n{"text": "b"}' if kind == "jsonl" else b'[{"text": "a"},{"text": "b"}]'
    (partition,) = partitions(tmp_path, content, format=kind)
    partition.path.write_bytes(content[:10])
    with pytest.raises(InputError, match="changed while being read"):
        read_all(partition)
