"""Answers that are calls of the row's tools are read as calls; a text with a call in it is never an answer."""

import json

import pytest

SCHEMA = {"type": "object", "properties": {"harbor": {"type": "string"}, "day": {"type": "string"}}}
TOOLS = [{"name": "tide", "parameters": SCHEMA}, {"name": "now", "parameters": {"type": "object", "properties": {}}}]
OBAN = {"harbor": "Oban"}
CALL = {"type": "function", "function": {"name": "tide", "arguments": OBAN}}
NOW = {"type": "function", "function": {"name": "now", "arguments": {}}}


WRITTEN = json.dumps(CALL["function"])


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
        {"recipient_name": "functions.tide", "parameters": OBAN},
        {"function": "tide", "harbor": "Oban"},
        " " + json.dumps([{"name": "tide", "arguments": OBAN}], indent=2) + "\n",
        f"```json\n{WRITTEN}\n```",
        f"<functioncall> {WRITTEN} <|endoftext|>",
        f"<functioncall> {{'name': 'tide', 'arguments': '{json.dumps(OBAN)}'}} <|endoftext|>",
        f"<tool_call>\n{WRITTEN}\n</tool_call>",
        "<tool_call>\n{'arguments': {'harbor': 'Oban'}, 'name': 'tide'}\n</tool_call>\n",
        f"[TOOL_CALLS] [{WRITTEN}]",
        f"<|python_tag|>{WRITTEN}",
        'tide(harbor="Oban")',
        "[tide(harbor='Oban')]",
        '```python\ntide(harbor="Oban")\n```',
    ],
)
def test_an_answer_that_is_a_call_and_nothing_else_is_that_call(sample, answer):
    assert answered(sample, answer) == {"role": "assistant", "content": "", "tool_calls": [CALL]}


def test_several_calls_keep_their_order_and_ids_and_reasoning_stays_before_them(sample):
    calls = [{"name": "now", "arguments": {}}, {"name": "tide", "arguments": OBAN, "id": "7"}]
    thought = "<think>\nBoth.\n</think>"
    fields = answered(sample, f"{thought}\n\n{json.dumps(calls)}")
    assert fields == {"role": "assistant", "content": thought, "tool_calls": [NOW, CALL | {"id": "7"}]}
    assert answered(sample, "tide(harbor='#1')")["tool_calls"][0]["function"]["arguments"] == {"harbor": "#1"}
    for text in (f"{WRITTEN}\n{WRITTEN}", f"<tool_call>{WRITTEN}</tool_call>\n" * 2, "tide(harbor='Oban')\n" * 2):
        assert answered(sample, text)["tool_calls"] == [CALL, CALL]


@pytest.mark.parametrize("mark", ["<tool_call>\n", "[TOOL_CALLS]", "<functioncall> "])
def test_before_a_mark_of_calls_an_answer_may_have_a_text(sample, mark):
    assert answered(sample, f"Let me look.\n\n{mark}{WRITTEN}") == {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [CALL],
    }


def test_a_text_that_repeats_the_calls_of_its_message_is_left_out(sample, refusal):
    def row(text):
        return {
            "messages": [{"role": "assistant", "content": text, "tool_calls": [CALL | {"id": "a"}]}],
            "tools": TOOLS,
        }

    for text, left in ((f"<tool_call>{WRITTEN}</tool_call>", ""), (f"So.\n<tool_call>{WRITTEN}", "So.")):
        fields = sample(row(text)).messages[0].fields
        assert (fields["content"], fields["tool_calls"]) == (left, [CALL | {"id": "a"}])
    for text in (WRITTEN.replace("Oban", "Ayr"), f"So: {WRITTEN}", f"<tool_call>{WRITTEN}</tool_call>" * 2):
        assert refusal(row(text))[0] == "bad_tools"
    for text in ("I ask tide(harbor='Oban').", "Look."):
        assert sample(row(text)).messages[0].fields["content"] == text


def test_answers_in_messages_and_in_completions_are_read_and_keep_their_flags(sample):
    asked, text = {"role": "user", "content": "Tide?"}, json.dumps({"name": "tide", "arguments": OBAN})
    said = [asked, {"role": "assistant", "content": text, "loss": False}, asked, {"role": "assistant", "content": text}]
    read = sample({"messages": said, "tools": TOOLS}).messages
    assert [(message.fields.get("tool_calls"), message.trained) for message in read[1::2]] == [
        ([CALL], False),
        ([CALL], None),
    ]
    (_, read) = sample({"prompt": [asked], "completion": text, "tools": TOOLS}, "completion").messages
    assert (read.fields["tool_calls"], read.trained) == ([CALL], True)


