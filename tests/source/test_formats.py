"""The same rows mean the same in every format."""

import pytest
from written_formats import FORMATS

from packer.pipeline.plan.inputs import detected_schema
from packer.source.detect import detect_format
from packer.source.partition import partition_file
from packer.source.rows import InputFile, read_rows

CHATS = [
    {
        "id": f"row {i}",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f'Say "{i}",\nthen stop; ünïcode 🎉\ttab'},
            {"role": "assistant", "content": f"{i}."},
        ],
        "source": "made up",
    }
    for i in range(7)
]
CALLS = [
    {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "1",
                        "type": "function",
                        "function": {"name": "f", "arguments": {"city": "Rome", "days": 2}},
                    },
                    {"id": "2", "type": "function", "function": {"name": "g", "arguments": {}}},
                ],
            },
            {"role": "tool", "content": "sun", "tool_call_id": "1"},
            {"role": "assistant", "content": "Sun.", "weight": 0.5},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    },
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "train": True}]},
]
TURNS = [
    {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b\r\nc"}], "system": "s"},
    {"conversations": [{"from": "human", "value": ""}, {"from": "gpt", "value": "\u2028"}]},
]
ALPACA = [
    {"instruction": "Add", "input": "1, 2", "output": 'It is "3"'},
    {"instruction": " lead", "input": "", "output": "trail \n\n"},
    {"instruction": "", "input": "", "output": ""},
]
SETS = {
    "chats": ("messages", CHATS),
    "calls": ("messages", CALLS),
    "turns": ("sharegpt", TURNS),
    "alpaca": ("alpaca", ALPACA),
    "completion": ("completion", [{"prompt": "a", "completion": " b"}, {"prompt": "", "completion": "c\n"}]),
    "logs": (
        "completion",
        [
            {"prompt": "a", "completion": "b", "log": log}
            for log in (
                '{"finish_reason": "stop"}',
                '[{"usage": {"finish_reason": "length"}}]',
                "truncated: true",
                "{}",
            )
        ],
    ),
    "nested logs": (
        "completion",
        [
            {"prompt": "a", "completion": "b", "log": {"calls": [{"raw": text, "n": 1}], "of": "one"}}
            for text in ('{"finish_reason": "stop"}', '{"finish_reason": "length"}', "{}")
        ],
    ),
    "text": ("text", [{"text": "one", "score": 0.5}, {"text": "two\n\nthree"}, {"text": ""}]),
}


def read(path, *, schema=None, columns=None, partition_bytes=2**20, limit=None, max_row_bytes=2**20):
    """Format, schema, and every row of a file: its sample, or code and reason."""
    columns = columns or {}
    kind = detect_format(path)
    schema = schema or detected_schema(path, format=kind, columns=columns)
    cut = partition_file(path, format=kind, partition_bytes=partition_bytes, limit=limit)
    rows = []
    for piece in cut.partitions:
        assert piece.first_row == len(rows)
        found = {}
        for batch in read_rows(piece, schema=schema, columns=columns, max_row_bytes=max_row_bytes):
            found |= {
                sample.row: (
                    sample.kind,
                    sample.messages,
                    sample.tools,
                    sample.prompt,
                    sample.text,
                    sample.template_kwargs,
                    sample.sample_id,
                )
                for sample in batch.samples
            }
            found |= {each.row: (each.code, each.reason) for each in batch.rejections}
        assert sorted(found) == list(range(piece.num_rows)) != []
        rows += [found[row] for row in range(piece.num_rows)]
    file = InputFile(
        path=path,
        name="rows",
        split="train",
        format=kind,
        schema=schema,
        columns=columns,
        limit=limit,
        max_row_bytes=max_row_bytes,
    )
    raw = [raw.batch for raw in file.rows()]
    assert [len(batch.samples) for batch in raw] == [len(row) == 7 for row in rows]
    return kind, schema, rows


def write(tmp_path, name, rows):
    path = tmp_path / name
    path.write_bytes(FORMATS[name](rows))
    return path


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rows", SETS)
def test_the_same_rows_are_the_same_samples_in_every_format(tmp_path, name, rows):
    schema, rows = SETS[rows]
    expected = read(write(tmp_path, "rows.jsonl", rows))
    kind, found_schema, found = read(write(tmp_path, name, rows))
    assert expected[:2] == ("jsonl", schema)
    assert (found_schema, found) == (schema, expected[2])
    assert kind == next(known for known in ("jsonl", "json", "csv", "tsv", "parquet", "arrow") if f".{known}" in name)
    assert sum(len(row) == 7 for row in found) >= 1
