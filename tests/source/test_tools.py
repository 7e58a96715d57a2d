import json
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from packer.source.decode import Refused, decode_json
from packer.source.schema import read_row

FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
USER = {"role": "user", "content": "hi"}


def row(**message):
    return {"messages": [USER, {"role": "assistant", "content": None} | message]}


def with_tools(tools, name="tools"):
    return {"messages": [USER], name: tools}


CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
STRICT = {"name": "f", "parameters": CITY, "strict": True}
BARE = {"parameters": {"b": 1, "a": 2}, "name": "f"}
WHOLE = {"function": BARE, "type": "function", "strict": True}
KEYS = ("input_schema", "inputSchema", "parameters")


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        ([TOOL], TOOL),
        (TOOL, TOOL),
        (FUNCTION, TOOL),
        ([FUNCTION], TOOL),
        ([FUNCTION | {"type": "function"}], TOOL),
        ([{"function": FUNCTION}], TOOL),
        (json.dumps([TOOL]), TOOL),
        (json.dumps(FUNCTION), TOOL),
        ([json.dumps(TOOL)], TOOL),
        # the order of keys is kept
        ([BARE], {"type": "function", "function": BARE}),
        ([WHOLE], WHOLE),
        # parameters are an object where templates look for them
        *(
            ([{"name": "f", key: schema, "strict": True}], {"type": "function", "function": STRICT})
            for key in KEYS
            for schema in (CITY, json.dumps(CITY))
        ),
    ],
)
def test_tools_come_out_in_one_form_whatever_form_they_come_in(sample, tools, found):
    for name in ("tools", "functions"):
        assert json.dumps(sample(with_tools(tools, name)).tools) == json.dumps([found])


@pytest.mark.parametrize("tools", [None, [], "", " ", "[]", "null"])
def test_no_tools_are_none(sample, tools):
    assert sample(with_tools(tools)).tools is None


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ("{", "the JSON in $.tools: ends too early, at byte 1"),
        ("7", "expected a list of tools, got `int` at $.tools"),
        ([3], "expected a tool definition, got `int` at $.tools[0]"),
        ([TOOL, {"x": 1}], "a tool without a name at $.tools[1]"),
        ([{"type": "function", "function": {}}], "a tool without a name at $.tools[0]"),
    ],
)
def test_tools_that_cannot_be_read_refuse_the_row(refusal, tools, reason):
    assert refusal(with_tools(tools)) == ("bad_tools", reason)


NONE = {"type": "function", "function": {"name": "f", "arguments": {}}}
LOGGED = {"name": "f", "arguments": {"x": 1}, "requestor": "assistant", "index": 0}
PARSED = {"function": {"arguments": '{"x": 1}', "name": "f", "parsed": True}}


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ({"function": "f", "arguments": {"x": 1}, "type": "function"}, CALL),
        (CALL, CALL),
        ({"function": {"name": "f", "arguments": '{"x": 1}'}}, CALL),
        ({"name": "f", "arguments": {"x": 1}}, CALL),
        ({"name": "f", "arguments": '{"x": 1}'}, CALL),
        ('{"name": "f", "arguments": {"x": 1}}', CALL),
        (CALL | {"id": "a"}, {"id": "a", **CALL}),
        ({"id": "b", "name": "f", "arguments": {"x": 1}}, {"id": "b", **CALL}),
        *(({"name": "f", "arguments": nothing}, NONE) for nothing in ("", " ", None, {}, "{}")),
        # templates that write all of `function` would train what else a log says
        (LOGGED, {"requestor": "assistant", "index": 0, **CALL}),
        # the name comes first
        (PARSED, {"type": "function", "function": {"name": "f", "arguments": {"x": 1}, "parsed": True}}),
        # the only object of a call without arguments is its arguments
        *(({"name": "f", key: {"x": 1}}, CALL) for key in ("args", "parameters", "input", "params", "kwargs")),
        *(({"function": {key: {"x": 1}, "name": "f"}}, CALL) for key in ("args", "parameters", "input", "kwargs")),
    ],
)
def test_calls_come_out_in_one_form_with_arguments_as_an_object(sample, call, found):
    for calls in ([call], json.dumps([call])):
        for more in ({}, {"additional_kwargs": {"tool_calls": [CALL]}}):  # once more under another name
            (read,) = sample(row(tool_calls=calls, **more)).messages[1].fields["tool_calls"]
            assert read == found and json.dumps(read["function"]) == json.dumps(found["function"])


