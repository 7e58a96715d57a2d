"""Parquet and Arrow: rows mean what the same rows of JSON lines mean, whatever the types and whatever is broken."""

import csv
import datetime as dt
import io
import json
import os
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from read_files import read_file
from written_formats import as_arrow, as_jsonl, as_parquet

from packer.errors import InputError
from packer.pipeline.plan.inputs import detected_schema
from packer.source import tables as tables_module
from packer.source.detect import detect_format
from packer.source.partition import partition_file
from packer.source.rows import InputFile, read_rows

MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
TURNS = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def parquet_of(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def parquet_or_none(table):
    """None only of views, which older pyarrows do not write."""
    try:
        return parquet_of(table)
    except pa.ArrowNotImplementedError:
        assert "view" in str(table.schema)
        return None


def arrow_of(table, new=pa.ipc.new_stream, batch_rows=2):
    sink = io.BytesIO()
    with new(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return sink.getvalue()


def read(path, **options):
    """Every row of a file: its sample, or code and reason."""
    return read_file(path, **{"max_row_bytes": 2**20, **options}).rows


def both(tmp_path, table):
    """The rows of a table as either format reads them, where this pyarrow writes its types to both."""
    (tmp_path / "t.arrow").write_bytes(arrow_of(table))
    found = read(tmp_path / "t.arrow")
    if (content := parquet_or_none(table)) is not None:
        (tmp_path / "t.parquet").write_bytes(content)
        assert read(tmp_path / "t.parquet") == found
    return found


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
arguments = st.fixed_dictionaries({"n": st.integers(-9, 9)}, optional={"s": texts, "b": st.booleans()})
functions = st.fixed_dictionaries({"name": texts, "arguments": arguments})
calls = st.lists(st.fixed_dictionaries({"type": st.just("function"), "function": functions}), max_size=2)
chat_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "nobody"]), "content": st.none() | texts},
    optional={
        "name": st.none() | texts,
        "weight": st.none() | st.sampled_from([0.0, 0.25, 1.0]),
        "tool_calls": st.none() | calls,
    },
)
chats = st.lists(
    st.fixed_dictionaries(
        {"messages": st.none() | st.lists(chat_messages, max_size=4)},
        optional={"system": st.none() | texts, "id": st.integers(0, 99), "note": st.none() | texts},
    ),
    min_size=1,
    max_size=6,
)


@given(rows=chats)
def test_rows_that_went_through_a_table_are_the_rows_they_were(tmp_path_factory, rows):
    """A table fills in every key some row has with null; a null means what the missing key means."""
    folder = tmp_path_factory.getbasetemp()
    (folder / "r.jsonl").write_bytes(as_jsonl(rows))
    expected = read(folder / "r.jsonl", schema="messages")
    for name, write in (("r.parquet", as_parquet), ("r.arrow", as_arrow)):
        try:
            content = write(rows)
        except pa.ArrowNotImplementedError:  # Parquet has no struct without fields
            continue
        (folder / name).write_bytes(content)
        assert read(folder / name, schema="messages") == expected


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
)
def test_every_type_of_text_is_text(tmp_path, kind):
    values = pa.array(["one", "two", "one", "", None])
    if pa.types.is_dictionary(kind):
        encoded = values.dictionary_encode()
        words = encoded.dictionary.cast(kind.value_type)
        values = pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), words)
    else:
        values = pa.array(values.to_pylist(), kind)
    table = pa.table({"text": values})
    assert [getattr(row, "text", row) for row in both(tmp_path, table)] == [
        "one", "two", "one", ("empty", "`text` is empty"), ("unknown_schema", "no field `text` or `segments`, which schema text needs")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "kind", [pa.list_(MESSAGE), pa.large_list(MESSAGE), pa.list_(MESSAGE, 2), pa.list_view(MESSAGE)]
)
def test_every_type_of_list_is_a_list(tmp_path, kind):
    rows = both(tmp_path, pa.table({"messages": pa.array([TURNS, TURNS, TURNS], kind)}))
    assert [[message.fields for message in row.messages] for row in rows] == [TURNS] * 3


