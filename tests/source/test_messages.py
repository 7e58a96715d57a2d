import json

import pytest

from packer.source.message_parts import FRACTIONS

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def turn(**fields):
    return {"messages": [USER, {"role": "assistant", "content": "yo"} | fields]}


def answer(sample, **fields):
    """The assistant message that `fields` become."""
    return sample(turn(**fields)).messages[1]


def test_a_chat_keeps_its_messages_and_every_field_with_another_meaning(sample):
    found = sample(
        {
            "id": 5,
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "hi", "name": "Ann"},
                {"role": "assistant", "content": None, "tool_calls": [CALL | {"id": "c1"}]},
                {"role": "tool", "content": "{}", "tool_call_id": "c1"},
            ],
            "chat_template_kwargs": {"enable_thinking": False},
        }
    )
    assert found.kind == "chat"
    assert found.row == 7
    assert found.sample_id == "5"
    assert found.tools is None
    assert found.template_kwargs == {"enable_thinking": False}
    assert [message.fields for message in found.messages] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi", "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [CALL | {"id": "c1"}]},
        {"role": "tool", "content": "{}", "tool_call_id": "c1"},
    ]
    assert [message.trained for message in found.messages] == [None] * 4


HM = {"reasoning_content": "hm", "thinking": "hm"}
PART_CALL = {"type": "tool_call", "value": '{"name": "f", "arguments": {"x": 1}}'}
JOINED = [{"type": "text"} | part for part in ({"text": "a\n", "content": []}, {"value": " b"}, {"content": "c"})]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"content": None, "tool_calls": [CALL]}, {"content": None, "tool_calls": [CALL]}),
        ({"content": ""}, {"content": ""}),
        ({"content": []}, {"content": ""}),
        ({"content": "{{name}}"}, {"content": "{{name}}"}),
        ({"content": JOINED}, {"content": "a\n bc"}),
        ({"content": [{"type": "text", "text": {"value": "At six.", "annotations": []}}]}, {"content": "At six."}),
        ({"content": [{"type": "text", "text": "", "value": "Hi."}]}, {"content": "Hi."}),
        ({"content": [PART_CALL]}, {"content": None, "tool_calls": [CALL]}),
        (
            {"content": [{"type": "reasoning", "value": "hm"}, {"type": "text", "value": "so"}, PART_CALL]},
            {"content": "so", "tool_calls": [CALL]} | HM,
        ),
        # reasoning stands where templates look; of several names the one that says something counts
        ({"content": None, "reasoning": "hm"}, {"content": None, "reasoning": "hm"} | HM),
        ({"thinking": "hm"}, {"content": "yo"} | HM),
        ({"reasoning_content": "", "thinking": "hm"}, {"content": "yo"} | HM),
        (
            {"reasoning": " hm\n", "thinking": "", "reasoning_content": "hm"},
            {"content": "yo", "reasoning": " hm\n"} | HM,
        ),
    ],
)
def test_what_an_answer_says_comes_out_as_it_is_where_templates_look_for_it(sample, fields, found):
    assert answer(sample, **fields).fields == {"role": "assistant", **found}


@pytest.mark.parametrize("role", ["assistant", "system", "tool"])
def test_calls_without_a_content_have_an_empty_one_and_results_and_system_messages_may_be_empty(sample, role):
    called = {"role": "assistant", "tool_calls": [CALL]}
    said = [USER, called, *([] if role == "assistant" else [{"role": role, "content": ""}])]
    assert sample({"messages": said}).messages[-1].fields["content"] == ""


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function_call"])
@pytest.mark.parametrize(
    ("fields", "others"),
    [
        ({}, "none"),
        ({"content": None, "name": None}, "none"),
        ({"text": "What is 2+2?"}, "`text`"),
        ({"output": "4", "content": None, "tool_calls": [], "reasoning": "", "train": True}, "`output`"),
        ({"a\nb": "4", "c" * 60: ""}, f"`a\\nb`, `{'c' * 40}`"),
    ],
)
def test_a_message_without_a_content_refuses_the_row_and_its_other_keys_are_named(refusal, role, fields, others):
    row = {"messages": [USER, {"role": role} | fields]}
    assert refusal(row) == ("no_content", f"no content at $.messages[1]; its other keys: {others}")
    turn = {"from": role} | {"value" if key == "content" else key: value for key, value in fields.items()}
    refused = ("no_content", f"no content at $.conversations[0]; its other keys: {others}")
    assert refusal({"conversations": [turn]}, "sharegpt") == refused


