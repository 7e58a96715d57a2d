"""Answers that are JSON and call one of the row's tools are calls; other JSON is an answer like any other."""

import json

import pytest

SCHEMA = {"type": "object", "properties": {"harbor": {"type": "string"}, "day": {"type": "string"}}}
TOOLS = [{"name": "tide", "parameters": SCHEMA}, {"name": "now", "parameters": {"type": "object", "properties": {}}}]
OBAN = {"harbor": "Oban"}
CALL = {"type": "function", "function": {"name": "tide", "arguments": OBAN}}
NOW = {"type": "function", "function": {"name": "now", "arguments": {}}}


def answered(sample, answer, tools=TOOLS):
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return sample({"instruction": "Tide at Oban?", "output": text, "tools": tools}, "alpaca").messages[-1].fields


@pytest.mark.parametrize(
    "answer",
    [
        {"name": "tide", "arguments": OBAN},
        [{"name": "tide", "arguments": OBAN}],
        [{"name": "tide", "arguments": json.dumps(OBAN)}],
        {"name": "tide", "parameters": OBAN},
        {"type": "function", "function": {"name": "tide", "arguments": OBAN}},
        {"function": "tide", "args": OBAN},
        {"action": "tide", "action_input": OBAN},
        " " + json.dumps([{"name": "tide", "arguments": OBAN}], indent=2) + "\n",
    ],
)
def test_an_answer_that_is_the_json_of_a_call_is_that_call(sample, answer):
    assert answered(sample, answer) == {"role": "assistant", "content": "", "tool_calls": [CALL]}


def test_several_calls_keep_their_order_and_ids_and_reasoning_stays_before_them(sample):
    calls = [{"name": "now", "arguments": {}}, {"name": "tide", "arguments": OBAN, "id": "7"}]
    thought = "<think>\nBoth.\n</think>"
    fields = answered(sample, f"{thought}\n\n{json.dumps(calls)}")
    assert fields == {"role": "assistant", "content": thought, "tool_calls": [NOW, CALL | {"id": "7"}]}


def test_answers_in_messages_and_in_completions_are_read_and_keep_their_weights(sample):
    asked, text = {"role": "user", "content": "Tide?"}, json.dumps({"name": "tide", "arguments": OBAN})
    said = [asked, {"role": "assistant", "content": text, "loss": False}, asked, {"role": "assistant", "content": text}]
    read = sample({"messages": said, "tools": TOOLS}).messages
    assert [(message.fields.get("tool_calls"), message.weight) for message in read[1::2]] == [
        ([CALL], 0),
        ([CALL], None),
    ]
    (_, read) = sample({"prompt": [asked], "completion": text, "tools": TOOLS}, "completion").messages
    assert (read.fields["tool_calls"], read.weight) == ([CALL], 1)


@pytest.mark.parametrize(
    "answer",
    [
        "06:12",
        "{not json}",
        "[]",
        {"name": "train", "arguments": OBAN},
        {"name": "tide"},
        {"high": "06:12", "source": "tide"},
        {"tool": "tide", "result": {"high": "06:12"}},
        {"name": "tide", "arguments": [OBAN]},
        {"from": "tide", "to": "now", "arguments": OBAN},
        [[{"name": "tide", "arguments": OBAN}]],
        'Here: {"name": "tide", "arguments": {}}',
        "<think>half",
    ],
)
def test_other_answers_stay_texts(sample, answer):
    text = answer if isinstance(answer, str) else json.dumps(answer)
    assert answered(sample, text) == {"role": "assistant", "content": text}


def test_without_tools_the_json_of_a_call_is_a_text(sample):
    text = json.dumps({"name": "tide", "arguments": OBAN})
    assert answered(sample, text, tools=None) == {"role": "assistant", "content": text}


def test_a_list_of_calls_and_other_things_refuses_the_row(refusal):
    answer = [{"name": "tide", "arguments": OBAN}, {"name": "train", "arguments": OBAN}]
    row = {"instruction": "a", "output": json.dumps(answer), "tools": TOOLS}
    assert refusal(row, "alpaca")[0] == "bad_tools"


def test_what_a_user_or_a_tool_says_is_never_a_call(sample):
    text = json.dumps({"name": "tide", "arguments": OBAN})
    said = [{"role": role, "content": text} for role in ("system", "user", "assistant", "tool")]
    read = sample({"messages": said, "tools": TOOLS}).messages
    assert ["tool_calls" in message.fields for message in read] == [False, False, True, False]
