"""Rows made by changing good ones: bytes flipped, lines cut and spliced, tokens of the grammar swapped. Seeded."""

import json
import random
import re
from typing import Any

_CALL = {
    "type": "function",
    "id": "c1",
    "function": {"name": "find", "arguments": {"place": "Øst", "n": [1, 2.5, None]}},
}
_TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}

_GOOD: dict[str, list[dict[str, Any]]] = {
    "messages": [
        {"messages": [{"role": "user", "content": "how?"}, {"role": "assistant", "content": 'so \u2028 \\ " é 😀'}]},
        {
            "id": 7,
            "tools": [_TOOL],
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "find"}]},
                {"role": "assistant", "content": None, "tool_calls": [_CALL]},
                {"role": "tool", "content": "found", "tool_call_id": "c1"},
                {"role": "assistant", "reasoning_content": "well", "content": "there", "weight": 1},
            ],
        },
        {
            "chat_template_kwargs": {"enable_thinking": False},
            "messages": [
                {"role": "user", "content": " "},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"function": {"name": "f", "arguments": '{"a": {"b": ["\\ud83d\\ude00", -0.0]}}'}}],
                },
            ],
        },
    ],
    "sharegpt": [
        {"conversations": [{"from": "human", "value": "how?"}, {"from": "gpt", "value": "so"}], "system": "be brief"},
        {
            "tools": json.dumps([_TOOL["function"]]),
            "conversations": [
                {"from": "human", "value": "find"},
                {"from": "function_call", "value": '{"name": "find", "arguments": {"place": "x"}}'},
                {"from": "observation", "value": "[1]"},
                {"from": "gpt", "value": "there", "loss_weight": 1},
            ],
        },
        {"conversation": [{"human": "a", "assistant": "b"}]},
    ],
    "alpaca": [
        {"instruction": "add", "input": "2 and 2", "output": "4"},
        {"query": "and?", "response": "5", "history": [["a", "b"], ["c", "d"]], "system": "s"},
    ],
    "completion": [
        {"prompt": "2+2=", "completion": "4"},
        {"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]},
    ],
    "preference": [
        {"prompt": "2+2=", "chosen": "4", "rejected": "5", "margin": 0.5},
        {
            "prompt": [{"role": "user", "content": "how?"}],
            "chosen": [{"role": "assistant", "content": "so"}],
            "rejected": [{"role": "assistant", "content": "not"}, {"role": "user", "content": "why?"}],
        },
        {
            "conversations": [{"from": "human", "value": "é"}],
            "chosen": {"from": "gpt", "value": "so"},
            "rejected": {"from": "gpt", "value": "no"},
        },
        {"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "\n\nHuman: a\n\nAssistant: c"},
    ],
    "text": [{"text": "Once upon a time.\n\tThe end.", "meta": {"n": [1, 2, {"x": None}]}}],
}

SCHEMAS = tuple(_GOOD)

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},:]|-?\d[\d.eE+-]*|true|false|null', re.DOTALL)