@pytest.mark.parametrize("nothing", [None, "", [], {}])
def test_optional_fields_may_hold_nothing_of_any_type(sample, nothing):
    plain = turn()
    beside = dict.fromkeys(("tools", "functions", "system", "chat_template_kwargs"), nothing)
    within = dict.fromkeys(("tool_calls", "function_call", "refusal", "train", "weight", "loss_weight"), nothing)
    expected = sample(plain)
    assert sample(turn(**within) | beside) == expected
    turns = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"} | within]
    assert sample({"conversations": turns} | beside, "sharegpt") == expected
    pair = {"prompt": [USER], "completion": [{"role": "assistant", "content": "yo"} | within]}
    found = sample(pair | beside | {"reasoning": nothing}, "completion")
    assert [message.fields for message in found.messages] == [message.fields for message in expected.messages]
    row = {"instruction": "hi", "output": "yo"} | dict.fromkeys(("input", "history", "reasoning"), nothing) | beside
    assert sample(row, "alpaca") == expected
    assert sample({"prompt": "a", "completion": "b", "reasoning": nothing}, "completion").text == "b"


@pytest.mark.parametrize("schema", ["messages", "sharegpt", "completion", "preference"])
def test_a_part_that_is_a_text_alone_needs_no_type(sample, refusal, schema):
    """As Amazon's Nova is given its rows: `{"text": …}` in lists, and the system message in one, too."""
    question, reply = {"role": "user", "content": [{"text": "a"}, {"text": "b"}]}, {"role": "assistant"}
    said, other = reply | {"content": [{"text": "c"}]}, reply | {"content": [{"text": "d"}]}
    row = {
        "messages": {"messages": [question, said]},
        "sharegpt": {"conversations": [question, said]},
        "completion": {"prompt": [question], "completion": [said]},
        "preference": {"prompt": [question], "chosen": [said], "rejected": [other]},
    }[schema]
    found = sample(row | {"system": [{"text": "be kind"}]}, schema)
    assert [message.fields["content"] for message in found.messages] == ["be kind", "ab", "c"]
    for part in ({"text": "a", "image": "b"}, {"toolUse": {"name": "f"}}, {"value": "a"}):
        question["content"] = [part]
        assert refusal(row, schema)[0] == "wrong_type"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([{"type": "text"}], "no field `text` at $.messages[1].content[0]"),
        ([{"type": "text", "text": 3}], "expected `str` at $.messages[1].content[0].text"),
        ([{"type": "text", "value": 3}], "expected `str` at $.messages[1].content[0].value"),
        (
            [{"type": "text", "text": "a", "content": "b"}],
            "`text` and `content` say different things at $.messages[1].content[0]",
        ),
        (["a"], "expected `object`, got `str` at $.messages[1].content[0]"),
        (
            [{"type": "server_tool_use", "id": "x", "name": "f", "input": {}}],
            (
                "a part of a type packer does not know at $.messages[1].content[0].type: `server_tool_use`; give calls as "
                "`tool_calls`, and results as messages of the role `tool`"
            ),
        ),
        (
            [{"type": "text", "text": "Hi.", "refusal": "No."}],
            "`text` and `refusal` say different things at $.messages[1].content[0]",
        ),
        ([{"type": "riddle"}], "a part of a type packer does not know at $.messages[1].content[0].type: `riddle`"),
        (
            [{"type": "text", "text": "a"}, {"type": "reasoning", "value": "b"}],
            "a part out of order at $.messages[1].content[1]: reasoning, then text, then calls",
        ),
    ],
)
def test_a_part_that_cannot_be_kept_refuses_the_row(refusal, parts, reason):
    assert refusal(turn(content=parts)) == ("wrong_type", reason)


