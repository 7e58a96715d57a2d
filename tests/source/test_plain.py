"""Short ways through plain rows end where the long ways end."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.source.decode import Refused, decode_json, decode_rows
from packer.source.schema import FIELDS, Schema, missing_field, read_closely, read_row

TEXT = st.sampled_from(["", " ", "Hello", "<img>a.png</img>", "<img>", "é"])
OTHER = st.sampled_from([None, True, 0, 1.5, [], {}, ["a"], {"a": 1}, [{"type": "text", "text": "x"}]])
VALUE = st.one_of(TEXT, TEXT, TEXT, OTHER)
ROLE = st.sampled_from(
    ["user", "assistant", "system", "human", "gpt", "Human", "narrator", "tool", "function_call", "", None]
)

MESSAGE = st.one_of(
    st.builds(lambda role, text: {"role": role, "content": text}, ROLE, TEXT),
    st.builds(lambda role, text: {"from": role, "value": text}, ROLE, TEXT),
    st.builds(lambda text, role: {"content": text, "role": role}, VALUE, ROLE),
    st.fixed_dictionaries(
        {"role": ROLE, "content": VALUE}, optional={"name": TEXT, "train": st.booleans(), "thinking": TEXT}
    ),
    st.builds(lambda asked, answered: {"human": asked, "assistant": answered}, VALUE, VALUE),
    OTHER,
)
MESSAGES = st.one_of(st.lists(MESSAGE, max_size=4), OTHER)
ROWS = {
    "alpaca": {"instruction": VALUE, "output": VALUE},
    "messages": {"messages": MESSAGES},
    "sharegpt": {"conversations": MESSAGES},
}
BESIDE = {
    "input": VALUE,
    "query": VALUE,
    "response": VALUE,
    "reasoning": VALUE,
    "history": st.sampled_from([None, [], [["a", "b"]]]),
    "system": VALUE,
    "tools": st.sampled_from([None, [], "[]", "no JSON"]),
    "conversation": MESSAGES,
    "chat_template_kwargs": st.sampled_from([None, {}, {"enable_thinking": False}]),
    "images": st.sampled_from([None, [], ["a.png"]]),
    "chosen": VALUE,
    "label": st.sampled_from([None, True, 1]),
    "id": VALUE,
    "sample_id": VALUE,
    "source": VALUE,
}


def closely(row: dict[str, Any], schema: Schema) -> object:
    try:
        return read_closely(row, number=3, schema=schema)
    except Refused as refused:
        return refused.code, refused.reason


def shortly(row: dict[str, Any], schema: Schema) -> object:
    try:
        return read_row(row, number=3, schema=schema, columns={})
    except Refused as refused:
        return refused.code, refused.reason


@pytest.mark.parametrize("schema", ["alpaca", "messages", "sharegpt"])
def test_every_row_is_read_alike_both_ways(schema: Schema) -> None:
    from packer.source import plain

    seen = {"shortly": 0, "closely": 0}

    @given(st.fixed_dictionaries(ROWS[schema], optional=BESIDE))
    def alike(row: dict[str, Any]) -> None:
        assert shortly(row, schema) == closely(row, schema)
        sample = getattr(plain, schema)(row, 3)
        seen["shortly" if sample is not None else "closely"] += 1
        if sample is not None:
            assert [list(message.fields) for message in sample.messages] == [
                list(message.fields) for message in read_closely(row, number=3, schema=schema).messages
            ]

    alike()
    assert seen["closely"]

    @given(st.fixed_dictionaries(ROWS[schema], optional={"id": TEXT, "source": VALUE}))
    def mostly_plain(row: dict[str, Any]) -> None:
        assert shortly(row, schema) == closely(row, schema)
        seen["shortly"] += getattr(plain, schema)(row, 3) is not None

    mostly_plain()
    assert seen["shortly"]


def test_a_row_of_each_schema_goes_the_short_way() -> None:
    from packer.source import plain

    assert plain.alpaca({"instruction": "2+2?", "input": "", "output": "4"}, 0) is not None
    assert plain.messages({"messages": [{"role": "user", "content": "2+2?"}]}, 0) is not None
    assert plain.sharegpt({"conversations": [{"from": "human", "value": "2+2?"}], "id": "x"}, 0) is not None


def test_rows_that_lack_what_their_schema_needs_do_not_go_the_short_way() -> None:
    from packer.source import plain

    checked = 0
    for schema in ("alpaca", "messages", "sharegpt"):
        for row in ({}, {"text": "x"}, {FIELDS[schema][0][0]: None}):
            assert missing_field(row, schema) is not None
            assert getattr(plain, schema)(row, 0) is None
            checked += 1
    assert checked == 9


JSON_TEXT = st.text(st.sampled_from(' :"\\\n\té,{}[]a'), max_size=6)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), JSON_TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(JSON_TEXT, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """A row: JSON, spaced in some way, or JSON that says a key twice, or no JSON."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(
            st.sampled_from([b"{", b'{"a": 1', b'{"a":1} {"b":2}', b"\xff", b'{"a":NaN}', b'["\\ud800"]', b"1e999"])
        )
    if kind == 1:
        key = json.dumps(draw(JSON_TEXT))
        spaced = draw(st.sampled_from([":", " :", ": "]))
        return f"{{{key}{spaced}1, {key}{spaced}{json.dumps(draw(VALUES))}}}".encode()
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :")]))
    value = draw(VALUES)
    return json.dumps(value, separators=separators, ensure_ascii=draw(st.booleans())).encode()


@given(st.lists(written(), max_size=6))
def test_rows_decoded_together_have_the_values_they_have_alone(rows: list[bytes]) -> None:
    alone: list[Any] | None = []
    for row in rows:
        try:
            assert alone is not None
            alone.append(decode_json(row))
        except Refused:
            alone = None
            break
    together = decode_rows(rows)
    assert together == alone or (together is None and alone is not None)


def test_together_is_what_sound_rows_are_decoded() -> None:
    rows = [
        json.dumps({"a": [{"b": ' ":' * n}], "c": {"d": "\\" * n + '":'}}, separators=separators).encode()
        for n in range(6)
        for separators in ((",", ":"), (", ", ": "), (" , ", " : "))
    ]
    assert decode_rows(rows) == [json.loads(row) for row in rows]
    assert decode_rows([*rows, b'{"a":1,"a":2}']) is None
    assert decode_rows([*rows, b'{"a" :1,"a" :2}']) is None
    assert decode_rows([b"[" * 300 + b"]" * 300, *rows]) is None
