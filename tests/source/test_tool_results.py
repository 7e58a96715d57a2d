"""Conversations with tools as Anthropic writes them are the same conversations as OpenAI writes them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples

from packer.source.chat import read
from packer.source.decode import Refused
from packer.source.preference import read as read_pair

TEXTS = st.sampled_from(["18 degrees", "Let me look.", " a\n", "{}", "Ünder"])
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["toolu_1", "toolu_2"]),
        st.sampled_from(["get_weather", "look"]),
        st.dictionaries(st.sampled_from(["city", "at"]), TEXTS | st.integers() | st.booleans(), max_size=2),
    ),
    max_size=2,
)
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]}
TURNS = st.lists(
    st.fixed_dictionaries(
        {"asked": TEXTS, "thought": st.none() | TEXTS, "said": TEXTS, "calls": CALLS, "as_text": st.booleans()}
    ),
    min_size=1,
    max_size=3,
)


def as_openai(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in turns:
        messages += [{"role": "user", "content": turn["asked"]}, {"role": "assistant", "content": turn["said"]}]
        if turn["thought"]:
            messages[-1]["reasoning_content"] = turn["thought"]
        calls = [
            {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, name, arguments in turn["calls"]
        ]
        if calls:
            messages[-1]["tool_calls"] = calls
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": f"of {call['id']}"} for call in calls]
    return messages


def as_anthropic(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results and the next question are one message, whose texts are strings or parts."""
    messages: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for turn in turns:
        text = {"type": "text", "text": turn["asked"]}
        messages.append({"role": "user", "content": [*results, text] if results else turn["asked"]})
        parts = [{"type": "thinking", "thinking": turn["thought"], "signature": "c2ln"}] if turn["thought"] else []
        parts += [{"type": "text", "text": turn["said"], "cache_control": {"type": "ephemeral"}}]
        parts += [{"type": "tool_use", "id": i, "name": name, "input": given} for i, name, given in turn["calls"]]
        messages.append({"role": "assistant", "content": parts})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": i,
                "content": f"of {i}" if turn["as_text"] else [{"type": "text", "text": f"of {i}"}],
            }
            for i, _, _ in turn["calls"]
        ]
    return [*messages, {"role": "user", "content": results}] if results else messages


@percent_of_examples(400)
@given(turns=TURNS)
def test_both_forms_are_the_same_conversation(turns: list[dict[str, Any]]) -> None:
    assert read({"messages": as_anthropic(turns)}, 0).messages == read({"messages": as_openai(turns)}, 0).messages


def test_the_system_message_of_a_request_may_be_parts() -> None:
    cached = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
    row = {"system": [{"type": "text", "text": "Be brief. "}, cached], "messages": [{"role": "user", "content": "q"}]}
    assert read(row, 0).messages[0].fields == {"role": "system", "content": "Be brief. Be kind."}
    in_a_cell = read(row | {"system": json.dumps(row["system"])}, 0)
    assert in_a_cell.messages == read(row, 0).messages
    for text in ('[{"a": 1}]', "[{"):
        assert read(row | {"system": text}, 0).messages[0].fields["content"] == text
    for part, reason in (
        ({"type": "image"}, r"\$\.system\[0\]"),
        ({"text": "a", "image": "b"}, r"`type` at \$\.system\[0\]"),
        ({"type": "tool_use", "name": "f", "input": {}}, "not the assistant's at"),
    ):
        with pytest.raises(Refused, match=reason):
            read(row | {"system": [part]}, 0)


def test_that_a_tool_failed_is_kept_beside_its_result() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "no such city", "is_error": True}
    *_, message = read({"messages": [CALL, {"role": "user", "content": [result]}]}, 0).messages
    assert message.fields == {"role": "tool", "content": "no such city", "tool_call_id": "t", "is_error": True}