@pytest.mark.parametrize(
    "fields",
    [
        {"content": None, "refusal": "no"},
        {"content": "", "refusal": "no"},
        {"content": "no", "refusal": None},
        {"content": "no", "refusal": ""},
        {"refusal": "no"},
        {"content": [{"type": "refusal", "refusal": "no"}]},
        {"content": [{"type": "text", "text": "n"}, {"type": "refusal", "refusal": "o"}]},
    ],
)
def test_a_refusal_is_what_the_assistant_says(sample, fields):
    row = {"messages": [USER, {"role": "assistant", **fields}]}
    assert sample(row).messages[1].fields == {"role": "assistant", "content": "no"}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"content": "yes", "refusal": "no"}, "both `content` and `refusal` at $.messages[1]"),
        ({"content": None, "refusal": 7}, "expected `str | null`, got `int` at $.messages[1].refusal"),
        (
            {"role": "user", "content": "", "refusal": "no"},
            "`refusal` of a message that is not the assistant's at $.messages[1]",
        ),
    ],
)
def test_a_refusal_that_says_not_what_the_assistant_says_refuses_the_row(refusal, message, reason):
    assert refusal(turn(**message)) == ("wrong_type", reason)


def test_a_call_under_both_of_its_names_is_one_call_and_two_calls_refuse_the_row(sample, refusal):
    older = {"name": "f", "arguments": '{"x": 1}'}
    both = {"content": None, "tool_calls": [{"function": older, "id": "1"}], "function_call": older}
    [call] = answer(sample, **both).fields["tool_calls"]
    assert (call["id"], call["function"]["arguments"]) == ("1", {"x": 1})
    other = {**both, "function_call": {"name": "g", "arguments": "{}"}}
    assert refusal(turn(**other)) == (
        "bad_tools",
        "`tool_calls` and $.messages[1].function_call say different things",
    )


@pytest.mark.parametrize(
    ("fields", "trained"),
    [
        ({}, None),
        ({"train": True}, True),
        ({"train": False}, False),
        ({"weight": 0}, False),
        ({"weight": True}, True),
        ({"loss_weight": 1.0}, True),
        ({"weight": 1, "loss_weight": 1.0}, True),
        ({"loss": False, "weight": 0}, False),
        ({"loss": 0.53}, None),
        ({"loss": 0}, False),
        ({"loss_mask": 1, "weight": 1}, True),
        ({"train": 1}, True),
        ({"train": -1}, False),
        ({"train": 1, "loss": -1.0}, True),
        ({"weight": "0"}, False),
        ({"loss_weight": "no"}, False),
        ({"train": "1", "weight": "Yes"}, True),
    ],
)
def test_a_message_says_whether_it_is_trained_in_fields_that_no_template_sees(sample, fields, trained):
    found = answer(sample, **fields)
    assert found.trained is trained
    assert found.fields == {"role": "assistant", "content": "yo"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (turn(weight=0.5), f"expected 0 or 1, got 0.5 at $.messages[1].weight; {FRACTIONS}"),
        (turn(weight=1, loss_weight=-1), f"expected 0 or 1, got -1 at $.messages[1].loss_weight; {FRACTIONS}"),
        (turn(weight="1.5"), f"expected 0 or 1, got 1.5 at $.messages[1].weight; {FRACTIONS}"),
        *(
            (turn(weight=text), "expected `bool | float | null`, got `str` at $.messages[1].weight")
            for text in ("much", "nan")
        ),
        (turn(weight=0, loss_weight=1), "flags that say different things at $.messages[1]"),
        (turn(train=False, weight=1), "flags that say different things at $.messages[1]"),
        (turn(train=True, trainable=False), "flags that say different things at $.messages[1]"),
        (turn(train=2), "expected `bool | null`, got `int` at $.messages[1].train"),
        (turn(content=5), "expected `str | array | null`, got `int` at $.messages[1].content"),
        (turn(reasoning={}), "expected `str | null`, got `object` at $.messages[1].reasoning"),
        (turn(reasoning="c", thinking="b"), "different reasoning under `thinking` and `reasoning` at $.messages[1]"),
        (
            turn(reasoning_content="a", content=[{"type": "reasoning", "value": "b"}]),
            "reasoning both as a field and as a content part at $.messages[1]",
        ),
        (turn(role=None), "expected `str`, got `null` at $.messages[1].role"),
        ({"messages": '"hi"'}, "expected `array`, got `str` at $.messages"),
        ({"messages": [{"content": "hi"}]}, "no field `role` at $.messages[0]"),
        ({"messages": ["hi"]}, "expected `object`, got `str` at $.messages[0]"),
        (turn() | {"tools": 3}, "expected `str | object | array | null`, got `int` at $.tools"),
        (turn() | {"chat_template_kwargs": "3"}, "expected `object | null`, got `int` at $.chat_template_kwargs"),
    ],
)
def test_a_wrong_type_is_named_with_its_path(refusal, row, reason):
    assert refusal(row) == ("wrong_type", reason)