@pytest.mark.parametrize("form", ["{}", " {} ", "[{}]"])
def test_a_call_may_be_text_as_python_prints_it(sample, form):
    """As in Toucan, whose arguments are JSON in turn."""
    printed = form.format({"name": "f", "arguments": json.dumps({"x": "it's", "y": [True, None]})})
    for message in ({"role": "tool_call", "content": printed}, {"role": "assistant", "tool_calls": printed}):
        (call,) = sample({"messages": [{"role": "user", "content": "?"}, message]}).messages[1].fields["tool_calls"]
        assert call["function"] == {"name": "f", "arguments": {"x": "it's", "y": [True, None]}}
    with pytest.raises(Refused, match="JSON"):
        sample({"messages": [{"role": "user", "content": "?"}, {"role": "tool_call", "content": printed + " or"}]})


def test_the_row_is_not_changed_by_reading_it(sample):
    given = row(tool_calls=[{"name": "f", "arguments": "{}"}], reasoning="x", weight=1) | {"tools": [FUNCTION]}
    before = json.dumps(given)
    sample(given)
    assert json.dumps(given) == before


WHERE = "$.messages[1].tool_calls[0]"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (3, f"expected a tool call, got `int` at {WHERE}"),
        ({"function": "f"}, f"a call without a name at {WHERE}.function"),
        (
            {"function": {"name": "f", "parameters": {"x": 1}, "args": {"x": 2}}},
            f"a call without `arguments` at {WHERE}.function; its other keys: `parameters`, `args`",
        ),
        (
            {"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}},
            f"a call without `arguments` at {WHERE}; its other keys: `parameters`",
        ),
        ({"name": "f", "input": 0}, f"a call without `arguments` at {WHERE}; its other keys: `input`"),
        ({"name": "f", "city": "x"}, f"a call without `arguments` at {WHERE}; its other keys: `city`"),
        (
            {"name": "f", "arguments": {}, "params": {"x": 1}},
            f"a call without `arguments` at {WHERE}; its other keys: `params`",
        ),
        ({"name": "f", "args": "x"}, f"a call without `arguments` at {WHERE}; its other keys: `args`"),
        (
            {"name": "f", "arguments": {}, "parameters": {"x": 1}},
            f"a call without `arguments` at {WHERE}; its other keys: `parameters`",
        ),
        (
            {"name": "f", "arguments": {"x": 1}, "function": {"name": "g", "arguments": {}}},
            f"a call both beside `function` and in it at {WHERE}",
        ),
        ({"arguments": {}}, f"a call without a name at {WHERE}"),
        (
            {"function": {"name": "f"}, "args": {"x": 1}},
            f"a call without `arguments` at {WHERE}; it has `args` beside `function`",
        ),
        ({"name": "f", "arguments": "{x}"}, f"the JSON in {WHERE}.arguments: object keys must be strings near byte 1"),
        ({"name": "f", "arguments": "[1]"}, f"expected an object, got `array` at {WHERE}.arguments"),
        ({"name": "f", "arguments": 3}, f"expected an object, got `int` at {WHERE}.arguments"),
    ],
)
def test_a_call_that_cannot_be_read_refuses_the_row(refusal, call, reason):
    assert refusal(row(tool_calls=[call])) == ("bad_tools", reason)


@pytest.mark.parametrize("key", ["parameters", "input_schema"])
def test_the_null_of_a_unified_table_takes_no_parameters_away(sample, key):
    (read,) = sample(with_tools([{"name": "w", "parameters": None, "input_schema": None} | {key: CITY}])).tools
    assert read["function"]["parameters"] == CITY