@pytest.mark.parametrize(
    ("role", "parts", "code", "reason"),
    [
        ("assistant", [{"type": "tool_result", "content": "x"}], "wrong_type", "not the user's"),
        ("user", [{"type": "text", "text": "a"}, {"type": "tool_result", "content": "x"}], "wrong_type", "come first"),
        ("user", [{"type": "tool_result", "content": [{"type": "image"}]}], "multimodal", r"\[0\]\.content\[0\]"),
        ("user", [{"type": "tool_result", "content": {"a": 1}}], "wrong_type", "`content`"),
        ("user", [{"type": "tool_result", "output": "x"}], "no_content", "other keys: `output`"),
        ("user", [{"type": "tool_result", "text": "x"}], "no_content", "other keys: `text`"),
        ("user", [{"type": "tool_result", "content": "x", "text": "y"}], "wrong_type", "`content` and `text` in one"),
        (
            "user",
            [{"type": "tool_result", "content": [{"type": "tool_use", "name": "f", "input": {}}]}],
            "wrong_type",
            "calls or reasoning in a result",
        ),
        ("user", [{"type": "tool_result"}, {"type": "tool_use", "name": "f", "input": {}}], "wrong_type", "calls"),
        ("user", [{"type": "tool_use", "name": "f", "input": {}}], "wrong_type", "not the assistant's"),
        ("assistant", [{"type": "tool_use", "input": {}}], "bad_tools", "without a name"),
        ("assistant", [{"type": "tool_use", "name": "f", "input": []}], "bad_tools", "expected an object"),
        ("assistant", [{"type": "tool_use", "name": "f", "text": "a"}], "wrong_type", "a call and `text` in one part"),
        ("assistant", [{"type": "tool_use", "name": "f", "args": "a"}], "bad_tools", "other keys: `args`"),
        (
            "assistant",
            [{"type": "tool_use", "name": "f", "input": {}, "partial_json": '{"a": 1}'}],
            "bad_tools",
            r"\$\.messages\[0\]\.content\[0\]; its other keys: `partial_json`",
        ),
        ("assistant", [{"type": "redacted_thinking", "data": "…"}], "wrong_type", "does not know"),
    ],
)
def test_what_cannot_be_such_a_conversation_is_refused(role: str, parts: list[Any], code: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        read({"messages": [{"role": role, "content": parts}]}, 0)
    assert refused.value.code == code


def test_a_call_that_is_also_in_tool_calls_is_one_call() -> None:
    """As messages of LangChain have it; twice, it would teach to call twice."""
    part = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    (message,) = read({"messages": [{"role": "assistant", "content": [part], "tool_calls": [call]}]}, 0).messages
    assert len(message.fields["tool_calls"]) == 1
    call["function"] = {"name": "g", "arguments": "{}"}
    with pytest.raises(Refused, match="say different things"):
        read({"messages": [{"role": "assistant", "content": [part], "tool_calls": [call]}]}, 0)


def test_calls_and_refusals_beside_results_are_refused() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    for more in ({"tool_calls": [{"name": "f", "arguments": {"a": 1}}]}, {"refusal": "No."}):
        with pytest.raises(Refused, match="not the assistant's"):
            read({"messages": [{"role": "user", "content": [result], **more}]}, 0)


def test_a_pair_with_several_results_at_once_shares_only_what_both_answers_have() -> None:
    """A turn of several results is several messages, which once shifted where the answers part."""

    def used(*numbers: int) -> list[dict[str, Any]]:
        calls = [{"type": "tool_use", "id": str(i), "name": "f", "input": {"i": i}} for i in numbers]
        results = [{"type": "tool_result", "tool_use_id": str(i), "content": f"of {i}"} for i in numbers]
        return [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]

    asked = {"role": "user", "content": "q"}
    chosen = [asked, *used(1), *used(2, 3, 4), {"role": "assistant", "content": "done"}]
    sample = read_pair({"chosen": chosen, "rejected": [asked, {"role": "assistant", "content": "bad"}]}, 0)
    assert [message.trained for message in sample.messages] == [None] * 8
    assert sample.preference is not None
    assert sample.preference.rejected is not None
    assert [message.fields["content"] for message in sample.preference.rejected.messages] == ["q", "bad"]


def test_what_a_request_says_about_a_tool_is_not_part_of_its_definition() -> None:
    schema = {"type": "object", "properties": {}}
    tool = {"type": "custom", "name": "f", "description": "Looks.", "input_schema": schema}
    row = {"system": "Be brief.", "tools": [tool | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]}
    sample = read(row | {"messages": [{"role": "user", "content": "q"}]}, 0)
    assert sample.messages[0].fields == {"role": "system", "content": "Be brief."}
    assert sample.tools == [
        {"type": "function", "function": {"name": "f", "description": "Looks.", "parameters": schema}}
    ]


def test_parts_as_text_are_not_trained_as_text() -> None:
    """A table has either texts or lists in a column; some write the lists as JSON."""
    used = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    for part in (used, {"type": "thinking", "thinking": "a"}):
        with pytest.raises(Refused, match=r"the JSON of parts as a text at \$\.messages\[0\]\.content"):
            read({"messages": [{"role": "assistant", "content": json.dumps([part])}]}, 0)
    for text in ('[{"type": "tool_use"', '[{"type": "tool_use"}, {"type": "dog"}]', '[{"type": "text", "text": "a"}]'):
        (message,) = read({"messages": [{"role": "assistant", "content": text}]}, 0).messages
        assert message.fields["content"] == text


def test_the_name_of_a_user_is_not_the_name_of_a_tool() -> None:
    parts = [{"type": "tool_result", "tool_use_id": "t", "content": "x"}, {"type": "text", "text": "So?"}]
    _, result, said = read({"messages": [CALL, {"role": "user", "name": "Bob", "content": parts}]}, 0).messages
    assert result.fields == {"role": "tool", "content": "x", "tool_call_id": "t"}
    assert said.fields == {"role": "user", "content": "So?", "name": "Bob"}