def test_messages_may_be_given_as_json_text(sample, refusal):
    row = {**turn(), "chat_template_kwargs": {"persona": "x"}}
    assert sample({name: json.dumps(value) for name, value in row.items()}) == sample(row)
    assert refusal({"messages": "hi"})[0] == "not_json"
    assert refusal({"messages": " "}) == ("unknown_schema", "no field `messages`, which schema messages needs")


SPELLED = {
    "user": ("human", "Human"),
    "assistant": ("gpt", "bot", "model", "chatgpt"),
    "tool": ("function", "observation", "ipython"),
    "developer": ("developer",),
}


@pytest.mark.parametrize("role", SPELLED)
def test_roles_get_their_openai_name(sample, role):
    before = [{"role": "assistant", "tool_calls": [CALL]}] if role == "tool" else []
    for spelled in SPELLED[role]:
        assert sample({"messages": [*before, {"role": spelled, "content": "a"}]}).messages[-1].role == role


def test_an_unknown_role_refuses_the_row_and_quotes_only_what_looks_like_a_name(refusal):
    code, reason = refusal({"messages": [USER, {"role": "narrator", "content": "a"}]})
    assert code == "unknown_role"
    assert reason.startswith("the role at $.messages[1].role is `narrator`; known: system, developer, user")
    code, reason = refusal({"messages": [{"role": "my secret diary", "content": "a"}]})
    assert code == "unknown_role"
    assert "diary" not in reason


def test_a_system_field_becomes_the_first_message_and_two_are_refused(sample, refusal):
    assert sample(turn() | {"system": "s"}).messages[0].fields == {"role": "system", "content": "s"}
    same = {"system": " s\n", "messages": [{"role": "system", "content": "s"}, *turn()["messages"]]}
    assert sample(same).messages == sample(turn() | {"system": "s"}).messages
    row = {"system": "s", "messages": [{"role": "system", "content": "t"}]}
    code, reason = refusal(row)
    assert code == "wrong_type" and "`columns: {system: null}`" in reason
    assert sample(row, columns={"system": None}).messages[0].fields["content"] == "t"


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"id": "a"}, "a"),
        ({"id": 3}, "3"),
        ({"uuid": "u", "id": "a", "sample_id": "s"}, "s"),
        ({"id": {"x": 1}, "uuid": "u"}, "u"),
        ({"id": True}, None),
        ({"id": ""}, None),
        ({}, None),
    ],
)
def test_the_row_s_own_name_is_kept(sample, row, found):
    assert sample(turn() | row).sample_id == found


@pytest.mark.parametrize(
    "row",
    [
        turn() | {"images": ["a.png"]},
        turn() | {"image": "a.png"},
        turn() | {"video": {"path": "x"}},
        turn() | {"audios": ["x"]},
        turn(content=[{"type": "image_url", "image_url": {"url": "x"}}]),
        turn(content=[{"type": "image"}, {"type": "text", "text": "a"}]),
        turn(content=[{"type": "input_audio", "input_audio": {}}]),
        turn(content=[{"type": "video", "video": "x"}]),
        turn(content="<img>http://x/a.png</img>what is it?"),
        turn(content=[{"type": "text", "text": "<img>http://x/a.png</img>"}]),
    ],
)
def test_pictures_and_sound_refuse_the_row(refusal, row):
    assert refusal(row)[0] == "multimodal"


