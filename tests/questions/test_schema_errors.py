"""The `columns` that are suggested are made of the fields there are, and nothing is guessed."""

import json

import pytest
from hints import settings_in

from packer.errors import InputError
from packer.pipeline.plan.inputs import detected_schema
from packer.questions.schema_errors import columns_hint, refuse_unread_columns
from packer.source.schema import read_row

CHAT = [{"role": "user", "content": "a"}]


def refused(path, *rows):
    """The hint at rows of a file that match no schema."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with pytest.raises(InputError) as caught:
        detected_schema(path, format="jsonl", columns={})
    return caught.value.hint


DEFINED = [{"name": "tide", "parameters": {"type": "object", "properties": {"harbor": {"type": "string"}}}}]
CALLS = [{"type": "function", "function": {"name": "tide", "arguments": {"harbor": "Oban"}}}]
FORM = {"json_schema": {"name": "form", "schema": {"type": "object", "properties": {"said": {"type": "string"}}}}}


@pytest.mark.parametrize(
    ("row", "pairs"),
    [
        ({"question": "a", "answer": "b"}, "{instruction: question, output: answer}"),
        (
            {"Question": "a", "Complex_CoT": "b", "Response": "c"},
            "{instruction: Question, output: Response, reasoning: Complex_CoT}",
        ),
        ({"instruction": "a", "answer": "b", "id": 1}, "{output: answer}"),
        (
            {"system_prompt": "a", "question": "b", "response": "c"},
            "{instruction: question, output: response, system: system_prompt}",
        ),
        ({"question": "a", "context": "b", "answer": "c"}, "{instruction: question, output: answer}"),
        ({"Answer:": "b", "problem": "a"}, '{instruction: problem, output: "Answer:"}'),
        ({"dialog": [*CHAT, {"role": "assistant", "content": "b"}], "id": 1}, "{messages: dialog}"),
        (
            {"input": CHAT, "output": "b", "system_prompt": "c"},
            "{prompt: input, completion: output, system: system_prompt}",
        ),
        ({"question": "a", "answer": "4", "solution": "Add two."}, "{instruction: question, output: solution}"),
        ({"input": CHAT, "output": [{"role": "assistant", "content": "b"}]}, "{prompt: input, completion: output}"),
        ({"input": "a", "output": "b"}, "{instruction: input}"),
        (
            {"question": "a", "answer": "b", "chat_history": [["Where is it?", "It is here."]]},
            "{instruction: question, output: answer, history: chat_history}",
        ),
        ({"inputs": "a", "targets": "b"}, "{instruction: inputs, output: targets}"),
        (
            {"item": {"question": {"text": "a"}, "answer": {"text": "b"}}},
            "{instruction: item.question.text, output: item.answer.text}",
        ),
        (
            {"input": {"messages": CHAT}, "output": {"role": "assistant", "content": "b"}},
            "{prompt: input.messages, completion: output}",
        ),
        (
            {
                "input": {"messages": CHAT, "tools": DEFINED, "response_format": FORM},
                "output": {"role": "assistant", "content": "I look.", "tool_calls": CALLS},
            },
            "{prompt: input.messages, completion: output, tools: input.tools}",
        ),
        (
            {
                "question": "a",
                "answer": {"text": "b", "help": {"rationale": "It is no help."}, "tone": {"rationale": "It is rude."}},
            },
            "{instruction: question, output: answer.text}",
        ),
        (
            {"question": "a", "good_answer": "b", "bad_answer": "ccc"},
            "{instruction: question, chosen: good_answer, rejected: bad_answer}",
        ),
        ({"prompt": "a", "winner": "b", "loser": "ccc"}, "{chosen: winner, rejected: loser}"),
        ({"prompt": "a", "response": "b", "rejected_answer": "ccc"}, "{chosen: response, rejected: rejected_answer}"),
        ({"dialog": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, "{conversations: dialog}"),
        ({"traj": [*CHAT, {"role": "assistant", "content": "b"}, *CHAT], "reward": 1.0}, "{messages: traj}"),
    ],
)
def test_fields_with_usual_names_are_mapped(row, pairs):
    hint = columns_hint([{}, row], {})
    assert hint.startswith("say which field is which: --columns ")
    assert settings_in(hint) == [f"sources.columns={pairs}"]


def test_a_hint_keeps_what_columns_says_already():
    assert columns_hint([{"q": "a", "answer": "b"}], {"instruction": "q"}).endswith(
        " --columns instruction=q,output=answer"
    )


TO_FILL_IN = "say which field is which: --columns instruction=FIELD,output=FIELD for a question and its answer"
SHAPES = "; docs/how-to/exports.md shows how to make rows of other shapes"
ANSWER_TO = "--columns instruction=question,output=FIELD for a question and its answer"


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        (
            {"title": "Tides", "body": "It is high at noon today."},
            (
                f"{TO_FILL_IN}; --columns text=body for a text that is trained whole; the fields with text: `title` "
                "(`Tides`), `body` (`It is high at noon today.`)"
            ),
        ),
        (
            {"question": "a", "accepted": "At six.", "refused": "At noon."},
            (
                f"say which field is which: {ANSWER_TO}; the fields with text: `question` (`a`), `accepted` (`At six.`), "
                "`refused` (`At noon.`)"
            ),
        ),
        (
            {"input": CHAT, "ideal": "b", "id": "1"},
            (
                "say which field is which: --columns prompt=input,completion=FIELD for messages and their answer; the fields "
                "with text: `ideal` (`b`)"
            ),
        ),
        (
            {"talk": ["Where is it?", "It is here.", "And now?"]},
            "say which field is which: --columns conversations=talk for texts of a user and the assistant in turn",
        ),
        (
            {"question": "a", "chosen": CHAT, "rejected": CHAT},
            (
                "say which field is which: --columns instruction=question for the question of both answers; the fields with "
                "text: `question` (`a`)"
            ),
        ),
        (
            {"question": "a", "completions": [{"text": "b"}, {"text": "c"}]},
            (
                "`completions` may be the answer, where packer reads a single text; say which field is which: "
                f"{ANSWER_TO}; the fields with text: `question` (`a`)"
            ),
        ),
    ],
)
def test_where_names_do_not_tell_fields_are_to_be_filled_in_and_no_place_is_guessed(row, hint):
    assert columns_hint([row], {}) == hint + SHAPES


READS = "packer reads messages, questions with answers, texts, and token ids"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"dialogo": [{"rol": "cliente", "texto": "When does it leave?"}], "contento": "no"},
            f"`dialogo` has texts in a list; {READS}",
        ),
        ({"problem": "a", "steps": [["Ann", "Where do we go?"]]}, f"`steps` has texts in a list; {READS}"),
        (
            {"traits": ["I like to fish."], "more": [{"said": "It is high at noon."}], "rest": [["It is low at six."]]},
            f"`more`, `rest` have texts in a list; {READS}",
        ),
        (
            {"title": "Tides", "story": "It is high at noon.", "asked": ["When is it high?", "Is it low?"]},
            (
                f"{TO_FILL_IN}; --columns text=story for a text that is trained whole; the fields with text: `title` "
                "(`Tides`), `story` (`It is high at noon.`); `asked` has texts in a list"
            ),
        ),
    ],
)
def test_texts_in_lists_are_named_beside_or_in_place_of_fields_that_cannot_be_an_answer(row, said):
    assert columns_hint([row], {}) == said + SHAPES


def test_of_two_answers_by_their_names_none_is_chosen():
    row = {"question": "a", "attempt": "It is high at noon.", "solution": "It is low at noon."}
    assert columns_hint([row], {}).startswith(f"say which field is which: {ANSWER_TO}; ")
    hint = columns_hint([row | {"attempt_reasoning": "I look at the table of tides."}], {})
    assert settings_in(hint) == [
        "sources.columns={instruction: question, output: attempt, reasoning: attempt_reasoning}",
    ]
    hint = columns_hint([row | {"solution": "4"}], {})
    assert hint == "say which field is which: --columns instruction=question,output=attempt"


def test_a_field_whose_name_says_nothing_is_left_out_and_its_places_are_named():
    """The answer that was rejected, or a critique of one, became what the system says."""
    read = "--columns instruction=question,output=answer"
    found = columns_hint([{"question": "a", "answer": "b", "critique": "The answer is far too short."}], {})
    assert found == (
        f"say which field is which: {read},system=FIELD reads a field as what the system says (`reasoning=FIELD`: as the "
        "reasoning before the answer, `input=FIELD`: as part of the question); "
        "docs/how-to/inputs.md#text-that-nothing-reads shows how to write what belongs to the question into it; "
        f"{read} --ignore critique leaves out what may belong to the prompt"
    )


def test_what_examples_are_asked_is_no_part_of_the_question():
    shot = {"input": "When is the tide at Mull?", "output": "At ten past one."}
    row = {"examples": [shot], "input": "When is the tide at Oban?", "output": "At twelve past six."}
    hint = columns_hint([row, row | {"input": "And tomorrow?"}], {})
    assert "input=examples" not in hint
    assert "--columns instruction=input --ignore examples leaves out what may belong to the prompt" in hint


def test_ids_and_paths_are_no_question_and_no_answer():
    rows = [
        {
            "content": f'"""The tides of Oban."""\nHIGH = {n}\n',
            "path": f"src/m{n}.py",
            "blob": f"a{n}",
            "lang": "Python",
        }
        for n in range(2)
    ]
    assert "; --columns text=content for a text that is trained whole; " in columns_hint(rows, {})


def test_what_an_answer_is_tested_with_is_no_answer_where_another_field_has_one():
    row = {"question": "Print the sum of two numbers.", "solution": "print(sum(map(int, input().split())))"}
    hint = columns_hint([row | {"input_output": '{"inputs": ["1 2"], "outputs": ["3"]}'}], {})
    assert settings_in(hint) == ["sources.columns={instruction: question, output: solution}"]


@pytest.mark.parametrize("more", [[], [{"sender_type": None, "content": "The talk was closed by Ann."}]])
def test_messages_of_speakers_by_turns_are_single_messages_though_a_row_has_no_speaker(more, tmp_path):
    talk = [{"sender_type": ("Contact", "User")[k % 2], "content": f"The parcel of day {k} is late."} for k in range(4)]
    rows = [
        {"id": f"{number}-{k}", "status": "read", **row, "conversation_id": number, "message_type": k % 2}
        for number in range(3)
        for k, row in enumerate([*talk, *more])
    ]
    hint = refused(tmp_path / "rows.jsonl", *rows)
    assert hint.startswith("each row is a single message; join those of each conversation to `messages`")


def test_what_users_say_names_no_speaker_and_rows_with_an_answer_are_no_single_messages(tmp_path):
    said = [("When does it leave?", "At six."), ("And when is it back?", "At ten.")] * 4
    hint = refused(tmp_path / "rows.jsonl", *({"user_message": asked, "bot_response": told} for asked, told in said))
    assert "single message" not in hint and "`user_message`" in hint


@pytest.mark.parametrize(("first", "is_told"), [("What is high at noon?,It is the tide.", True), ("What?,Tide", False)])
def test_a_table_without_a_header_is_told_so_and_its_long_names_are_whole(first, is_told, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(f"{first}\nIs the tide of Oban low at six in the evening?,It is not.\n")
    with pytest.raises(InputError) as caught:
        detected_schema(path, format="csv", columns={})
    assert ("if the first line is a row" in caught.value.hint) == is_told
    asked = "Which of the harbors in the list below did you leave from?"
    path.write_text(f"{asked},When\nFrom Oban.,At six.\n")
    with pytest.raises(InputError) as caught:
        detected_schema(path, format="csv", columns={})
    assert f"`{asked}`" in caught.value.message and f"`{asked}`" in caught.value.hint


@pytest.mark.parametrize(
    ("choices", "answer", "asked"),
    [
        (["an owl", "a curlew"], "B", "A. an owl\n\nB. a curlew"),
        (["A) an owl", "B) a curlew"], "B", "A) an owl\n\nB) a curlew"),
        (["A heron of the bay", "In Bergen"], "B", "A. A heron of the bay\n\nB. In Bergen"),
        (["an owl", "a curlew"], "a curlew", "an owl\n\na curlew"),
        (["an owl", "a curlew"], "C", "an owl\n\na curlew"),
    ],
)
def test_options_have_the_letters_by_which_answers_name_them(choices, answer, asked):
    row = {"question": "Which of these lives by the shore?", "choices": choices, "answer": answer}
    assert "`input=FIELD`: as part of the question" in columns_hint([row], {})
    columns = {"instruction": "question", "output": "answer", "input": "choices"}
    sample = read_row(row, number=0, schema="alpaca", columns=columns)
    assert sample.messages[0].fields["content"] == f"{row['question']}\n{asked}"


@pytest.mark.parametrize(("answer", "said"), [(4, "4"), (0, "0"), (True, "true"), (False, "false")])
def test_an_answer_may_be_a_whole_number_or_a_yes_or_no(answer, said):
    row, columns = {"question": "2+2?", "answer": answer}, {"instruction": "question", "output": "answer"}
    assert settings_in(columns_hint([row], {})) == ["sources.columns={instruction: question, output: answer}"]
    assert read_row(row, number=0, schema="alpaca", columns=columns).messages[1].fields["content"] == said


def test_the_suggested_columns_are_taken(tmp_path):
    path = tmp_path / "rows.jsonl"
    hint = refused(path, {"Question": "a", "thinking": "b", "Response": "c"})
    assert hint.endswith("--columns instruction=Question,output=Response,reasoning=thinking")
    columns = {"instruction": "Question", "reasoning": "thinking", "output": "Response"}
    assert detected_schema(path, format="jsonl", columns=columns) == "alpaca"


@pytest.mark.parametrize(
    ("columns", "schema", "near"),
    [
        ({"reasoning_content": "cot"}, "alpaca", "did you mean 'reasoning'?"),
        ({"question": "q"}, "alpaca", "did you mean 'instruction'?"),
        ({"mesages": "talk"}, "messages", "did you mean 'messages'?"),
        ({"output": "a"}, "messages", "its fields: chat_template_kwargs, functions, id, messages, "),
    ],
)
def test_columns_that_no_row_is_read_from_are_refused_with_near_names(tmp_path, columns, schema, near):
    with pytest.raises(InputError, match=f"`columns` names `{next(iter(columns))}`") as caught:
        refuse_unread_columns(tmp_path, columns, schema)
    assert caught.value.hint.startswith(near)
    refuse_unread_columns(tmp_path, dict.fromkeys(columns), schema)


@pytest.mark.parametrize(
    ("row", "is_wrapper"),
    [
        ({"data": [{"text": "a"}, {"text": "b"}]}, True),
        ({"dialog": [{"speaker": "user", "text": "a"}, {"speaker": "bot", "text": "b"}]}, False),
    ],
)
def test_the_turns_of_one_dialogue_are_not_taken_for_rows(row, is_wrapper, tmp_path):
    assert refused(tmp_path / "one.jsonl", row).startswith("its rows are in the list") == is_wrapper


SAID = "It is a bird of the shore."
EARLIER = [{"role": "user", "content": "Is it a bird?"}, {"role": "assistant", "content": SAID}]
SEVERAL_TURNS = [
    ({"history": EARLIER, "question": "Where does it live?", "answer": SAID}, "history"),
    (
        {
            "chat_history": [{"role": "USER", "message": "Is it a bird?"}, {"role": "CHATBOT", "message": SAID}],
            "message": "Where does it live?",
            "response": SAID,
        },
        "chat_history",
    ),
    ({"conversation_history": EARLIER, "user": "Where does it live?", "assistant": SAID}, "conversation_history"),
]


@pytest.mark.parametrize(("row", "named"), SEVERAL_TURNS)
def test_turns_beside_a_question_or_an_answer_are_never_left_out(row, named, tmp_path):
    rows = [{name: f"{value} {k}" if isinstance(value, str) else value for name, value in row.items()} for k in "abc"]
    hint = refused(tmp_path / "rows.jsonl", *rows)
    assert settings_in(hint) == [] and hint.startswith(f"if `{named}` is what was said before, write all of a row")