def test_maps_are_objects_whose_nulls_are_nulls(tmp_path):
    call = pa.struct([("name", pa.string()), ("arguments", pa.map_(pa.string(), pa.string()))])
    kind = pa.list_(pa.struct([*MESSAGE, ("tool_calls", pa.list_(call))]))
    for own, found in (([("a", "1"), ("b", None)], {"a": "1", "b": None}), ([("a", "1"), ("a", "2")], {"a": "2"})):
        turn = {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": own}]}
        (row,) = both(tmp_path, pa.table({"messages": pa.array([[TURNS[0], turn]], kind)}))
        assert row.messages[1].fields["tool_calls"][0]["function"] == {"name": "f", "arguments": found}


def test_what_json_cannot_say_rejects_a_row_only_where_it_would_be_read(tmp_path):
    when = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    raw = ("raw", pa.struct([("bytes", pa.binary())]))
    kind = pa.list_(pa.struct([*MESSAGE, ("at", pa.timestamp("us", "UTC")), raw]))
    turns = [{**turn, "at": when, "raw": {"bytes": b"x"}} for turn in TURNS]
    others = {"seen": pa.array([when]), "blob": [b"\xff"], "price": pa.array([1], pa.decimal128(5))}
    (row,) = both(tmp_path, pa.table({"messages": pa.array([turns], kind), **others}))
    assert [message.fields for message in row.messages] == TURNS
    for value, named in ((when, "timestamp[us, tz=UTC]"), (b"x", "binary")):
        found = both(tmp_path, pa.table({"text": pa.array([value, None])}))
        assert found[0] == ("wrong_type", f"expected a JSON value, got `{named}` at $.text")
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.date32())]))
    (row,) = both(tmp_path, pa.table({"messages": pa.array([[{"role": "user", "content": when.date()}]], kind)}))
    assert row == ("wrong_type", "expected a JSON value, got `date32[day]` at $.messages[].content")


def test_a_name_of_a_row_that_is_no_text_is_none(tmp_path):
    """As in JSON, where a row is not refused for what its `id` or `label` is."""
    when = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    others = {"id": [b"\x01", b"\x02"], "uuid": ["u", "v"], "label": [when, when], "chosen": [when, None]}
    found = both(tmp_path, pa.table({"text": ["a", "b"], **others}))
    assert [(row.text, row.sample_id) for row in found] == [("a", "u"), ("b", "v")]


def test_numbers_that_are_none_are_null_and_infinite_ones_are_refused(tmp_path):
    kind = pa.list_(pa.struct([*MESSAGE, ("weight", pa.float64())]))
    rows = [
        [{**TURNS[0], "weight": None}, {**TURNS[1], "weight": weight}] for weight in (float("nan"), 1.0, float("inf"))
    ]
    table = pa.table({"messages": pa.array(rows, kind), "system": [float("nan")] * 3})
    first, second, third = both(tmp_path, table)
    assert (first.messages[1].trained, second.messages[1].trained) == (None, True)
    assert third == ("wrong_type", "a number is infinite at $.messages[].weight")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_text_in_a_column_of_messages_is_json(tmp_path, kind):
    table = pa.table({"messages": pa.array([json.dumps(TURNS), "[{", "", None]).cast(kind)})
    first, *others = both(tmp_path, table)
    assert [message.fields for message in first.messages] == TURNS
    assert others == [
        ("not_json", "the JSON in field `messages`: ends too early, at byte 2"),
        *[("unknown_schema", "no field `messages`, which schema messages needs")] * 2,
    ]


def test_struct_of_lists_is_no_list_of_messages(tmp_path):
    table = pa.table({"messages": [{"role": ["user"], "content": ["a"]}]})
    assert both(tmp_path, table) == [("wrong_type", "expected `array`, got `object` at $.messages")]


