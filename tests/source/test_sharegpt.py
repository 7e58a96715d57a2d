from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.source.decode import Refused
from packer.source.schema import read_row

ASKED = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def fields(sample, turns, **row):
    return [message.fields for message in sample({"conversations": turns} | row, "sharegpt").messages]


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        (
            [
                {"from": who, "value": text}
                for who, text in zip(["system", "human", "gpt", "user", "assistant"], "sabcd", strict=True)
            ],
            "sabcd",
        ),
        ([{"role": "human", "content": "a"}], "a"),
        (["a", "b", "c"], "abc"),
        ([{"human": "a", "assistant": "b"}, {"human": "c", "assistant": "d"}], "abcd"),
    ],
)
def test_turns_texts_and_exchanges_become_messages(sample, turns, said):
    row = {"id": "x", "conversations": turns, "tools": '[{"name": "f", "parameters": {}}]'}
    found = sample(row if "s" in said else row | {"system": "s"}, "sharegpt")
    roles = ["system", *["user", "assistant"] * 2]
    expected = [*zip(roles, f"s{said.removeprefix('s')}", strict=False)]
    assert [message.fields for message in found.messages] == [{"role": r, "content": text} for r, text in expected]
    assert (found.kind, found.row, found.sample_id) == ("chat", 7, "x")
    assert found.tools == [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def test_exchanges_have_other_names_elsewhere(sample):
    """XTuner's, of which Capybara's are a part."""
    turns = [
        {"system": "s", "input": "a", "output": "b", "output_with_loss": False},
        {"system": "", "input": "c", "output": "d"},
    ]
    found = sample({"conversation": turns}, "sharegpt")
    assert [(message.role, message.fields["content"], message.trained) for message in found.messages] == [
        ("system", "s", None),
        ("user", "a", None),
        ("assistant", "b", False),
        ("user", "c", None),
        ("assistant", "d", None),
    ]
    assert all(set(message.fields) == {"role", "content"} for message in found.messages)


def test_texts_that_are_json_of_turns_are_no_texts(sample):
    with pytest.raises(Refused, match="a turn as JSON text at"):
        fields(sample, ['{"from": "human", "value": "a"}', '{"from": "gpt", "value": "b"}'])
    assert fields(sample, ['{"from"', "b"])[0]["content"] == '{"from"'


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([{"input": "a", "output": "b", "instruction": "c"}], "no field `from`"),  # nothing says what `instruction` is
        (["a", {"from": "gpt", "value": "b"}], r"conversations\[0\]"),
        ([{"input": "a", "output": "b"}, "c"], r"conversations\[1\]"),
        ([{"input": "a", "output": "b"}, {"input": "c"}], r"no field `from` at \$.conversations\[1\]"),
        ([{"input": "a", "output": ["b"]}], r"at \$.conversations\[1\].content"),
    ],
)
def test_exchanges_of_no_known_form_are_refused(sample, turns, reason):
    with pytest.raises(Refused, match=reason) as refused:
        sample({"conversations": turns}, "sharegpt")
    assert refused.value.code == "wrong_type"


def test_turns_are_read_from_the_field_that_has_some(sample):
    """A table has a value of every column in every row: of two columns of turns one is empty."""
    asked = [{"role": "user", "content": "a"}]
    for turn in ({"from": "human", "value": "a"}, {"human": "a", "assistant": "b"}):
        for nothing in (None, []):
            assert fields(sample, nothing, conversation=[turn])[:1] == asked
            assert fields(sample, [turn], conversation=nothing)[:1] == asked


def test_calls_join_the_text_before_them_and_observations_are_messages_of_their_own(sample):
    turns = [
        {"from": "human", "value": "a"},
        {"from": "gpt", "value": "wait"},
        {"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1}}'},
        {"from": "observation", "value": "{}"},
        {
            "from": "function_call",
            "value": '[{"name": "f", "arguments": "{\\"x\\": 1}"}, {"name": "f", "arguments": {}}]',
        },
        {"from": "tool", "value": "r"},
    ]
    empty = {"type": "function", "function": {"name": "f", "arguments": {}}}
    assert fields(sample, turns) == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "wait", "tool_calls": [CALL]},
        {"role": "tool", "content": "{}"},
        {"role": "assistant", "content": None, "tool_calls": [CALL, empty]},
        {"role": "tool", "content": "r"},
    ]


