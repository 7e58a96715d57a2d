"""The schemas alpaca, completion and text."""

import json
import math

import pytest

from packer.source.decode import Refused, parse_messages
from packer.source.schema import schema_of

USER = {"role": "user", "content": "q"}
REPLY = {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"instruction": "do", "output": "a"}, ["do", "a"]),
        ({"instruction": "do", "input": "", "output": "a"}, ["do", "a"]),
        ({"instruction": "do", "input": None, "output": "a"}, ["do", "a"]),
        ({"instruction": "do", "input": "it", "output": "a"}, ["do\nit", "a"]),
        ({"instruction": "", "input": "it", "output": "a"}, ["it", "a"]),
        ({"query": "do", "response": "a"}, ["do", "a"]),
        ({"instruction": "do", "output": ""}, ["do", ""]),
        # of two names of a field the one that says something counts
        ({"instruction": "", "query": "2+2?", "output": "4", "response": ""}, ["2+2?", "4"]),
        ({"instruction": "2+2?", "query": "2+2?", "output": "4"}, ["2+2?", "4"]),
        ({"instruction": "c", "output": "d", "system": "s", "history": [["a", "b"]]}, ["s", "a", "b", "c", "d"]),
    ],
)
def test_system_and_history_and_then_instruction_and_input_are_the_question(sample, row, said):
    messages = sample(row, "alpaca").messages
    assert [message.fields["content"] for message in messages] == said
    roles = ["user", "assistant"] * (len(said) // 2)
    assert [message.role for message in messages] == ["system"] * (len(said) % 2) + roles


def test_reasoning_is_that_of_the_last_answer(sample):
    row = {"Question": "c", "Complex_CoT": "hm", "Response": "d", "history": [["a", "b"]]}
    columns = {"instruction": "Question", "reasoning": "Complex_CoT", "output": "Response"}
    found = [message.fields for message in sample(row, "alpaca", columns=columns).messages]
    assert found[1] == {"role": "assistant", "content": "b"}
    assert found[3] == {"role": "assistant", "content": "d", "reasoning_content": "hm", "thinking": "hm"}


def test_reasoning_beside_a_completion_is_asked_about_and_alpaca_takes_it(sample, asked):
    row = {"prompt": "a", "reasoning": "hm", "completion": "b"}
    assert asked(row, "completion") == ["reasoning"]
    assert asked(row, "alpaca", {"instruction": "prompt", "output": "completion"}) == []
    found = sample(row, "alpaca", columns={"instruction": "prompt", "output": "completion"})
    assert found.messages[1].fields["reasoning_content"] == "hm"
    assert sample(row, "completion", columns={"reasoning": None}).text == "b"


def segments(*pieces):
    return {"segments": [{"label": text.isupper(), "text": text} for text in pieces]}


TAG = "<img>a.png</img>"
ANSWERED = {"prompt": "a", "completion": "b"}


@pytest.mark.parametrize(
    ("schema", "row", "refused"),
    [
        ("alpaca", {"instruction": "", "output": "a"}, ("empty", "`instruction` and `input` are both empty")),
        (
            "alpaca",
            {"instruction": 3, "output": "a"},
            ("wrong_type", "expected `str | null`, got `int` at $.instruction"),
        ),
        (
            "alpaca",
            {"instruction": "a", "output": "b", "history": [["a"]]},
            ("wrong_type", "expected `array` of length 2, got 1 at $.history[0]"),
        ),
        (
            "alpaca",
            {"instruction": "a", "output": None},
            ("unknown_schema", "no field `output` or `response`, which schema alpaca needs"),
        ),
        (
            "alpaca",
            {"instruction": "2+2?", "query": "3+3?", "output": "4"},
            ("wrong_type", "`instruction` and `query` say different things at $"),
        ),
        ("completion", {"prompt": "a", "completion": ""}, ("empty", "`completion` is empty")),
        ("completion", {"prompt": "a", "completion": "\n\n"}, ("empty", "`completion` is empty")),
        ("completion", {"prompt": [USER], "completion": []}, ("empty", "`completion` has no messages")),
        (
            "completion",
            {"prompt": "a", "completion": [REPLY]},
            ("wrong_type", "`prompt` is `str`, but `completion` is `array`"),
        ),
        ("completion", {"prompt": "a", "completion": 3}, ("wrong_type", "expected `str`, got `int` at $.completion")),
        (
            "completion",
            {"prompt": [USER], "completion": [{"role": "assistant", "content": 3}]},
            ("wrong_type", "expected `str | array | null`, got `int` at $.completion[0].content"),
        ),
        ("text", {"text": " \n"}, ("empty", "`text` is empty")),
        ("alpaca", {"query": TAG, "response": "b"}, ("multimodal",)),
        ("alpaca", {"query": "a", "response": "b", "history": [["c", TAG]]}, ("multimodal",)),
        ("alpaca", {"instruction": "a", "output": "b", "reasoning": TAG}, ("multimodal",)),
        ("text", {"text": TAG}, ("multimodal",)),
        ("completion", {**ANSWERED, "label": False}, ("preference",)),
        # tokens merge across boundaries: a mask over the whole text would train a part of what it masks
        ("text", segments("asked ", "ANSWER ", "again ", "REST"), ("wrong_type",)),
        ("text", segments("ANSWER ", "again"), ("wrong_type",)),
        ("text", segments("asked", ""), ("nothing_trained",)),
    ],
)
def test_a_row_that_says_nothing_or_nonsense_is_refused(refusal, schema, row, refused):
    assert refusal(row, schema)[: len(refused)] == refused


def test_a_prompt_and_its_completion_are_taken_as_they_are(sample):
    found = sample({"id": 1, "prompt": "2+2=", "completion": " 4"}, "completion")
    assert (found.kind, found.prompt, found.text, found.row, found.sample_id) == ("completion", "2+2=", " 4", 7, "1")
    assert found.messages == ()


def test_messages_that_are_given_as_their_json_are_messages(sample):
    """In JSON lines too, as in tables: trained as text, they would teach a model to write JSON."""
    prompt, completion = [{"role": "user", "content": "Hi"}], [{"role": "assistant", "content": "Hello"}]
    row = {"prompt": json.dumps(prompt), "completion": json.dumps(completion)}
    assert sample(row, "completion") == sample({"prompt": prompt, "completion": completion}, "completion")
    assert sample({"prompt": "[{", "completion": '[{"a": 1}]'}, "completion").text == '[{"a": 1}]'


@pytest.mark.parametrize("schema", ["completion", "preference", "rated"])
def test_messages_that_are_not_quite_json_are_not_trained_as_text(refusal, schema):
    """A data frame's `to_csv` prints lists as Python does, and a spreadsheet cuts long cells off."""
    messages = [{"content": "{x}", "role": "assistant"}] * 2
    names = ("chosen", "rejected") if schema == "preference" else ("completion",)
    for broken, said in ((str(messages), "as Python prints it"), (json.dumps(messages)[:-4], "ends too early")):
        row = {"prompt": "Hi", "label": True} | dict.fromkeys(names, broken)
        code, reason = refusal(row, schema)
        assert code == "not_json" and f"`{names[0]}`" in reason and said in reason
    assert refusal({"messages": str(messages)})[0] == "not_json"
    assert "as Python prints it" in refusal({"messages": str(messages)})[1]


HI = {"role": "user", "content": "Hi, it's \\ me"}


@pytest.mark.parametrize(
    "text",
    [
        *(str([HI, HI, {"role": "assistant", "train": True}])[:length] for length in (500, 88, 62, 50, 47, 39, -2, -3)),
        *(json.dumps([HI, HI])[:length] for length in (88, 62, 50, 47, 39)),
        f"[{HI}\n {HI}]",
        f"[{HI | {'parts': 'PARTS'}}]".replace("'PARTS'", "array([{'text': 'a'}], dtype=object)"),
        json.dumps([HI | {"score": math.nan}]),
        json.dumps([HI]).replace("Hi", "a\nb"),
        f"{json.dumps([HI])}\nPass this list as messages.",
        '[{"role": "user", "content": name}]',
        f"[{HI}] + [{HI}]",
    ],
)
@pytest.mark.parametrize("field", ["prompt", "completion"])
def test_messages_wherever_they_are_cut_off_are_not_trained_as_text(refusal, text, field):
    assert refusal({"prompt": "Hi", "completion": "Hi"} | {field: text}, "completion")[0] == "not_json"


@pytest.mark.parametrize(
    "text",
    [
        *("[{'a': 1}]", '[{"role": "nurse"}] and more', "[{x}]", f"Pass this list as messages: [{HI}]"),
        *("[{'role': role, 'content': name}]", f"messages = [{HI}]", f"```\n{json.dumps([HI])}\n```"),
    ],
)
def test_a_text_that_is_no_message_stays_a_text(sample, text):
    assert sample({"prompt": "Hi", "completion": text}, "completion").text == text
    assert sample({"prompt": text, "completion": "Hi"}, "completion").prompt == text


@pytest.mark.parametrize(
    "said", ["[" * 10**5, "'" * 10**5, "\\" * 10**5, "[{'role': 'user', 'content': 'Hi'} " * 10**4]
)
def test_a_long_text_that_begins_like_messages_is_no_message(said):
    """What grew with its square would not end."""
    for text in (f"[{HI}, {said}", f"{json.dumps([HI])[:-1]}, {said}", f"[{HI}, {said} x"):
        with pytest.raises(Refused):
            parse_messages(text, "prompt")


def test_of_conversational_completions_only_the_completion_is_learned(sample):
    row = {
        "prompt": [USER, REPLY, USER],
        "completion": [REPLY, USER, REPLY | {"weight": 0}],
        "tools": [{"name": "f"}],
    }
    found = sample(row, "completion")
    assert found.kind == "chat"
    assert [message.trained for message in found.messages] == [None, False, None, True, None, False]
    assert found.tools == [{"type": "function", "function": {"name": "f"}}]


def test_a_text_is_taken_as_it_is_and_its_label_is_just_a_label(sample):
    found = sample({"uuid": "u", "text": " a\n", "label": True}, "text")
    assert (found.kind, found.text, found.row, found.sample_id) == ("text", " a\n", 7, "u")


@pytest.mark.parametrize("name", ["system", "tools"])
def test_what_a_completion_of_strings_has_no_place_for_refuses_the_row(refusal, sample, name):
    row = {"prompt": "a", "completion": "b", name: "c"}
    code, reason = refusal(row, "completion")
    assert code == "wrong_type" and f"`{name}`" in reason
    assert sample({**row, name: ""}, "completion") == sample(row, "completion", columns={name: None})


def test_a_text_after_messages_is_the_answer(sample):
    answer = [{"role": "assistant", "content": "a"}]
    row = {"prompt": [USER], "completion": "a", "system": "s"}
    assert sample(row, "completion").messages == sample(row | {"completion": answer}, "completion").messages


@pytest.mark.parametrize("label", [None, True])
def test_reasoning_beside_a_text_after_messages_is_that_of_the_answer(sample, refusal, asked, label):
    """As Dolphin R1 has it: the messages before, `reasoning` and `answer`."""
    schema = "completion" if label is None else "rated"
    row = {"prompt": [USER], "completion": "a", "reasoning": "because", "label": label}
    answer = [{"role": "assistant", "content": "a", "reasoning_content": "because"}]
    expected = sample({"prompt": [USER], "completion": answer, "label": label}, schema)
    assert [m.fields for m in sample(row, schema).messages] == [m.fields for m in expected.messages]
    assert asked({"prompt": [USER], "completion": "a", "cot": "because", "label": label}, schema) == ["cot"]
    answer = {"role": "assistant", "content": "a"}  # it may be that of either
    assert asked(row | {"completion": [answer, USER, answer]}, schema) == ["reasoning"]
    assert asked(row | {"reasoning": "off"}, schema) == []
    assert refusal(row | {"reasoning": 7}, schema)[0] == "wrong_type"


@pytest.mark.parametrize("setting", ["on", "off", " Off\n", "high"])
def test_a_setting_is_no_reasoning(refusal, sample, setting):
    row = {"instruction": "a", "output": "b", "reasoning": setting}
    code, reason = refusal(row, "alpaca")
    assert code == "wrong_type" and "`columns: {reasoning: null}` leaves it out" in reason
    assert len(sample(row, "alpaca", columns={"reasoning": None}).messages) == 2


def test_segments_are_a_prompt_and_what_is_trained_after_it(sample):
    read = sample(segments("asked ", "more ", "ANSWER ", "", "REST"), "text")
    assert (read.kind, read.prompt, read.text) == ("completion", "asked more ", "ANSWER REST")
    read = sample(segments("ANSWER"), "text")
    assert (read.kind, read.prompt, read.text) == ("completion", "", "ANSWER")
    assert schema_of(segments("asked ", "ANSWER")) == "text"
    assert sample({"text": "spoken", "segments": [{"start": 0, "text": "spoken"}]}, "text").kind == "text"
    assert schema_of({"segments": [{"start": 0, "text": "spoken"}]}) is None