@pytest.mark.parametrize(
    "answer",
    [
        "06:12",
        "{not json}",
        "[]",
        {"name": "train", "arguments": OBAN},
        "<think>half",
        "<think>tide(harbor='Oban') tells.</think>At six.",
        "You can call tide(harbor) or now() for that.",
        "The `tide` tool needs a `harbor`; its arguments: one name.",
        "The tide(s) of Oban are high.",
        "tide(harbor: str) tells the time.",
        "Only <code>tide</code> is available.",
        '<input name="tide" value="argument">',
        "def tide(harbor='Oban'): return 6",
        "print(harbor='Oban')",
        "Action: none",
        "Action: tide tables are to be read.",
        'GET /tide\n{"harbor": "Oban"}',
        'The tide of today:\n{"harbor": "Oban"}',
        'tide\n{"high": "06:12"}',
        "- tide: {harbor}",
        "**tide**\n- `harbor`: the name of the harbor",
        "Tide:\n- Harbor: Oban",
        "The tide, at any harbor: 06:12.",
        "I can tell the tide. Which harbor? Name: Oban",
        "Tide tables of Oban",
    ],
)
def test_other_answers_stay_texts_and_without_tools_so_do_calls(sample, answer):
    text = answer if isinstance(answer, str) else json.dumps(answer)
    assert answered(sample, text) == {"role": "assistant", "content": text}
    assert answered(sample, WRITTEN, tools=None) == {"role": "assistant", "content": WRITTEN}


@pytest.mark.parametrize(
    "answer",
    [
        f"I'll look that up: {WRITTEN}",
        f"```json\n{WRITTEN}\n```\nThat was it.",
        f"<tool_call>{WRITTEN}</tool_call> Done.",
        WRITTEN.replace("}", ""),
        json.dumps(WRITTEN),
        {"tool_calls": [CALL]},
        {"name": "tide"},
        {"name": "tide", "version": "1.0"},
        {"tool": "tide", "result": {"high": "06:12"}},
        {"tide": "Oban"},
        {"thought": "I look.", "next": [{"run": "functions.tide"}]},
        {"name": "tide", "arguments": [OBAN]},
        [[{"name": "tide", "arguments": OBAN}]],
        [{"name": "tide", "arguments": OBAN}, {"name": "train", "arguments": OBAN}],
        {"action": "tide", "action_input": "Oban"},
        'tide("Oban")',
        "tide(harbor=true)",
        "tide(**{'harbor': 'Oban'}, harbor='Ayr')",
        "times = tide(harbor='Oban')",
        "Thought: I must look.\nAction: tide\nAction Input: Oban",
        "**Action**: `tide`",
        '<tool_call>{"name": "tide"}</tool_call>',
        TOOLS[0],
        '<run tool="tide"><arg name="harbor">Oban</arg></run>',
        'tide[ARGS]{"harbor": "Oban"}',
        '>>>all\nI look.\n>>>tide\n{"harbor": "Oban"}',
        '<tide>{"harbor": "Oban"}</tide>',
        '**tide**\n```json\n{"harbor": "Oban"}\n```',
        "<start_function_call>call:tide{harbor:<escape>Oban<escape>}<end_function_call>",
        'At once.\n<|python_tag|>tide.call(harbor="Oban")',
        "<function=tide>\n<parameter=harbor>\nOban\n</parameter>\n</function>",
        "<tool_call>tide\n<arg_key>harbor</arg_key>\n<arg_value>Oban</arg_value>\n</tool_call>",
        '✿FUNCTION✿: tide\n✿ARGS✿: {"harbor": "Oban"}',
        "<tide>\n<harbor>Oban</harbor>\n</tide>",
        'print(default_api.tide(harbor="Oban"))',
        {"tide": OBAN},
        "- name: tide\n  arguments:\n    harbor: Oban",
        "I look.\n\n```yaml\ntide:\n  - harbor: Oban\n```",
        "tide\n```python\ntool_call(harbor='Oban')\n```",
        '<tide harbor="Oban" />',
        'At [Tide(harbor="Oban") -> 06:12] six.',
        "TIDE(harbor='Oban')",
        '{"name": "Tide", "arguments": {"harbor": "Oban"}}',
        "$ tide --harbor Oban",
        'tide harbor="Oban"',
    ],
)
def test_an_answer_with_a_call_and_other_things_refuses_the_row(refusal, answer):
    text = answer if isinstance(answer, str) else json.dumps(answer)
    code, reason = refusal({"instruction": "a", "output": text, "tools": TOOLS}, "alpaca")
    assert code == "bad_tools" and "a call of `tide` within the text at $.messages[1]" in reason


