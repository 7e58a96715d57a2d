"""Text that nothing reads is found, under any name and at any depth, and what is read, or is no text, is not."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.questions.proposals import Reading, propose
from packer.questions.texts import is_text
from packer.questions.unread_text import find_unread
from packer.source.decode import Refused
from packer.source.schema import SCHEMAS, read_row

QUESTION, ANSWER = "When does the ferry leave from Oban?", "It leaves at ten past six."
CHAT = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
GAELIC = "Always answer in Gaelic."
OTHER = "There is no ferry from Oban today."
ROWS: dict[str, dict[str, Any]] = {
    "messages": {"messages": CHAT},
    "sharegpt": {"conversations": [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": ANSWER}]},
    "completion": {"prompt": QUESTION, "completion": ANSWER},
    "alpaca": {"instruction": QUESTION, "output": ANSWER},
    "text": {"text": f"{QUESTION} {ANSWER}"},
    "preference": {"prompt": CHAT[:1], "chosen": CHAT[1:], "rejected": [CHAT[1] | {"content": OTHER}]},
    "rated": {"prompt": CHAT[:1], "completion": CHAT[1:], "label": True},
    "tokens": {"input_ids": [1, 2, 3], "labels": [1, 2, 3]},
}
READ = {name for schema in SCHEMAS.values() for name in schema.fields} | {"id", "uuid", "sample_id"}
TOOL = {"type": "function", "function": {"name": "tide", "parameters": {"properties": {"harbor": {}}}}}


def found_in(*rows: dict[str, Any], schema: str = "alpaca") -> list[str]:
    return [field.path for field in find_unread(rows, schema=schema, columns={}, roles={}).fields]


def proposed(*rows: dict[str, Any]) -> Any:
    return propose(rows, Reading(schema=None, columns={}, roles={}))


texts = st.sampled_from(
    [
        "Always answer in Gaelic.",
        "You are a helpful assistant.",
        "いつもゲール語で答えてください。",
        "Antworte bitte ausschließlich auf Gälisch",
        "Creative Commons Attribution-NonCommercial",
    ]
)
names = st.text(st.characters(codec="utf-8", exclude_characters=".[]"), min_size=1).filter(
    lambda name: name not in READ
)


@st.composite
def nested(draw: st.DrawFn, text: Any, kinds: Sequence[str] = ("object", "list", "json", "key")) -> Any:
    """The text at any depth, in objects and their keys, lists and JSON text."""
    value = text
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=5)):
        if kind == "key" and isinstance(value, str):
            value = {value: draw(st.integers() | st.none())}
        elif kind in ("object", "key"):
            value = {**draw(st.dictionaries(names, st.integers() | st.none(), max_size=2)), draw(names): value}
        elif kind == "list":
            value = [*draw(st.lists(st.integers(), max_size=2)), value]
        elif not isinstance(value, str):
            value = json.dumps(value)
    return value


@given(schema=st.sampled_from(sorted(ROWS)), name=names, data=st.data())
def test_one_more_field_of_text_is_found_in_rows_of_any_schema(schema, name, data) -> None:
    row = ROWS[schema] | {name: data.draw(nested(data.draw(texts)))}
    try:
        read_row(row, number=0, schema=schema, columns={})
    except Refused:  # a `video`, say: it is not trained
        return
    rows = [row, *[ROWS[schema]] * data.draw(st.integers(0, 98))]
    found = find_unread(data.draw(st.permutations(rows)), schema=schema, columns={}, roles={})
    assert [field.path for field in found.fields] == [name]
    ignored = find_unread(rows, schema=schema, columns={}, roles={}, known=[name])
    assert ignored.fields == ()
    hidden = find_unread(rows, schema=schema, columns={name: None}, roles={})
    assert hidden.fields == ()


@given(name=names.filter(lambda name: name not in {"role", "content"}), data=st.data())
def test_a_key_of_messages_is_found_like_a_field_of_rows(name, data) -> None:
    value = data.draw(nested(data.draw(st.sampled_from(["Always answer in Gaelic.", TOOL["function"]]))))
    try:
        read_row({"messages": [CHAT[0], CHAT[1] | {name: value}]}, number=0, schema="messages", columns={})
    except Refused:  # it is not trained
        return
    rows = [{"messages": [CHAT[0], CHAT[1] | {name: value}]}]
    found = find_unread(rows, schema="messages", columns={}, roles={})
    assert [field.path for field in found.fields] == [f"messages[].{name}"]


@pytest.mark.parametrize("schema", sorted(ROWS))
def test_labels_ids_numbers_and_dates_are_not_asked_about(asked, schema) -> None:
    labels = {
        "license": "CC BY-NC-SA 4.0",
        "source": "natural questions",
        "url": "https://example.org/a/b?c=" + "d" * 60,
        "sha256": "0f" * 32,
        "created": "Sat, 28 Nov 2026 10:00:00 GMT",
        "score": 0.5,
        "tags": ["math", "word problem"],
        "metadata": {"model": "a-model-70b", "usage": {"tokens": 12}, "rating": [1, 2]},
        "embedding": str([0.25] * 30),
        "empty": "",
        "nothing": "[]",
        "options": {},
    }
    assert asked(ROWS[schema] | labels, schema) == []


MEDIA = ["image/png", "audio/x-wav", "shot 1.PNG", "img/0.jpeg", "https://example.org/a.mp3?v=1#t", "film.webm"]
MEDIA += ["data:image/png;base64,iVBORw0KGgo=", f"data:audio/wav;base64,{'A' * 900}"]


@pytest.mark.parametrize("schema", sorted(ROWS.keys() - {"tokens"}))
@given(name=names, value=st.sampled_from(MEDIA).flatmap(lambda each: nested(each, ["object", "list", "json"])))
def test_what_names_an_image_or_a_sound_is_found_in_rows_of_any_schema_at_any_depth(schema, name, value) -> None:
    rows = [ROWS[schema] | {name: value}]
    for known, paths in (((), [name]), ((name,), [])):
        found = find_unread(rows, schema=schema, columns={}, roles={}, known=known).fields
        assert [each.path.partition(".")[0].partition("[")[0] for each in found] == paths
        assert not found or found[0].kind in ("media", "text")


@pytest.mark.parametrize("of", [0, 1])
def test_what_a_message_shows_is_found_although_its_text_says_the_name(of: int) -> None:
    says = CHAT[of] | {"content": "This is shot 1.png."}
    for shown in ({"name": "shot 1.png"}, {"kind": "image", "mime": "image/png"}, "shot 1.png"):
        row = {"messages": [*CHAT[:of], says | {"attachments": [shown]}, *CHAT[of + 1 :]]}
        (found,) = find_unread([row], schema="messages", columns={}, roles={}).fields
        assert (found.path, found.kind) == ("messages[].attachments", "media")
    described = says | {"attachments": [{"mime": "image/png", "text": GAELIC}]}
    row = {"messages": [*CHAT[:of], described, *CHAT[of + 1 :]]}
    (found,) = find_unread([row], schema="messages", columns={}, roles={}).fields
    assert (found.path, found.kind) == ("messages[].attachments", "text")


def test_pages_arguments_and_ids_name_no_media_that_nothing_reads(asked) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"path": "a/shot.png"}'}}
    turns = [CHAT[0], {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "seen"}, CHAT[1]]
    row = {"id": "0007.jpg", "url": "https://example.org/png", "task": "image/caption", "file": "shot.py", "of": ".png"}
    assert asked({"messages": turns, **row}, "messages") == []
    assert asked({"instruction": "What is it?", "input": "https://example.org/a.jpg", "output": ANSWER}, "alpaca") == []


@pytest.mark.parametrize("schema", sorted(ROWS.keys() - {"tokens", "text"}))
def test_a_field_that_repeats_what_is_read_is_not_asked_about(asked, schema) -> None:
    repeated = {
        "question": f"  {QUESTION}\n",
        "rendered": f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n{ANSWER}<|im_end|>\n",
        "trace": json.dumps([{"content": QUESTION}, {"content": ANSWER}]),
    }
    assert asked(ROWS[schema] | repeated, schema) == []


def test_a_text_in_one_row_of_a_hundred_is_not_asked_about() -> None:
    row = ROWS["alpaca"] | {"note": "Always answer in Gaelic."}
    for num_others, paths in ((99, []), (98, ["note"])):
        found = find_unread([row, *[ROWS["alpaca"]] * num_others], schema="alpaca", columns={}, roles={})
        assert [field.path for field in found.fields] == paths
        assert [(field.path, field.num_rows) for field in found.rare] == ([] if paths else [("note", 1)])


def test_the_names_of_many_speakers_are_no_text_and_a_call_is_one_however_its_role_is_written() -> None:
    call = json.dumps({"name": "tide", "arguments": {"harbor": "Oban"}})
    said = {"human": QUESTION, "function-call": call, "function-response": "06:12", "gpt": ANSWER}
    row = {"conversations": [{"from": name, "value": text} for name, text in said.items()]}
    roles = {"function-response": "tool"}
    assert find_unread([row], schema="sharegpt", columns={}, roles=roles).fields == ()
    sample = read_row(row, number=0, schema="sharegpt", columns={}, roles=roles)
    assert [each["function"]["name"] for each in sample.messages[1].fields["tool_calls"]] == ["tide"]


def test_a_text_may_be_the_question_or_the_answer_of_what_nothing_reads() -> None:
    """It would be trained whole, and the rest left out."""
    rows = [
        {"text": f"What sails in the {place}?", "code": f"The {place} has ferries."} for place in ("north", "south")
    ]
    assert proposed(*rows).fill_in == "--columns instruction=FIELD,output=FIELD reads a question and its answer"


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(
    ("field", "path"), [("apis", "apis"), ("metadata", "metadata"), ("tool_config", "tool_config"), ("x", "x")]
)
def test_tools_under_another_name_are_found_and_read_as_tools(asked, field, path, as_text) -> None:
    """The model learned to call tools that it was not shown."""
    tools = [TOOL]
    value = {"tools": tools} if field in {"metadata", "tool_config"} else tools
    row = ROWS["messages"] | {field: json.dumps(value) if as_text else value}
    assert asked(row) == [path]
    assert asked(row | {"tools": tools}) == []
    proposal = proposed(row)
    assert (proposal.read, proposal.left) == ((path,), ())
    sample = read_row(row, number=0, schema="messages", columns=proposal.reading.columns)
    assert sample == read_row(ROWS["messages"] | {"tools": tools}, number=0, schema="messages", columns={})


@pytest.mark.parametrize(
    "options",
    [
        ["06:12", "07:00"],
        {"A": "06:12", "B": "07:00"},
        {"06:12": 1, "07:00": 0},
        {"text": ["06:12", "07:00"], "label": ["A", "B"]},
    ],
)
def test_the_answers_that_were_not_taken_are_found(asked, options) -> None:
    row = {"instruction": "Which is the tide?", "output": "06:12", "options": options}
    assert [path.partition(".")[0] for path in asked(row, "alpaca")] == ["options"]
    assert asked(row | {"instruction": "Which is the tide, 06:12 or 07:00?"}, "alpaca") in ([], ["options"])


@pytest.mark.parametrize("name", ["cot", "deepseek_reasoning", "generated_thoughts", "systemPrompt", "Complex-CoT"])
def test_a_label_is_a_text_where_the_name_says_what_it_is(asked, name) -> None:
    assert asked(ROWS["alpaca"] | {name: "add"}, "alpaca") == [name]
    assert asked(ROWS["alpaca"] | {name: "off"}, "alpaca") == []


def test_the_answer_to_messages_in_another_field_is_found(asked) -> None:
    row = {"messages": CHAT[:1], "final_answer": "B"}
    assert asked(row) == ["final_answer"]
    assert asked(row, "completion", {"prompt": "messages", "completion": "final_answer"}) == []
    assert asked(row | {"messages": CHAT}) == []


def test_a_path_leads_to_what_is_not_read(asked) -> None:
    row = ROWS["alpaca"] | {
        "metadata": {"question": QUESTION, "persona": {"text": "A fisherman from the isle of Mull"}}
    }
    assert asked(row, "alpaca") == ["metadata.persona"]


def test_no_place_is_guessed_for_fields_whose_names_say_none() -> None:
    row = ROWS["alpaca"] | {"persona": GAELIC, "notes": "Checked by a speaker of Gaelic.", "cot": "The ferry is first."}
    proposal = proposed(row)
    assert proposal.places == {"cot": "reasoning"}
    assert proposal.left == ("notes", "persona")
    assert proposal.fill_in.startswith(
        "--columns reasoning=cot,system=FIELD reads a field as what the system says (`input=FIELD`: as part of the question); "
    )


def test_no_second_answer_and_nothing_that_columns_would_replace_is_proposed() -> None:
    both = ROWS["alpaca"] | {"system": "Be kind to whoever asks.", "system_prompt": GAELIC}
    for row, left in ((ROWS["messages"] | {"reference_answer": OTHER}, "reference_answer"), (both, "system_prompt")):
        assert (proposed(row).places, proposed(row).left) == ({}, (left,))
    assert proposed(ROWS["messages"] | {"reference_answer": OTHER}).fill_in == ""


def test_the_worse_of_two_answers_is_only_ever_the_rejected_one() -> None:
    proposal = proposed(ROWS["alpaca"] | {"rejected_answer": OTHER})
    assert proposal.reading.columns == {"chosen": "output", "rejected": "rejected_answer"}
    assert proposal.fill_in == ""


@pytest.mark.parametrize(
    ("value", "is_found"),
    [
        ([["Oban", "Mull", "early"], ["Mallaig", "Skye", "late"], ["Ullapool", "Lewis", "late"]], True),
        (
            [{"port": "Oban"}, {"port": "Mallaig"}, {"port": "Ullapool"}, {"port": "Stornoway"}, {"port": "Tarbert"}],
            True,
        ),
        (["maths", "word problem"], False),
        (["gpt-4-0613", "llama-2-70b-chat", "claude-2.1", "mistral-7b-instruct", "qwen-14b-chat"], False),
        ([["Oban"] * 20] * 20, False),
        ([["ferry", "Oban", "leave"], ["leaves", "past", "six"]], False),
        ("Use Python3, pandas2 and v4", True),
        ("你是港口的客服", True),
        ("自然语言推理", False),
        ("いつも敬語で短く答えて", True),
        ("カスタマーサポート", False),
    ],
)
def test_cells_of_a_table_are_measured_together_and_letters_without_blanks_as_words(asked, value, is_found) -> None:
    assert asked(ROWS["messages"] | {"notes": value}) == ["notes"] * is_found


def test_a_sentence_for_a_name_is_asked_about(asked) -> None:
    """Few templates write the names of speakers."""
    named = [CHAT[0] | {"name": "Ada"}, CHAT[1] | {"name": "Be brief, and answer in Gaelic"}]
    assert asked({"messages": named}) == ["messages[].name"]
    assert asked({"messages": CHAT, "name": "You are Ada, who answers in rhymes"}) == ["name"]
    assert asked({"messages": [CHAT[0] | {"name": "Ada"}, CHAT[1]], "name": "Ada"}) == []


def test_the_order_of_keys_and_rows_does_not_matter() -> None:
    rows = [
        ROWS["alpaca"] | {"b": {"y": "Always answer in Gaelic.", "x": "Never answer in Gaelic, ever."}} for _ in "ab"
    ]
    rows.append(ROWS["alpaca"] | {"a": "Only one row has this text"})
    found = find_unread(rows, schema="alpaca", columns={}, roles={})
    turned = [json.loads(json.dumps(row), object_pairs_hook=lambda pairs: dict(reversed(pairs))) for row in rows]
    assert find_unread(turned, schema="alpaca", columns={}, roles={}) == found
    assert [field.path for field in found.fields] == ["a", "b"]


def test_a_long_unbroken_text_is_an_id_up_to_a_length() -> None:
    assert not is_text("a" * 256)
    assert is_text("a" * 257)


def test_what_keys_of_arguments_say_is_read(asked) -> None:
    call = {"name": "vote", "arguments": {OTHER: 1}}
    chat = [CHAT[0], {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "ok"}]
    assert asked({"messages": [*chat, CHAT[1]], "options": {OTHER: 1}}) == []


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("key", ["reasoning", "thought", "note"])
def test_texts_beside_the_arguments_of_a_call_are_asked_about(asked, key, is_text) -> None:
    said = {"name": "tide", "arguments": json.dumps({"harbor": "Oban, as they told us today."})}
    for path, call in (
        ("messages[].tool_calls[]", {"id": "call_1", "type": "function", "index": 0, "function": said, key: GAELIC}),
        ("messages[].tool_calls[].function", {"id": "call_1", "function": {**said, key: GAELIC}}),
    ):
        asking = {"role": "assistant", "content": "", "tool_calls": json.dumps([call]) if is_text else [call]}
        chat = [CHAT[0], asking, {"role": "tool", "content": "ok"}, CHAT[1]]
        assert asked({"messages": chat, "tools": [TOOL]}) == [f"{path}.{key}"]


@pytest.mark.parametrize("empty", [{}, [], "", None, [{}], {"a": {}}])
def test_nothing_is_asked_about_what_is_empty(empty: Any) -> None:
    assert found_in({"messages": CHAT, "metadata": empty, "metadatb": empty}, schema="messages") == []


@pytest.mark.parametrize("options", [["Oban", "Mull"], {"A": "Oban", "B": "Mull"}, {"A": "06:12", "B": "07:00"}])
@pytest.mark.parametrize("answer", ["B", "0", "2"])
def test_the_options_of_a_question_are_found_where_the_answer_is_a_letter_or_a_number(options, answer) -> None:
    rows = [{"instruction": f"Where is port {number}?", "output": answer, "options": options} for number in range(3)]
    assert found_in(*rows[:1]) == ["options"]
    assert found_in(*rows) == ["options"]
    assert found_in(*(row | {"options": None, "category": "ports"} for row in rows)) == []
    assert found_in(*(row | {"options": None, "tags": ["ports"]} for row in rows)) == []


def test_a_phrase_is_a_label_if_it_repeats_and_is_asked_about_if_it_differs_from_row_to_row() -> None:
    phrases = ["A Gaelic poet", "An old fisherman", "a patient teacher", "the harbor master", "A lost tourist"]
    rows = [ROWS["alpaca"] | {"persona": phrase, "source": "natural questions"} for phrase in phrases]
    assert found_in(*rows) == ["persona"]
    assert found_in(*rows, *rows) == []
    keys = [{"messages": [CHAT[0], CHAT[1] | {"plan": phrase, "name": "Ada"}]} for phrase in phrases]
    assert found_in(*keys, schema="messages") == ["messages[].plan"]
    labels = [ROWS["alpaca"] | {"file": f"{word}.yml", "at": f"Sat, {word} 2026"} for word in ("jan", "feb", "mar")]
    assert found_in(*labels) == []


@pytest.mark.parametrize(
    ("rule", "is_asked"), [("Be brief.", True), ("短く。", True), ("J. R. Smith", False), ("v. 4.1.", False)]
)
def test_a_sentence_is_no_label_however_short_it_is(asked, rule, is_asked) -> None:
    assert asked(ROWS["alpaca"] | {"rule": rule}, "alpaca") == ["rule"] * is_asked


@pytest.mark.parametrize("schema", ["alpaca", "messages", "sharegpt"])
def test_what_an_answer_says_is_read_whatever_is_made_of_it(asked, schema) -> None:
    """Calls of a text are read as calls, of which the marks and the names of keys stand in no text any more."""
    about = {f"harbor_{number}": {"description": f"What {number} means, said at length."} for number in range(12)}
    tool = {"type": "function", "function": {"name": "tide", "parameters": {"properties": about}}}
    call = json.dumps({"name": "tide", "arguments": {name: f"At {name} ferry" for name in about}})
    said = f"<think>Look at it first.</think>I look it up.\n<tool_call>\n{call}\n</tool_call>"
    row = json.loads(json.dumps(ROWS[schema] | {"tools": [tool] * 3}).replace(ANSWER, json.dumps(said)[1:-1]))
    assert asked(row, schema) == []
    assert asked(row | {"note": said.replace("ferry", "boats")}, schema) == ["note"]
    if schema == "messages":
        pair = {
            "messages": row["messages"][:-1],
            "tools": row["tools"],
            "rejected_response": row["messages"][-1] | {"content": "No."},
        }
        assert asked(pair | {"chosen_response": row["messages"][-1]}, "preference") == []
        row["messages"][-1]["value"] = GAELIC
        assert asked(row) == ["messages[].value"]


@pytest.mark.parametrize(
    "called", [{"action": "tide(Oban)"}, {"do": {"run": "tide", "harbor": "Oban"}}, {"x": ["tide"]}]
)
def test_a_key_of_messages_that_names_a_tool_which_nothing_calls_is_asked_about(asked, called) -> None:
    row = {"messages": [CHAT[0], CHAT[1] | called], "tools": [TOOL]}
    assert [path.partition("].")[2].partition(".")[0] for path in asked(row)] == [*called]
    row["messages"][1]["tool_calls"] = [{"function": {"name": "tide", "arguments": {}}}]
    assert asked(row) == []
    assert asked({"messages": [CHAT[0], CHAT[1] | {"mood": "tides"}], "tools": [TOOL]}) == []


@pytest.mark.parametrize("names", ["ABCD", [f"option_{each}" for each in "abcd"], [f"choice{each}" for each in "1234"]])
@pytest.mark.parametrize("is_letter", [False, True])
def test_fields_that_differ_in_a_letter_are_options_if_the_answer_is_one_of_them(names, is_letter) -> None:
    options = dict(zip(names, ["Oban", "Mull", "Skye", "Ayr"], strict=True))
    answer = [*names][1][-1].upper() if is_letter else "Mull"
    row = {"instruction": "Where is the port?", "output": answer, **options}
    asked = [name for name in names if is_letter or options[name] != "Mull"]
    assert found_in(row, row, row) == asked
    assert found_in(row | {"output": "It is at Lewis."}) == []
    assert found_in(row | {"instruction": "Which one: Oban, Mull, Skye or Ayr?"}) == []


def test_of_a_message_that_is_a_call_beside_its_text_the_keys_are_asked_about(asked) -> None:
    row = {"messages": [CHAT[0], CHAT[1] | {"tool": "tide", "tool_input": {"harbor": "Oban"}}], "tools": [TOOL]}
    assert asked(row) == ["messages[].tool", "messages[].tool_input"]


def talk(asked: str, said: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]}


@pytest.mark.parametrize("answer", ["(B)", "The answer is B.", "They sail from there.\nB. Mallaig", "**Mallaig**"])
def test_options_that_an_answer_ends_with_or_names_by_letter_are_asked_about(answer: str) -> None:
    rows = [talk("From where?", answer.replace("Mallaig", f"Mallaig {k}")) for k in range(4)]
    asked = [row | {"choices": [f"Oban {k}", f"Mallaig {k}"]} for k, row in enumerate(rows)]
    assert found_in(*asked, schema="messages") == ["choices"]
    in_prompt = [talk(f"From Oban {k} or Mallaig {k}?", answer.replace("Mallaig", f"Mallaig {k}")) for k in range(4)]
    assert not found_in(
        *({**row, "choices": [f"Oban {k}", f"Mallaig {k}"]} for k, row in enumerate(in_prompt)), schema="messages"
    )


def test_labels_that_only_some_answers_end_with_are_no_options() -> None:
    rows = [talk("Where?", said) | {"tags": ["sea", "boat"]} for said in ("In a boat.", *["There."] * 9)]
    assert not found_in(*rows, schema="messages")