VALUES = (
    *(b"null", b"true", b"7", b"-0", b"2.5e3", b'""', b"[]", b"{}", b'"a"', b'["a"]', b'{"a":1}', b"[null]", b"1e400"),
    *(b"NaN", b"-Infinity", b"01", b"18446744073709551616", b"1" + b"0" * 5000, b"1.", b"+1", b"0x1", b"nul", b"True"),
    *(rb'"\ud800"', rb'"\udc00\ud800"', rb'"\ud83d\ude00"', rb'"\x41"', rb'"\u00"', rb'"\u0000"', b'"\x00"', b'"\xff"'),
    *(b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"a\tb"', "\u2028".encode(), '"\u2028\x85\ue0f2"'.encode(), b"'a'", b'"'),
    *(
        b'"<|im_end|>"',
        b'"{{ 7*7 }}"',
        b'"[{\\"name\\":\\"f\\",\\"name\\":1}]"',
        b'"{\\"a\\":NaN}"',
        b"[" * 300,
        b"[" * 300 + b"]" * 300,
    ),
)
_KEYS = tuple(
    b'"%b"' % key
    for key in (
        *(b"messages", b"role", b"content", b"conversations", b"from", b"value", b"text", b"prompt", b"completion"),
        *(b"output", b"tools", b"tool_calls", b"system", b"id", b"weight", b"images", b"chosen", b"", b"a\\u0062"),
    )
)
_BYTES = bytes.fromhex("000a0c0d20222c3a5b5c5d7b7d7f80c2e2edefff")


def mutated(schema: str, seed: int) -> bytes:
    """One line, or now and then several: a good row of the schema after one change or a few."""
    rng = random.Random(f"{schema} {seed}")
    row = json.dumps(
        rng.choice(_GOOD[schema]),
        ensure_ascii=rng.random() < 0.5,
        separators=rng.choice(((",", ":"), (", ", ": "), (" ,", " :"))),
    ).encode()
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 5))):
        row = rng.choice((_bytes_changed, _cut, _spliced, _tokens_changed, _tokens_changed, _key_added))(
            row, schema, rng
        )
    return row


def _bytes_changed(row: bytes, _: str, rng: random.Random) -> bytes:
    changed = bytearray(row or b" ")
    for _ in range(rng.choice((1, 1, 2, 8))):
        where = rng.randrange(len(changed))
        how = rng.randrange(4)
        if how == 0:
            changed[where] ^= 1 << rng.randrange(8)
        elif how == 1:
            changed[where] = rng.choice(_BYTES)
        elif how == 2:
            changed[where:where] = bytes([rng.choice(_BYTES)])
        elif len(changed) > 1:
            del changed[where]
    return bytes(changed)


def _cut(row: bytes, _: str, rng: random.Random) -> bytes:
    where, size = rng.randrange(len(row) + 1), rng.choice((1, 3, 20, len(row)))
    return rng.choice((row[:where], row[where:], row[:where] + row[where + size :]))


def _spliced(row: bytes, _: str, rng: random.Random) -> bytes:
    other = json.dumps(rng.choice(_GOOD[rng.choice(SCHEMAS)])).encode()
    where, start = rng.randrange(len(row) + 1), rng.randrange(len(other))
    piece = other[start : start + rng.choice((1, 5, 40, len(other)))]
    twice = row[max(0, where - 20) : where]
    return rng.choice(
        (row[:where] + piece, row[:where] + piece + row[where:], row[:where] + twice + row[where:], row + row)
    )


def _tokens_changed(row: bytes, _: str, rng: random.Random) -> bytes:
    """A token becomes another one, is doubled, or goes; two change places."""
    tokens = [match.span() for match in _TOKEN.finditer(row)]
    if not tokens:
        return row
    start, stop = rng.choice(tokens)
    how = rng.randrange(5)
    if how == 0:
        return row[:start] + row[stop:]
    if how == 1:
        return row[:stop] + row[start:stop] + row[stop:]
    if how == 2:
        other = rng.choice(tokens)
        (start, stop), (begin, end) = sorted([(start, stop), other])
        if stop <= begin:
            return row[:start] + row[begin:end] + row[stop:begin] + row[start:stop] + row[end:]
    return row[:start] + rng.choice(VALUES if how < 4 else _KEYS) + row[stop:]


def _key_added(row: bytes, _: str, rng: random.Random) -> bytes:
    """A key more in some object: one that is there already, one that means something, or neither."""
    places = [match.end() for match in re.finditer(rb"\{", row)]
    if not places:
        return row
    where = rng.choice(places)
    own = [match[1] for match in re.finditer(rb'("[a-z_]+") ?:', row)]
    added = rng.choice((*_KEYS, *own)) + rng.choice((b":", b" : ")) + rng.choice(VALUES)
    return row[:where] + added + (b"" if row[where : where + 1] == b"}" else b",") + row[where:]