def test_a_call_may_stand_below_its_reasoning(sample):
    """LLaMA-Factory's rows for reasoning models."""
    thought = '<think>\nf of "</think" first\n</think>'
    turns = [
        {"from": "human", "value": "a"},
        {"from": "function_call", "value": thought + '\n\n{"name": "f", "arguments": {"x": 1}}'},
        {"from": "observation", "value": "{}"},
        {"from": "function_call", "value": '{"name": "f", "arguments": {"x": "</think>"}}'},
    ]
    other = {"type": "function", "function": {"name": "f", "arguments": {"x": "</think>"}}}
    assert fields(sample, turns)[1:] == [
        {"role": "assistant", "content": thought, "tool_calls": [CALL]},
        {"role": "tool", "content": "{}"},
        {"role": "assistant", "content": None, "tool_calls": [other]},
    ]


@pytest.mark.parametrize(
    "value", ["not json", "[]", "7", "", "<think>a</think>", "<think>a</think>b", '<think>{"name": "f"}']
)
def test_a_call_turn_that_holds_no_call_refuses_the_row(refusal, value):
    assert refusal({"conversations": [{"from": "function_call", "value": value}]}, "sharegpt")[0] == "bad_tools"


def test_other_keys_of_an_exchange_are_those_of_its_user(sample):
    assert fields(sample, [{"human": "a", "assistant": "b", "name": "Ann", "time": None}]) == [
        {"name": "Ann", "role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]


@pytest.mark.parametrize(
    ("row", "refused"),
    [
        (
            {"conversations": [{"from": "gpt", "value": 3}]},
            ("wrong_type", "expected `str | array | null`, got `int` at $.conversations[0].content"),
        ),
        ({"conversations": [{"value": "a"}]}, ("wrong_type", "no field `from` at $.conversations[0]")),
        ({"conversations": '"a"'}, ("wrong_type", "expected `array`, got `str` at $.conversations")),
        ({"conversations": [{"human": "a"}]}, ("wrong_type", "no field `assistant` at $.conversations[0]")),
        ({"conversations": []}, ("empty",)),
        ({"conversations": [{"from": "narrator", "value": "a"}]}, ("unknown_role",)),
        ({"conversations": [{"from": "human", "value": "<img>a.png</img>"}]}, ("multimodal",)),
        ({"conversation": [{"human": "<img>a.png</img>", "assistant": ""}]}, ("multimodal",)),
        ({"conversations": [{"from": "gpt", "value": "a"}], "label": True}, ("preference",)),
        (
            {"turns": []},
            ("unknown_schema", "no field `conversations` or `conversation`, which schema sharegpt needs"),
        ),
        (
            {"conversations": [{"from": "human", "value": "3+3?", "content": "2+2?"}]},
            ("wrong_type", "`value` and `content` say different things at $.conversations[0]"),
        ),
        (
            {"conversations": ASKED, "conversation": ASKED[:1]},
            ("wrong_type", "`conversations` and `conversation` say different things at $"),
        ),
        (
            {"conversations": [ASKED[0], ASKED[1] | {"role": "user"}]},
            ("wrong_type", "`from` and `role` say different things at $.conversations[1]"),
        ),
    ],
)
def test_what_cannot_be_read_has_a_code_and_its_path(refusal, row, refused):
    assert refusal(row, "sharegpt")[: len(refused)] == refused


def test_of_two_texts_of_a_turn_the_one_that_says_something_counts(sample):
    assert fields(sample, [ASKED[0] | {"value": "", "content": "2+2?"}, ASKED[1]])[0]["content"] == "2+2?"


def test_what_an_exchange_says_beside_its_texts_is_of_its_answer(sample, refusal):
    call = {"name": "f", "arguments": "{}"}
    exchange = {"human": "a", "assistant": "b", "train": False, "reasoning": "hm", "tool_calls": [call]}
    question, answer = sample({"conversations": [exchange]}, "sharegpt").messages
    assert question.fields == {"role": "user", "content": "a"}
    assert (answer.trained, answer.fields["reasoning_content"], len(answer.fields["tool_calls"])) == (False, "hm", 1)


VALUES = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["human", "gpt", "a", ""])
TURNS = st.dictionaries(
    st.sampled_from(["from", "role", "value", "content", "human", "assistant", "system", "input", "output"])
    | st.sampled_from(["output_with_loss", "train", "weight", "tool_calls", "reasoning", "name"]),
    VALUES | st.lists(VALUES, max_size=2) | st.dictionaries(st.just("type"), VALUES, max_size=1),
)


@given(turns=st.lists(TURNS | VALUES, max_size=3) | VALUES, name=st.sampled_from(["conversations", "conversation"]))
def test_turns_with_anything_in_any_place_are_read_or_refused(turns, name):
    with suppress(Refused):
        read_row({name: turns}, number=0, schema="sharegpt", columns={})
