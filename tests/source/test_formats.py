"""The same rows mean the same in every format."""

import pytest
from read_files import read_file
from written_formats import FORMATS

from packer.batches import Sample
from packer.source.rows import InputFile

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


def call(number, name, **arguments):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


CALLS = [
    {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [call("1", "f", city="Rome", days=2), call("2", "g")]},
            {"role": "tool", "content": "sun", "tool_call_id": "1"},
            {"role": "assistant", "content": "Sun.", "weight": 1},
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
LOGS = ('{"finish_reason": "stop"}', '[{"usage": {"finish_reason": "length"}}]', "truncated: true", "{}")
SETS = {
    "chats": ("messages", CHATS),
    "calls": ("messages", CALLS),
    "turns": ("sharegpt", TURNS),
    "alpaca": ("alpaca", ALPACA),
    "completion": ("completion", [{"prompt": "a", "completion": " b"}, {"prompt": "", "completion": "c\n"}]),
    "logs": ("completion", [{"prompt": "a", "completion": "b", "log": log} for log in LOGS]),
    "nested logs": (
        "completion",
        [{"prompt": "a", "completion": "b", "log": {"calls": [{"raw": log, "n": 1}], "of": "one"}} for log in LOGS],
    ),
    "text": ("text", [{"text": "one", "score": 0.5}, {"text": "two\n\nthree"}, {"text": ""}]),
}


def read(path):
    """Format, schema and rows of a file, of which those that are samples are found one by one, too."""
    found = read_file(path)
    file = InputFile(
        path=path,
        name="rows",
        split="train",
        format=found.format,
        schema=found.schema,
        columns={},
        limit=None,
        max_row_bytes=2**20,
    )
    assert [len(raw.batch.samples) for raw in file.rows()] == [isinstance(row, Sample) for row in found.rows]
    return found


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
    assert any(isinstance(row, Sample) for row in found)