def test_nulls_of_a_table_that_was_written_as_json_refuse_the_row(sample, refusal):
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    called = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"city": "Paris", "a": None}}]}
    code, reason = refusal({"messages": [called], "tools": [tool]})
    assert code == "bad_tools" and "`f` has a null for `a`" in reason
    unified = {"name": "f", "parameters": {"type": "object", "properties": {"city": {}, "a": None}}}
    code, reason = refusal({"messages": [called], "tools": [unified]})
    assert code == "bad_tools" and "`a` is null at $.tools[0].parameters.properties" in reason
    known = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"city": None}}]}
    (message,) = sample({"messages": [known], "tools": [tool]}).messages
    assert message.fields["tool_calls"][0]["function"]["arguments"] == {"city": None}
    (message,) = sample({"messages": [called]}).messages  # nothing says what the tool takes
    assert message.fields["tool_calls"][0]["function"]["arguments"] == {"city": "Paris", "a": None}


@pytest.mark.parametrize(
    "fields",
    [
        {"parts": [{"type": "tool-look", "input": {}}]},
        {"toolInvocations": [{"toolName": "look"}]},
        {"additional_kwargs": {"tool_calls": [{"id": "1"}]}},
        {"recipient": "functions.look", "content": '{"x": 1}'},
        {"recipient": "python", "content": "look(1)", "channel": "analysis"},
    ],
)
def test_calls_under_other_names_refuse_the_row(sample, refusal, fields):
    code, reason = refusal({"messages": [{"role": "assistant", "content": "", **fields}]})
    assert code == "bad_tools" and f"`{next(iter(fields))}`" in reason
    parts = [{"type": "text", "text": "Hello"}]
    assert refusal({"messages": [{"role": "assistant", "content": "", "parts": parts}]})[0] == "no_content"
    assert sample({"messages": [{"role": "assistant", "content": "Hello", "parts": parts}]})
    assert sample({"messages": [{"role": "assistant", "content": "Hello", "recipient": "all"}]})


@pytest.mark.parametrize("name", ["tools", "messages", "add_generation_prompt"])
def test_variables_that_packer_sets_are_none_of_the_rows_own(refusal, name):
    row = {"messages": [{"role": "assistant", "content": "a"}], "chat_template_kwargs": {name: [1]}}
    code, reason = refusal(row)
    assert code == "wrong_type" and f"`{name}`" in reason


def test_calls_of_one_turn_are_one_message(sample):
    call, other = '{"name": "f", "arguments": {}}', '{"name": "g", "arguments": {}}'
    said = [("user", "a"), ("assistant", "Let me see."), ("tool_call", call), ("tool_call", other), ("tool", "r")]
    messages = sample({"messages": [{"role": role, "content": text} for role, text in said]}).messages
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
    assert messages[1].fields["content"] == "Let me see."
    assert [each["function"]["name"] for each in messages[1].fields["tool_calls"]] == ["f", "g"]


@pytest.mark.parametrize("flag", [True, False, None])
def test_calls_have_the_flag_of_the_text_whose_turn_they_are_or_refuse_the_row(sample, refusal, flag):
    call, other = '{"name": "f", "arguments": {}}', '[{"name": "g", "arguments": {}}, {"name": "h", "arguments": {}}]'
    said = [
        USER,
        {"role": "assistant", "content": "a", "loss": flag},
        {"role": "tool_call", "content": call, "loss": flag},
        {"role": "tool_call", "content": other, "loss": flag},
    ]
    turns = [{"from": each["role"], "value": each["content"], "loss": flag} for each in said]
    for row, schema in (({"messages": said}, "messages"), ({"conversations": turns}, "sharegpt")):
        (_, turn) = sample(row, schema).messages
        assert [each["function"]["name"] for each in turn.fields["tool_calls"]] == ["f", "g", "h"]
        assert turn.trained is flag
    for other_flag in {True, None} if flag is False else {False}:
        code, reason = refusal({"messages": [*said[:3], {**said[3], "loss": other_flag}]})
        assert code == "wrong_type" and reason.startswith("a call at $.messages[3] with another flag")