@pytest.mark.parametrize(
    ("images", "fates"),
    [
        *((pa.array(flags), ["kept", "media_count"]) for flags in ([False, True], [0, 2], [float("nan"), 1.0])),
        (pa.array([[], None], pa.list_(pa.binary())), ["kept", "kept"]),
        (pa.array([[b"x"], []], pa.list_(pa.binary())), ["media_count", "kept"]),
        (pa.array([{"bytes": b"x", "path": None}, None]), ["media_count", "kept"]),
        (pa.array(["", "x.png"]), ["kept", "media_count"]),
    ],
)
def test_rows_with_a_picture_and_no_place_for_it_are_rejected_and_the_others_kept(tmp_path, images, fates):
    table = pa.table({"messages": pa.array([TURNS, TURNS], pa.list_(MESSAGE)), "images": images})
    assert [row[0] if isinstance(row, tuple) else "kept" for row in both(tmp_path, table)] == fates


def test_a_text_that_is_no_utf8_is_one_bad_row_of_parquet(tmp_path):
    bad = pa.array([b"one", b"\xff", b"three"]).view(pa.string())
    large = bad.view(pa.binary()).cast(pa.large_binary()).view(pa.large_string())
    for text in (bad, large):
        (tmp_path / "t").write_bytes(parquet_of(pa.table({"text": text})))
        found = [getattr(row, "text", row) for row in read(tmp_path / "t")]
        assert found == ["one", ("not_utf8", "a text is not valid UTF-8"), "three"], text.type
    nested = pa.ListArray.from_arrays(
        [0, 1, 2, 3], pa.StructArray.from_arrays([pa.array(["user"] * 3), bad], names=["role", "content"])
    )
    (tmp_path / "t").write_bytes(parquet_of(pa.table({"messages": nested})))
    assert [isinstance(row, tuple) for row in read(tmp_path / "t")] == [False, True, False]


def test_arrow_with_a_text_that_is_no_utf8_is_an_error_that_says_which(tmp_path):
    """Arrow's validation ends there, and says nothing of what stands behind it."""
    (tmp_path / "t").write_bytes(arrow_of(pa.table({"text": pa.array([b"one", b"\xff"]).view(pa.string())})))
    with pytest.raises(InputError, match=r"cannot be read as an Arrow file: .*UTF8 sequence at string index 1"):
        read(tmp_path / "t", schema="text")


def test_a_row_that_is_too_large_is_one_bad_row(tmp_path):
    (tmp_path / "t").write_bytes(as_parquet([{"text": "a"}, {"text": "b" * 5000}, {"text": "c", "other": "x" * 5000}]))
    found = read(tmp_path / "t", max_row_bytes=1000)
    assert [getattr(row, "text", row[0] if isinstance(row, tuple) else None) for row in found] == [
        "a",
        "row_too_large",
        "c",
    ]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_rows_that_share_their_texts_with_others_are_no_larger_for_it(tmp_path, kind):
    table = pa.table({"text": pa.array([f"{i}" + "x" * 100 for i in range(50)] + ["y" * 3000], kind)})
    for name, content in (("t.parquet", parquet_or_none(table)), ("t.arrow", arrow_of(table, batch_rows=100))):
        if content is None:
            continue
        (tmp_path / name).write_bytes(content)
        rows = read(tmp_path / name, max_row_bytes=1000)
        assert [getattr(row, "text", row) for row in rows[:50]] == table["text"].to_pylist()[:50]
        assert rows[50][0] == "row_too_large"


@pytest.mark.parametrize("write", [parquet_of, lambda table: arrow_of(table, batch_rows=100)], ids=["parquet", "arrow"])
def test_rows_that_share_a_long_text_are_batched_by_what_each_of_them_takes(tmp_path, write, monkeypatch):
    """A thousand rows of a megabyte each took five gigabytes, of a file of fifty thousand bytes."""
    monkeypatch.setattr("packer.source.rows.BATCH_BYTES", 10_000)
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int8()), pa.array(["x" * 5000]))
    (tmp_path / "t").write_bytes(write(pa.table({"text": shared})))
    kind = detect_format(tmp_path / "t")
    (piece,) = partition_file(tmp_path / "t", format=kind, partition_bytes=2**30).partitions
    batches = read_rows(piece, schema="text", columns={}, max_row_bytes=2**20)
    assert [batch.num_rows for batch in batches] == [2] * 50