@pytest.mark.parametrize("tag", ["<image>", "<video>", "<audio>"])
def test_a_question_with_the_place_of_something_to_see_or_hear_refuses_a_row_that_has_nothing(sample, refusal, tag):
    answer = {"role": "assistant", "content": f"It is written\n{tag}\nin a line of its own."}
    for asked in (tag, f"{tag}\nWhat is it?", f"{tag}Who are they?", f"What is it?\n{tag}"):
        for content in (asked, [{"type": "text", "text": asked}]):
            assert refusal({"messages": [{"role": "user", "content": content}, answer]})[0] == "multimodal"
            more = {"role": "user", "name": "Ann", "content": content}
            assert refusal({"messages": [USER, answer, more, answer]})[0] == "multimodal"
        turns = [{"from": "human", "value": asked}, {"from": "gpt", "value": "It is small."}]
        assert refusal({"conversations": turns}, "sharegpt")[0] == "multimodal"
        assert refusal({"instruction": "What is it?", "input": asked, "output": "It is small."}, "alpaca")[0]
        assert refusal({"prompt": asked, "completion": "It is small."}, "completion")[0] == "multimodal"
    closed = f"What is wrong?\n{tag}\n  <source/>\n{tag.replace('<', '</')}"
    for asked in (f"Where is a {tag} tag used?", f"{tag} does not work", closed):
        assert len(sample({"messages": [{"role": "user", "content": asked}, answer]}).messages) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"chosen": "a", "rejected": "b"},
        {"chosen_messages": [USER], "rejected_messages": [USER]},
        {"rejected": [USER]},
        {"label": True},
        {"label": False},
        {"label": "True"},
        {"kto_tag": True},
        {"kto_tag": "False"},
    ],
)
def test_rated_answers_refuse_the_row_unless_columns_hide_the_rating(sample, refusal, fields):
    assert refusal(turn() | fields)[0] == "preference"
    assert len(sample(turn() | fields, columns=dict.fromkeys(fields)).messages) == 2