def test_a_call_may_have_its_name_and_arguments_as_fields_of_its_message(sample, refusal):
    turn = {"role": "tool_call", "name": "f", "arguments": '{"x": 1}', "id": "7", "loss": False}
    (message,) = sample({"messages": [turn]}).messages
    assert message.fields["tool_calls"] == [
        {"id": "7", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    ]
    assert (message.fields.keys(), message.trained) == ({"role", "content", "tool_calls"}, False)
    turns = [{"from": "function_call", "name": "f", "arguments": {"x": 1}}]
    (message,) = sample({"conversations": turns}, "sharegpt").messages
    assert message.fields["tool_calls"] == [CALL]
    turn = {"role": "tool_call", "name": "f", "city": "x"}
    assert refusal({"messages": [turn]})[0] == "bad_tools"


def test_a_tool_without_parameters_takes_no_null_and_an_open_one_takes_any(sample, refusal):
    called = {"role": "assistant", "tool_calls": [{"name": "now", "arguments": {"city": None}}]}
    schema = {"type": "object", "properties": {}}
    row = {"messages": [called], "tools": [{"name": "now", "parameters": schema}]}
    assert refusal(row)[0] == "bad_tools"
    row["tools"] = [{"name": "now", "parameters": schema | {"additionalProperties": True}}]
    assert sample(row)


def test_calls_join_whatever_ids_and_senders_their_messages_have(sample):
    call = {"content": '{"name": "f", "arguments": {}}', "id": "2"}
    said = [USER, {"role": "assistant", "content": "a", "id": "1"}]
    for piece in (call | {"role": "tool_call"}, {"role": "assistant", "id": "2", "content": " ", "tool_calls": [CALL]}):
        (_, turn) = sample({"messages": [*said, piece]}).messages
        assert (turn.fields["id"], turn.fields["content"], len(turn.fields["tool_calls"])) == ("1", "a", 1)


@pytest.mark.parametrize(
    "second",
    [
        {"content": "b"},
        {"content": ""},
        {"content": "b", "tool_calls": [CALL]},
        {"content": None, "reasoning_content": "x"},
        {"content": None, "reasoning_content": "x", "tool_calls": [CALL]},
    ],
)
def test_two_answers_in_a_row_refuse_the_row_unless_the_second_is_calls_alone(refusal, sample, second):
    for first in ({"content": "a"}, {"content": ""}, {"content": None, "tool_calls": [CALL]}):
        answers = [{"role": "assistant", **each} for each in (first, second)]
        code, reason = refusal({"messages": [USER, *answers]})
        assert code == "wrong_type" and "two answers in a row, the second of them at $.messages[2]" in reason
        assert refusal({"prompt": [USER, answers[0]], "completion": answers[1:]}, "completion")[0] == "wrong_type"
        assert sample({"messages": [USER, answers[0], USER, answers[1]]})


def test_a_call_after_a_prompt_that_ends_with_its_text_refuses_the_row(refusal):
    prompt = [USER, {"role": "assistant", "content": "a"}]
    code, reason = refusal({"prompt": prompt, "completion": call_turns("f")}, "completion")
    assert code == "wrong_type" and "trained whole or not at all" in reason


def call_turns(*names):
    return [{"role": "tool_call", "content": json.dumps({"name": name, "arguments": {}})} for name in names]


def test_calls_of_a_completion_and_of_rated_answers_join_the_text_before_them(sample):
    asked = [USER, {"role": "assistant", "content": "a1"}, {"role": "user", "content": "q2"}]
    answer = [{"role": "assistant", "content": "Let me look."}, *call_turns("f", "g")]
    for schema, more in (("completion", {}), ("rated", {"label": True})):
        found = sample({"prompt": asked, "completion": answer, **more}, schema)
        assert [message.role for message in found.messages] == ["user", "assistant", "user", "assistant"]
        assert found.messages[1].trained is False, schema
        assert len(found.messages[3].fields["tool_calls"]) == 2
        assert found.messages[3].trained is not False


@pytest.mark.parametrize("in_prompt", [True, False])
def test_both_answers_of_a_pair_keep_their_context_where_calls_join_turns(sample, in_prompt):
    asked = [USER, {"role": "assistant", "content": "a1"}, {"role": "user", "content": "q2"}]
    text = {"role": "assistant", "content": "Let me look."}
    row = {
        "prompt": asked,
        "chosen": [text, *call_turns("f", "g")],
        "rejected": [{"role": "assistant", "content": "No."}],
    }
    if not in_prompt:
        row = {"chosen": [*asked, *row["chosen"]], "rejected": [*asked, *row["rejected"]]}
    found = sample(row, "preference")
    for side, num_calls in ((found, 2), (found.preference.rejected, 0)):
        assert [message.role for message in side.messages] == ["user", "assistant", "user", "assistant"]
        assert side.messages[1].trained is False and side.messages[3].trained is not False
        assert len(side.messages[3].fields.get("tool_calls", ())) == num_calls
    same_text = {"chosen": [USER, text, *call_turns("f")], "rejected": [USER, text, *call_turns("g")]}
    pair = sample(same_text, "preference")
    assert [each.messages[1].fields["content"] for each in (pair, pair.preference.rejected)] == ["Let me look."] * 2


digits = st.text("0123456789", min_size=1, max_size=25)
numbers = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.integers(min_value=0).map(str),
    st.just("") | digits.map(".{}".format),
    st.just("")
    | st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 500)),
)


