from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.source.decode import Refused
from packer.source.schema import read_row

CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def fields(sample, turns, **row):
    return [message.fields for message in sample({"conversations": turns} | row, "sharegpt").messages]


def test_turns_become_messages(sample):
    turns = [
        {"from": "system", "value": "s"},
        {"from": "human", "value": "a"},
        {"from": "gpt", "value": "b"},
        {"from": "user", "value": "c"},
        {"from": "assistant", "value": "d"},
    ]
    found = sample({"id": "x", "conversations": turns}, "sharegpt")
    assert [(m.role, m.fields["content"]) for m in found.messages] == [
        ("system", "s"),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("assistant", "d"),
    ]
    assert all(set(m.fields) == {"role", "content"} for m in found.messages)
    assert (found.kind, found.row, found.sample_id) == ("chat", 7, "x")


def test_turns_may_be_spelled_as_messages(sample):
    assert fields(sample, [{"role": "human", "content": "a"}]) == [{"role": "user", "content": "a"}]


def test_exchanges_have_other_names_elsewhere(sample):
    """XTuner's, of which Capybara's are a part."""
    turns = [
        {"system": "s", "input": "a", "output": "b", "output_with_loss": False},
        {"system": "", "input": "c", "output": "d"},
    ]
    found = sample({"conversation": turns}, "sharegpt")
    assert [(message.role, message.fields["content"], message.weight) for message in found.messages] == [
        ("system", "s", None),
        ("user", "a", None),
        ("assistant", "b", 0.0),
        ("user", "c", None),
        ("assistant", "d", None),
    ]
    assert all(set(message.fields) == {"role", "content"} for message in found.messages)


def test_texts_that_are_json_of_turns_are_no_texts(sample):
    with pytest.raises(Refused, match="a turn as JSON text at"):
        fields(sample, ['{"from": "human", "value": "a"}', '{"from": "gpt", "value": "b"}'])
    assert fields(sample, ['{"from"', "b"])[0]["content"] == '{"from"'


def test_texts_alone_are_the_users_and_the_assistants_in_turn(sample):
    assert fields(sample, ["a", "b", "c"]) == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]


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


def test_the_row_gives_the_system_message_and_the_tools(sample):
    row = {
        "conversation": [{"from": "human", "value": "a"}],
        "system": "s",
        "tools": '[{"name": "f", "parameters": {}}]',
    }
    found = sample(row, "sharegpt")
    assert found.messages[0].fields == {"role": "system", "content": "s"}
    assert found.tools == [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def test_exchanges_become_two_messages_each(sample):
    row = {"system": "s", "conversation": [{"human": "a", "assistant": "b"}, {"human": "c", "assistant": "d"}]}
    found = sample(row, "sharegpt")
    assert [message.fields["content"] for message in found.messages] == ["s", "a", "b", "c", "d"]
    assert [message.role for message in found.messages] == ["system", "user", "assistant", "user", "assistant"]


def test_other_keys_of_an_exchange_are_those_of_its_user(sample):
    assert fields(sample, [{"human": "a", "assistant": "b", "name": "Ann", "time": None}]) == [
        {"name": "Ann", "role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]


def test_weights_are_kept(sample):
    found = sample(
        {
            "conversations": [
                {"from": "gpt", "value": "a", "weight": 0},
                {"from": "human", "value": "?"},
                {"from": "gpt", "value": "b", "train": True},
            ]
        },
        "sharegpt",
    )
    assert [message.weight for message in found.messages] == [0.0, None, 1.0]
    assert all(set(message.fields) == {"role", "content"} for message in found.messages)


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([{"from": "gpt", "value": 3}], "expected `str | array | null`, got `int` at $.conversations[0].content"),
        ([{"value": "a"}], "no field `from` at $.conversations[0]"),
        ('"a"', "expected `array`, got `str` at $.conversations"),
        ([{"human": "a"}], "no field `assistant` at $.conversations[0]"),
    ],
)
def test_a_wrong_type_is_named_with_its_path(refusal, turns, reason):
    assert refusal({"conversations": turns}, "sharegpt") == ("wrong_type", reason)


def test_other_troubles_have_their_own_codes(refusal):
    assert refusal({"conversations": []}, "sharegpt")[0] == "empty"
    assert refusal({"conversations": [{"from": "narrator", "value": "a"}]}, "sharegpt")[0] == "unknown_role"
    assert refusal({"conversations": [{"from": "human", "value": "<img>a.png</img>"}]}, "sharegpt")[0] == "multimodal"
    assert refusal({"conversation": [{"human": "<img>a.png</img>", "assistant": ""}]}, "sharegpt")[0] == "multimodal"
    assert refusal({"conversations": [{"from": "gpt", "value": "a"}], "label": True}, "sharegpt")[0] == "preference"
    assert refusal({"turns": []}, "sharegpt") == (
        "unknown_schema",
        "no field `conversations` or `conversation`, which schema sharegpt needs",
    )


def test_a_turn_with_two_texts_refuses_the_row_unless_one_says_nothing(sample, refusal):
    turns = [{"from": "human", "value": "", "content": "2+2?"}, {"from": "gpt", "value": "4"}]
    assert sample({"conversations": turns}, "sharegpt").messages[0].fields["content"] == "2+2?"
    turns[0]["value"] = "3+3?"
    assert refusal({"conversations": turns}, "sharegpt") == (
        "wrong_type",
        "`value` and `content` say different things at $.conversations[0]",
    )


def test_what_an_exchange_says_beside_its_texts_is_of_its_answer(sample, refusal):
    call = {"name": "f", "arguments": "{}"}
    exchange = {"human": "a", "assistant": "b", "train": False, "reasoning": "hm", "tool_calls": [call]}
    question, answer = sample({"conversations": [exchange]}, "sharegpt").messages
    assert question.fields == {"role": "user", "content": "a"}
    assert (answer.weight, answer.fields["reasoning_content"], len(answer.fields["tool_calls"])) == (0.0, "hm", 1)


def test_two_conversations_or_two_senders_that_differ_refuse_the_row(refusal):
    turns = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    row = {"conversations": turns, "conversation": turns[:1]}
    assert refusal(row, "sharegpt")[1] == "`conversations` and `conversation` say different things at $"
    turns[1]["role"] = "user"
    assert refusal({"conversations": turns}, "sharegpt")[1] == (
        "`from` and `role` say different things at $.conversations[1]"
    )


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