@pytest.mark.parametrize("name", ["finish_reason", "finishReason", "stop_reason", "chosen_stopReason", "done_reason"])
def test_an_answer_whose_log_says_that_it_did_not_end_refuses_the_row(sample, refusal, name):
    answer = {"role": "assistant", "content": "It is"}
    for value in ("length", "max_tokens", "MAX_TOKENS", "content_filter", "model_length", "error"):
        assert refusal({"messages": [USER, answer | {name: value}]})[0] == "cut_off"
        assert refusal({"messages": [USER, answer | {"response_metadata": {name: value}}]})[0] == "cut_off"
        assert refusal({"messages": [USER, answer], name: value})[0] == "cut_off"
        assert refusal({"messages": [USER, answer], "log": {"last": [{name: value}]}})[0] == "cut_off"
        assert refusal({"messages": [USER, answer], f"{name}s": ["stop", value]})[0] == "cut_off"
        assert refusal({"prompt": "a", "completion": "b", name: value}, "completion")[0] == "cut_off"
        result = {"role": "tool", "content": "x", name: value}  # of another program
        assert sample({"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, result]})
        cut = answer | {name: value, "train": False}  # which the next answer continues
        assert len(sample({"messages": [USER, cut, USER, answer | {name: "stop"}]}).messages) == 4
        assert sample({"messages": [USER, answer], name: value}, columns={name: None})
    for value in ("stop", "end_turn", "STOP", "tool_calls", "stop_sequence", "max_turns", "", None, 151645, "\nError:"):
        assert sample({"messages": [USER, answer | {name: value}], name: value})


def test_an_answer_that_a_server_is_to_continue_refuses_the_row_unless_it_is_not_trained(sample, refusal):
    for flag in (True, "true", 1):
        assert refusal(turn(prefix=flag))[0] == "cut_off"
        assert sample(turn(prefix=flag, train=False)).messages[1].trained is False
    for flag in (False, None, "false", "The prefix"):
        assert len(sample(turn(prefix=flag)).messages) == 2
    assert sample({"messages": [USER | {"prefix": True}, turn()["messages"][1]]})


@pytest.mark.parametrize(
    ("name", "cut"), [("truncated", True), ("is_truncated", "true"), ("is_complete", False), ("isCompleted", "False")]
)
def test_a_flag_may_say_that_the_answer_did_not_end(sample, refusal, name, cut):
    whole = str(cut).lower() == "false"
    texts = json.dumps({"usage": {"tokens": 7}, name: cut})
    for said in (turn() | {name: cut}, turn() | {"log": [{name: cut}]}, turn(**{name: cut}), turn(metadata=texts)):
        assert refusal(said)[0] == "cut_off"
    assert sample(turn(**{name: whole}) | {name: whole, f"rejected_{name}": cut, "text": f"{name}: {cut}"})


@pytest.mark.parametrize(
    "fields", [{"label": "sports"}, {"label": 1}, {"label": None}, {"chosen": None, "rejected": ""}, {"kto_tag": None}]
)
def test_labels_that_rate_nothing_are_ignored(sample, fields):
    assert len(sample(turn() | fields).messages) == 2


@pytest.mark.parametrize(
    ("words", "trained"),
    [
        (({}, {}), None),
        (({"train": False}, {"train": False}), False),
        (({"weight": 0}, {"weight": 0}), False),
        (({"train": True}, {"weight": 1}), True),
        (({"train": True}, {}), True),
    ],
)
def test_what_all_parts_say_of_training_is_what_the_message_says(sample, words, trained):
    parts = [{"type": "text", "text": letter, **word} for letter, word in zip("ab", words, strict=True)]
    found = answer(sample, content=parts)
    assert (found.fields["content"], found.trained) == ("ab", trained)


@pytest.mark.parametrize(
    ("flags", "spans"),
    [([False, None], [(2, 4)]), ([True, False], [(0, 2)]), ([True, False, True], [(0, 2), (4, 6)])],
)
@pytest.mark.parametrize("key", ["train", "trainable", "loss", "loss_mask", "masked", "weight", "loss_weight"])
def test_of_a_text_in_parts_those_are_trained_that_say_so(sample, flags, spans, key):
    parts = [{"type": "text", "text": 2 * letter, key: flag} for letter, flag in zip("abc", flags, strict=False)]
    if key == "masked":
        parts = [{**part, key: part[key] if part[key] is None else not part[key]} for part in parts]
    assert answer(sample, content=parts).spans == tuple(spans)
    thought = {"type": "thinking", "thinking": "c", key: key == "masked"}
    assert answer(sample, content=[thought, *parts]).spans == tuple(spans)


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "thinking", "thinking": "a"}, {"type": "text", "text": "b", "train": False}],
        [{"type": "text", "text": "b", "train": False}, {"type": "tool_use", "id": "a", "name": "f", "input": {}}],
    ],
)
def test_a_message_with_a_part_that_cannot_be_trained_alone_refuses_the_row(refusal, parts):
    code, reason = refusal(turn(content=parts))
    assert code == "wrong_type"
    assert "part of the message is trained and part is not" in reason


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"weight": 0.5}, "expected 0 or 1, got 0.5"),
        ({"train": True, "loss": False}, "flags that say different things"),
    ],
)
def test_a_part_with_flags_that_say_no_one_thing_refuses_the_row(refusal, flags, reason):
    parts = [{"type": "text", "text": "a", **flags}, {"type": "text", "text": "b"}]
    code, found = refusal(turn(content=parts))
    assert code == "wrong_type" and reason in found and "$.messages[1].content[0]" in found