@given(number=numbers, as_text=st.booleans())
@example(number="1E-400", as_text=True)
@example(number="-0.0001e-322", as_text=False)
@example(number="0E-400", as_text=False)
@example(number="1e400", as_text=True)
def test_a_number_of_a_call_is_the_rows_to_the_precision_of_a_float_or_refuses_the_row(number, as_text):
    arguments = f'{{"x": {number}}}'
    call = f'{{"name": "f", "arguments": {json.dumps(arguments) if as_text else arguments}}}'
    text = f'{{"messages": [{{"role": "assistant", "content": "e-100", "tool_calls": [{call}]}}]}}'
    try:
        found = read_row(decode_json(text.encode()), number=0, schema="messages", columns={})
    except Refused as refused:
        assert "a number is out of range" in refused.reason
        assert abs(Decimal(number)) > Decimal("1.79e308")
        return
    value = found.messages[0].fields["tool_calls"][0]["function"]["arguments"]["x"]
    exact = Decimal(number)
    if isinstance(value, int):
        assert value == exact
    else:
        assert abs(Decimal(value) - exact) <= max(abs(exact) * Decimal(2) ** -53, Decimal("2.5e-324"))


def test_a_call_of_a_tool_that_the_row_does_not_define_refuses_it(sample, refusal):
    called = {"role": "assistant", "tool_calls": [{"name": "g", "arguments": {}}]}
    assert refusal({"messages": [called], "tools": [{"name": "f"}]}) == (
        "bad_tools",
        "a call of `g`, which is not one of the row's tools",
    )
    assert sample({"messages": [called], "tools": [{"name": "f"}, {"name": "g"}]}).tools
    assert sample({"messages": [called]}).tools is None


@pytest.mark.parametrize(
    ("closed", "is_kept"), [(False, False), (True, True), ({"type": "string"}, True), (None, True)]
)
def test_an_argument_that_a_closed_schema_does_not_name_refuses_the_row(sample, refusal, closed, is_kept):
    schema = {"type": "object", "properties": {"city": {}}, "additionalProperties": closed}
    tool = {"name": "f", "parameters": {key: value for key, value in schema.items() if value is not None}}
    called = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"town": "Paris"}}]}
    row = {"messages": [called], "tools": [tool]}
    if is_kept:
        assert sample(row).tools
    else:
        assert refusal(row) == ("bad_tools", "a call of `f` has `town`, which the tool does not take")