def test_columns_of_no_text_that_no_schema_reads_are_never_decoded(tmp_path, monkeypatch):
    asked = set()
    decode = tables_module.record_batches

    def watched(path, kind, columns, partition):
        asked.update(columns)
        return decode(path, kind, columns, partition)

    monkeypatch.setattr(tables_module, "record_batches", watched)
    rows = [{"q": "a", "a": "b", "text": "c", "embedding": [0.5] * 50, "id": i, "label": "x"} for i in range(5)]
    (tmp_path / "t").write_bytes(as_parquet(rows))
    found = read(tmp_path / "t", schema="alpaca", columns={"instruction": "q", "output": "a", "label": None})
    assert (len(found), asked) == (5, {"q", "a", "id", "text"})


def test_rows_in_pieces_of_a_group_are_those_of_the_group(tmp_path):
    rows = [{"text": f"{i} " + "x" * (i % 70)} for i in range(3000)]
    for name, content in (
        ("t.parquet", as_parquet(rows, row_group_size=5000)),
        ("t.arrow", as_arrow(rows, batch_rows=5000)),
    ):
        (tmp_path / name).write_bytes(content)
        assert len(partition_file(tmp_path / name, format=name[2:], partition_bytes=9000).partitions) > 10
        assert [row.text for row in read(tmp_path / name, partition_bytes=9000)] == [row["text"] for row in rows]


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_of_a_large_table_a_few_rows_are_in_memory(tmp_path, name):
    """One row group of 25 MB, and as many bytes in record batches of a hundred rows."""
    rows = [{"text": random.Random(i).randbytes(2500).hex(), "blob": "x" * 50} for i in range(5000)]
    write = {
        "t.parquet": lambda: as_parquet(rows, row_group_size=10**6),
        "t.arrow": lambda: as_arrow(rows, batch_rows=100),
    }
    (tmp_path / name).write_bytes(write[name]())
    num_rows = most = 0
    before = pa.total_allocated_bytes()
    for piece in partition_file(tmp_path / name, format=name[2:], partition_bytes=2**22).partitions:
        for batch in read_rows(piece, schema="text", columns={}, max_row_bytes=2**20, batch_rows=50):
            num_rows += batch.num_rows
            most = max(most, pa.total_allocated_bytes() - before)
    assert num_rows == 5000
    assert 0 < most < 20 * 2**20


def test_groups_without_rows_are_passed_over(tmp_path):
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, EMPTY.schema) as writer:
        for rows in ([], ["a"], [], ["b", "c"], []):
            writer.write_table(pa.table({"text": pa.array(rows, pa.string())}))
    (tmp_path / "t").write_bytes(sink.getvalue())
    assert [row.text for row in read(tmp_path / "t")] == ["a", "b", "c"]


def test_thousands_of_groups_are_a_few_partitions(tmp_path):
    rows = [{"text": "x" * 30}] * 2000
    (tmp_path / "t").write_bytes(as_parquet(rows, row_group_size=1))
    cut = partition_file(tmp_path / "t", format="parquet", partition_bytes=2**20)
    assert (cut.num_rows, len(cut.partitions) < 30) == (2000, True)
    file = InputFile(
        path=tmp_path / "t",
        name="t",
        split="train",
        format="parquet",
        schema="text",
        columns={},
        limit=None,
        max_row_bytes=99,
    )
    assert next(file.rows(1777)).number == 1777


EMPTY = pa.table({"text": pa.array([], pa.string())})


def no_groups():
    sink = io.BytesIO()
    pq.ParquetWriter(sink, EMPTY.schema).close()
    return sink.getvalue()


