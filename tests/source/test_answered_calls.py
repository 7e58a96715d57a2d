"""Results of tools that belong to no call, or to one that has a result already, reject their row."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.source import chat
from packer.source.decode import Refused
from packer.source.tools_and_calls import refuse_stray_results


def calls(*ids):
    made = [{"id": each, "type": "function", "function": {"name": "look", "arguments": {}}} for each in ids]
    return {"role": "assistant", "content": "", "tool_calls": made}


def calls_of(*names, ids=()):
    turn = calls(*(ids or [None] * len(names)))
    for call, name in zip(turn["tool_calls"], names, strict=True):
        call["function"]["name"] = name
    return turn


def result(made=None, tool=None):
    said = {"tool_call_id": made, "name": tool}
    return {"role": "tool", "content": "7", **{key: value for key, value in said.items() if value is not None}}


SAID = {"role": "assistant", "content": "Seven."}
ASKED = {"role": "user", "content": "How many?"}


@pytest.mark.parametrize(
    "messages",
    [
        [calls("a", "b"), result("a"), result("b"), SAID],
        [calls("a", "b"), result("b"), result("a"), SAID],
        [calls("a", "b"), {**result(), "content": "<result>6</result><result>7</result>"}, SAID],
        [calls("a", "b"), ASKED, SAID],  # who may say the results
        [calls("a"), result("a"), SAID, ASKED, calls("b")],
        [calls("a", "b"), result("a")],  # nothing is learned behind it
        [calls("a"), result("a"), calls("a"), result("a"), SAID],  # numbered anew for each answer
        [calls("a"), calls("b"), result("a"), result("b"), SAID],
        [calls_of("look", "read"), result(tool="read"), result(tool="look"), SAID],
        [calls_of("look", "look"), result(tool="look"), result(tool="look"), SAID],
        [calls_of("look"), result(tool="look"), calls_of("look"), result(tool="look"), SAID],
        [calls_of("look", "read", ids="ab"), result("b", "read"), result("a", "look"), SAID],
        [calls_of("look", "read", ids="ab"), result("b"), result(tool="look"), SAID],
        [calls_of("look", "look", ids="ab"), result(), result(tool="look"), SAID],
        [calls_of("look"), result("x", "look"), SAID],
        [calls("a", None), result("a"), result("x"), SAID],  # what is not said on both sides cannot be compared
        [calls(None), result("x"), SAID],
        [SAID, result(), result(tool="look"), SAID],  # the call may be in the text
    ],
)
def test_what_may_be_right_is_kept(messages):
    row = chat.read({"messages": [ASKED, *messages]}, 0)
    given = [message["role"] for message in messages]
    turns = [role for before, role in pairwise([None, *given]) if not before == role == "assistant"]
    assert [message.role for message in row.messages][1:] == turns


def stray(what, at):
    return f"a result of {what} at $.messages[{at}], which is not a call before it"


def second(call, at):
    return f"a second result of the call `{call}` at $.messages[{at}]"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([calls("a", "b"), result("c"), SAID], stray("`c`", 2)),
        ([result("x"), SAID], stray("`x`", 1)),
        ([SAID, result("x"), SAID], stray("`x`", 2)),
        ([result(), SAID], stray("a tool", 1)),
        ([calls("a"), result("a"), result("a"), SAID], second("a", 3)),
        ([calls("a"), result("b"), calls("b"), SAID], stray("`b`", 2)),
        *(
            (
                said,
                f"results and calls differ in number before $.messages[{end}]: {count}; a template without ids gives a result to another call",
            )
            for said, count, end in [
                ([calls("a", "b"), result("b"), SAID], "1 and 2", 3),
                ([calls("a", "b"), result("a"), ASKED, SAID], "1 and 2", 3),
                ([calls("a", "b", "c"), result("a"), result("b"), calls("d"), SAID], "2 and 3", 4),
                ([calls(None, None, None), result(), result(), SAID], "2 and 3", 4),
                ([calls(None, None), result(), SAID], "1 and 2", 3),
                ([calls("a"), ASKED, calls("b"), result("b"), SAID], "0 and 1", 2),
                ([calls("a"), result("a"), SAID, ASKED, calls("b"), calls("c"), ASKED, SAID], "0 and 2", 7),
                ([calls(None), result(), result(), SAID], "2 and 1", 4),
                ([calls(None, None), {**result(), "content": "[1, 2, 3]"}, SAID], "1 and 2", 3),
                ([calls("a", "b"), {**result("a"), "content": "[1, 2]"}, SAID], "1 and 2", 3),
                ([calls("a", "b"), {**result(), "tool_call_ids": ["a", "b"]}, SAID], "1 and 2", 3),
            ]
        ),
        ([calls_of("look"), result(tool="read"), SAID], stray("`read`", 2)),
        ([calls_of("look", "read", ids=["a", None]), result(tool="see"), SAID], stray("`see`", 2)),
        (
            [calls_of("look", "read", ids="ab"), result("a", "read"), SAID],
            "a result of `read` at $.messages[2], but the call `a` is of another tool",
        ),
        ([calls_of("look"), result(tool="look"), result(tool="look"), SAID], second("look", 3)),
        ([calls_of("look", "read"), result("x", "look"), result("y", "look"), SAID], second("look", 3)),
    ],
)
def test_a_result_that_belongs_to_no_call_rejects_the_row(messages, reason):
    with pytest.raises(Refused) as caught:
        chat.read({"messages": [ASKED, *messages]}, 0)
    assert caught.value.args == ("bad_tools", reason)


@pytest.mark.parametrize(
    ("said", "results"),
    [
        ({"content": "[6, 7]"}, [("6", None), ("7", None)]),
        ({"content": '{"tide": 6}\n{"tide": 7}\n'}, [('{"tide": 6}', None), ('{"tide": 7}', None)]),
        ({"content": '["6", "7"]', "ids": ["b", "a"]}, [("6", "b"), ("7", "a")]),
        (
            {"content": '[{"id": "a", "content": "6"}, {"id": "b", "content": {"n": 7}}]', "tool_call_id": "a"},
            [("6", "a"), ('{"n": 7}', "b")],
        ),
        ({"content": '[{"id": "b"}, {"id": "a"}]', "tool_call_id": "a"}, [('{"id": "b"}', "b"), ('{"id": "a"}', "a")]),
    ],
)
def test_a_list_of_the_results_of_all_calls_is_a_message_for_each(said, results):
    row = chat.read({"messages": [ASKED, calls("a", "b"), {"role": "tool", **said}, SAID]}, 0)
    *_, first, second, answer = (message.fields for message in row.messages)
    assert [(each["content"], each.get("tool_call_id")) for each in (first, second)] == results
    assert answer == SAID
    assert "ids" not in first


def test_a_list_that_may_be_one_result_stays_one():
    hits = {"role": "tool", "content": "[6, 7]"}
    for made in ([calls("a")], [calls("a", "b"), result("a")]):
        said = chat.read({"messages": [ASKED, *made, {**hits, "tool_call_id": "ab"[len(made) - 1]}, SAID]}, 0)
        assert said.messages[-2].fields["content"] == "[6, 7]"


@pytest.mark.parametrize("key", ["id", "toolCallId", "of"])
def test_an_id_of_a_call_is_that_of_the_result_under_any_key(key):
    def read(results):
        return chat.read({"messages": [ASKED, calls("a", "b"), *results, SAID]}, 0)

    def moved(made):
        return {"role": "tool", "content": "7", key: made}

    assert read([moved("b"), moved("a")]) == read([result("b"), result("a")])
    with pytest.raises(Refused, match="bad_tools"):
        read([moved("b"), moved("b")])


@pytest.mark.parametrize("key", ["tool_name", "function"])
def test_a_tool_that_was_called_is_that_of_the_result_under_any_key(key):
    results = [{"role": "tool", "content": tool, key: tool} for tool in ("read", "look")]
    row = chat.read({"messages": [ASKED, calls_of("look", "read"), *results, SAID]}, 0)
    assert [message.fields.get("name") for message in row.messages][2:4] == ["read", "look"]


@pytest.mark.parametrize("key", ["id", "toolCallId", "callID", "tool_use_id"])
def test_an_id_that_only_results_have_is_one_of_a_call(key):
    """An id that other messages have too is that of the message."""
    row = {"messages": [ASKED, calls("a"), {"role": "tool", "content": "7", key: "zz"}, SAID]}
    with pytest.raises(Refused, match="zz"):
        chat.read(row, 0)
    with_ids = [{**message, key: f"m{number}"} for number, message in enumerate(row["messages"])]
    assert chat.read({"messages": with_ids}, 0)


@given(
    st.lists(
        st.lists(st.sampled_from("abc"), max_size=3).map(lambda ids: calls(*ids)) | st.sampled_from("abcd").map(result)
    ),
    st.permutations("abcd"),
)
def test_ids_matter_only_as_far_as_they_are_the_same(messages, names):
    new = dict(zip("abcd", names, strict=True))

    def renamed(message):
        if message["role"] == "tool":
            return result(new[message["tool_call_id"]])
        return calls(*(new[call["id"]] for call in message["tool_calls"]))

    def outcome(rows):
        try:
            refuse_stray_results(rows)
        except Refused as refused:
            return refused.args[1].split("`")[0]
        return None

    assert outcome(messages) == outcome([renamed(message) for message in messages])