@pytest.mark.parametrize("detail", [[], [{"begin_offset": 4, "end_offset": 4, "train": True}]])
def test_ranges_of_characters_refuse_an_answer_that_is_trained(refusal, sample, detail):
    for schema, name in (("messages", "messages"), ("sharegpt", "conversations")):
        code, reason = refusal({name: turn(content="hello", train_detail=detail)["messages"]}, schema)
        assert code == "bad_spans" and "as parts, each with `train`" in reason
    exchange = {"human": "q", "assistant": "hello", "train_detail": detail}
    assert refusal({"conversation": [exchange]}, "sharegpt")[0] == "bad_spans"
    for untrained in ({"train": False}, {"weight": 0}, {"masked": 1}):
        assert answer(sample, content="hello", train_detail=detail, **untrained) == answer(
            sample, content="hello", **untrained
        )
    assert answer(sample, train_detail=None) == answer(sample)


def test_what_parts_of_a_question_say_of_training_does_not_matter(sample):
    parts = [{"type": "text", "text": "a", "train": False}, {"type": "text", "text": "b"}]
    row = {"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "c"}]}
    assert sample(row).messages[0].fields["content"] == "ab"


@pytest.mark.parametrize(
    "word",
    [
        {"train": False},
        {"weight": 0},
        {"loss_weight": 0.0},
        {"trainable": False},
        {"keep": False},
        {"train": "False"},
        {"weight": "0"},
    ],
)
@pytest.mark.parametrize(
    ("schema", "row"),
    [
        ("messages", {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}),
        ("alpaca", {"instruction": "a", "output": "b"}),
        ("completion", {"prompt": "a", "completion": "b"}),
        ("text", {"text": "a"}),
    ],
)
def test_a_row_that_says_it_is_not_trained_is_refused(refusal, sample, schema, row, word):
    [name] = word
    assert refusal({**row, **word}, schema) == (
        "nothing_trained",
        f"the field `{name}` says that the row is not to be trained",
    )
    assert sample({**row, name: None}, schema) == sample({**row, name: 12}, schema) == sample(row, schema)


@pytest.mark.parametrize(
    ("role", "name", "value"),
    [
        *(("user", "text", "What is 2+2?"), ("assistant", "value", "4"), ("tool", "output", "4")),
        *(("user", "tool_results", [{"id": "a", "content": "4"}]), ("tool", "data", {"sum": 4})),
    ],
)
def test_an_empty_content_beside_a_value_under_another_key_refuses_the_row(refusal, role, name, value):
    row = {"messages": [{"role": "user", "content": "a"}, {"role": role, "content": " ", name: value}]}
    assert refusal(row) == ("no_content", f"no content at $.messages[1]; its other keys: `{name}`")


def test_a_weight_of_a_whole_row_is_refused_and_columns_take_it_away(refusal, sample):
    row = {"instruction": "a", "output": "b", "weight": 0.5}
    code, reason = refusal(row, "alpaca")
    assert code == "wrong_type" and "`columns: {weight: null}`" in reason and "`document_columns`" in reason
    assert sample(row, "alpaca", columns={"weight": None}).messages[1].trained is None


@pytest.mark.parametrize("field", ["train", "training", "trainable", "loss", "loss_mask", "masked"])
@pytest.mark.parametrize(
    ("said", "flag"), [("yes", True), ("No", False), ("true", True), ("0", False), ("maybe", None)]
)
def test_a_text_that_says_yes_or_no_is_a_flag(sample, refusal, field, said, flag):
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    for name, speaker, text in (("messages", "role", "content"), ("conversations", "from", "value")):
        row = {name: [{speaker: turn["role"], text: turn["content"]} for turn in turns]}
        row[name][1][field] = said
        schema = "messages" if name == "messages" else "sharegpt"
        if flag is None:
            assert refusal(row, schema)[0] == "wrong_type"
        else:
            assert sample(row, schema).messages[1].trained is (flag is not (field == "masked"))


def test_a_call_in_a_part_that_packer_cannot_read_refuses_the_row(refusal):
    part = {"type": "tool_call", "name": "get_weather", "args": {"city": "Paris"}, "id": "x1"}
    row = turn(content=[{"type": "text", "text": "Let me look."}, part])
    assert refusal(row) == ("bad_tools", "no call under `value` at $.messages[1].content[1]")


def test_a_row_without_pictures_is_taken(sample):
    for row in (turn() | {"images": []}, turn() | {"image": None}, turn(content="write an <img> tag")):
        assert len(sample(row).messages) == 2