WHOLE = pa.table({"text": ["a", "b", "c", "d", "e"], "note": [1, 2, 3, 4, 5]})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PAR1" + b"x" * 100 + b"PAR1", "cannot be read as Parquet"),
        (parquet_of(WHOLE)[:-10], "cannot be read as Parquet"),
        (parquet_of(WHOLE)[:40], "cannot be read as Parquet"),
        (parquet_of(EMPTY), "holds no rows"),
        (no_groups(), "holds no rows"),
        (b"ARROW1\0\0", "cannot be read as an Arrow file"),
        (arrow_of(WHOLE)[:-10], "cannot be read as an Arrow file"),
        (arrow_of(WHOLE)[:-8], "it has no end mark"),
        (arrow_of(WHOLE, pa.ipc.new_file)[:-4], "it does not end as it begins"),
        (arrow_of(EMPTY), "holds no rows"),
        (arrow_of(EMPTY, pa.ipc.new_file), "holds no rows"),
        (arrow_of(pa.table([["a"], ["b"]], names=["text", "text"])), "has more than one column `text`"),
    ],
)
def test_a_table_that_is_not_whole_is_one_error_that_names_the_file(tmp_path, content, said):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(InputError, match=f"{tmp_path}/t: .*{said}") as caught:
        read(tmp_path / "t")
    assert caught.value.hint


@pytest.mark.parametrize("name", ["stream", "file"])
def test_a_column_whose_name_is_not_utf_8_is_an_input_error(tmp_path, name):
    content = arrow_of(WHOLE, pa.ipc.new_file if name == "file" else pa.ipc.new_stream)
    assert content.count(b"text") >= 1
    (tmp_path / "t").write_bytes(content.replace(b"text", b"te\xeet"))
    with pytest.raises(InputError, match="utf-8"):
        read(tmp_path / "t", schema="text")


@pytest.mark.parametrize("number", [150, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["parquet", "stream", "file"])
def test_no_flipped_bit_of_a_table_crashes_the_reader(tmp_path, name, number):
    """The bytes are what the user has; where they say something else now, that is read, or it is an input error."""
    content = {"parquet": parquet_of(WHOLE), "stream": arrow_of(WHOLE), "file": arrow_of(WHOLE, pa.ipc.new_file)}[name]
    outcomes = Counter()
    places = random.Random(f"{name} {number}").sample(range(len(content) * 8), number)
    for place in places:
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        (tmp_path / "t").write_bytes(flipped)
        try:
            outcomes["read" if read(tmp_path / "t", schema="text") else "none"] += 1
        except InputError:
            outcomes["refused"] += 1
    assert outcomes["read"] + outcomes["refused"] == len(places)
    assert min(outcomes["read"], outcomes["refused"]) > 10


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_a_table_that_changed_after_it_was_cut_is_an_error(tmp_path, name):
    write = as_parquet if name == "t.parquet" else as_arrow
    (tmp_path / name).write_bytes(write([{"text": "one"}] * 9))
    (piece,) = partition_file(tmp_path / name, format=name[2:], partition_bytes=2**20).partitions
    for other in (
        write([{"text": "two"}] * 9),
        write([{"test": "one"}] * 9),
        write([{"text": "one"}] * 4),
        b"",
        b"x" * 9999,
    ):
        (tmp_path / name).write_bytes(other)
        os.utime(tmp_path / name, ns=(0, len(other)))  # two writes within a tick of the clock have one time
        with pytest.raises(InputError):
            list(read_rows(piece, schema="text", columns={}, max_row_bytes=99))


def test_a_table_that_fits_no_schema_is_reported_its_columns(tmp_path):
    (tmp_path / "t").write_bytes(as_parquet([{"question": "a", "image": b"x"}]))
    with pytest.raises(InputError, match=r"match no schema; fields found: `question`, `image`"):
        detected_schema(tmp_path / "t", format="parquet", columns={})


def test_values_that_datasets_keeps_as_json_are_those_values(tmp_path):
    if not hasattr(pa, "json_"):
        pytest.skip("this pyarrow has no type for JSON")
    arguments = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"x": [1, null]}', "{"]))
    calls = pa.StructArray.from_arrays([pa.array(["f", "f"]), arguments], names=["name", "arguments"])
    messages = pa.StructArray.from_arrays(
        [pa.array(["assistant"] * 2), pa.ListArray.from_arrays([0, 1, 2], calls)], names=["role", "tool_calls"]
    )
    first, second = both(tmp_path, pa.table({"messages": pa.ListArray.from_arrays([0, 1, 2], messages)}))
    assert first.messages[0].fields["tool_calls"][0]["function"]["arguments"] == {"x": [1, None]}
    assert second == ("not_json", "the JSON in $.messages[].tool_calls[].arguments: ends too early, at byte 1")