@pytest.mark.parametrize(
    "form", ["/{} Oban", "{}: Oban", "!{} Oban 3", "[{}] Oban", "<{}>Oban</{}>", "{{{{{} Oban}}}}"]
)
def test_an_answer_that_begins_with_a_name_that_is_no_word_is_a_call(sample, refusal, form):
    for name in ("get_tide", "getTide", "tide2"):
        row = {"instruction": "Tide?", "tools": [{"name": name, "parameters": SCHEMA}]}
        assert refusal(row | {"output": form.format(name, name)}, "alpaca")[0] == "bad_tools"
        for text in (f"I use {name}: Oban", f"{name} tells the tide.", f"- {name}: the tide\n- now: the time", name):
            assert sample(row | {"output": text}, "alpaca").messages[-1].fields["content"] == text
    row = {"instruction": "Tide?", "tools": [{"name": "Tide", "parameters": SCHEMA}], "output": "Tide tables of Oban"}
    assert sample(row, "alpaca").messages[-1].fields["content"] == row["output"]


def test_a_rejected_answer_may_be_a_call_as_text(sample, refusal):
    asked, good, bad = ({"role": "user", "content": "Tide?"}, "At six.", f"So: {WRITTEN}")
    row = {"prompt": [asked], "tools": TOOLS}
    pair = sample(row | {"chosen": good, "rejected": bad}, "preference")
    assert pair.preference.rejected.messages[-1].fields["content"] == bad
    assert refusal(row | {"chosen": bad, "rejected": good}, "preference")[0] == "bad_tools"
    rated = row | {"completion": bad}
    assert sample(rated | {"label": False}, "rated").messages[-1].fields["content"] == bad
    assert refusal(rated | {"label": True}, "rated")[0] == "bad_tools"


def test_arguments_may_have_marks_and_names_any_letter(sample, refusal):
    call = {"name": "ask: harbor/4", "arguments": {"harbor": "</b> <tool_call> ``` [INST]"}}
    tools = [{"name": call["name"], "parameters": SCHEMA}]
    (read,) = sample({"messages": [{"role": "assistant", "content": json.dumps(call)}], "tools": tools}).messages
    assert (read.fields["content"], read.fields["tool_calls"][0]["function"]) == ("", call)
    said = [{"role": "assistant", "content": f"So: {json.dumps(call)}"}]
    assert refusal({"messages": said, "tools": tools})[0] == "bad_tools"


def test_what_a_user_or_a_tool_says_is_never_a_call(sample):
    text = json.dumps({"name": "tide", "arguments": OBAN})
    said = [{"role": role, "content": text} for role in ("system", "user", "assistant", "tool")]
    read = sample({"messages": said, "tools": TOOLS}).messages
    assert ["tool_calls" in message.fields for message in read] == [False, False, True, False]


@pytest.mark.parametrize("piece", ["tide(", "tide{harbor", "<tide>", "tide: ", "tide\n", "\n", "[tool]", '"'])
def test_a_text_of_any_length_is_looked_at(sample, piece):
    """What grew with its square, or doubled with every word, would not end."""
    assert answered(sample, "The tide: " + piece * 5_000)["content"].endswith(piece)


def test_a_call_between_marks_of_a_tool_that_is_not_defined_refuses_the_row(refusal):
    call = json.dumps({"name": "train", "arguments": OBAN})
    for text in (f"<tool_call>{call}</tool_call>", f"I look.\n[TOOL_CALLS] [{WRITTEN}, {call}]"):
        row = {"instruction": "Tide at Oban?", "output": text, "tools": TOOLS}
        assert refusal(row, "alpaca") == (
            "bad_tools",
            "a call of `train` at $.messages[1], which is not one of the row's tools",
        )