def test_offsets_that_lead_out_of_a_file_are_found_before_anything_is_read(tmp_path):
    offsets = pa.py_buffer(np.array([0, 1, 2**30, 3], np.int32))
    wild = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"abc"))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("text", pa.string())])) as writer:
        writer.write_batch(pa.record_batch({"text": wild}))
    (tmp_path / "t").write_bytes(sink.getvalue())
    with pytest.raises(InputError, match="cannot be read as an Arrow file"):
        read(tmp_path / "t", schema="text")


def test_a_column_that_is_renamed_is_not_taken_for_what_it_was_called(tmp_path):
    """A text called `history` that is some row's prompt is no JSON, and one called `image` no picture."""
    for old in ("history", "image"):
        (tmp_path / "t").write_bytes(parquet_of(pa.table({old: ["Hi there"], "answer": ["Hello"]})))
        (sample,) = read(tmp_path / "t", schema="completion", columns={"prompt": old, "completion": "answer"})
        assert (sample.prompt, sample.text) == ("Hi there", "Hello")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_prompts_and_completions_of_a_table_may_be_texts_or_the_json_of_messages(tmp_path, kind):
    texts = ["Hi", '[{"a": 1}]', "[{ no JSON", "[]", '[{"role": 1}]']
    table = pa.table({"prompt": [json.dumps(TURNS[:1]), *texts], "completion": [json.dumps(TURNS[1:]), *["x"] * 5]})
    if kind == "parquet":
        (tmp_path / "t.csv").write_bytes(parquet_of(table))
    else:
        with (tmp_path / "t.csv").open("w", newline="") as file:
            csv.writer(file).writerows([table.column_names, *zip(*table.to_pydict().values(), strict=True)])
    first, *others = read(tmp_path / "t.csv", schema="completion")
    assert [message.fields for message in first.messages] == TURNS
    assert [(sample.kind, sample.prompt) for sample in others] == [("completion", text) for text in texts]


NANOSECONDS = 1_700_000_000_123_456_789


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (NANOSECONDS, pa.timestamp("ns"), "2023-11-14T22:13:20.123456"),
        ([NANOSECONDS], pa.large_list(pa.timestamp("ns")), ["2023-11-14T22:13:20.123456"]),
        ([NANOSECONDS], pa.list_(pa.timestamp("ns"), 1), ["2023-11-14T22:13:20.123456"]),
        ([("a", NANOSECONDS)], pa.map_(pa.string(), pa.timestamp("ns")), {"a": "2023-11-14T22:13:20.123456"}),
        ({"n": 3, "took": 1_234_567}, pa.struct([("n", pa.int64()), ("took", pa.duration("ns"))]), {"n": 3}),
        ({"n": 3, "at": 1_234_567}, pa.struct([("n", pa.int64()), ("at", pa.time64("ns"))]), {"n": 3}),
    ],
)
def test_rules_read_nanoseconds_as_python_has_them_with_and_without_pandas(value, kind, expected):
    """Without pandas, pyarrow raises an error for them, and with it, they are times of pandas."""
    batch = pa.record_batch([pa.array([value, None], kind)], ["field"])
    assert [*tables_module._field_values(batch)] == [{"field": expected}, {"field": None}]
