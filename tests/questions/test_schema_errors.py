"""The `columns` that are suggested are made of the fields there are, and nothing is guessed."""

import json
import re
import shutil
import subprocess

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
        ({"question": "a", "answer": "4", "solution": "2 + 2 = 4"}, "{instruction: question, output: solution}"),
        ({"input": CHAT, "output": [{"role": "assistant", "content": "b"}]}, "{prompt: input, completion: output}"),
        ({"input": "a", "output": "b"}, "{instruction: input}"),
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


NO_ANSWER = "`completions` may be the answer, and `columns` reads texts alone; the fields with texts are `completions`"
READS = "; packer reads messages, questions with answers, texts, and token ids"
PLAINLY = f"{READS}; docs/how-to/exports.md shows how to make them of other shapes"


def answers(one, other, names=("instruction", "output")):
    """The way that one field answers another."""
    return f"if `{one}` answers `{other}`, --columns {names[0]}={other},{names[1]}={one}"


def better(one, other):
    return f"if `{one}` is always better than `{other}`, --columns instruction=question,chosen={one},rejected={other}"


@pytest.mark.parametrize(
    ("row", "ways"),
    [
        (
            {"title": "a", "body": "bb"},
            [
                answers("body", "title"),
                answers("title", "body"),
                "if `body` is trained whole, --columns text=body",
            ],
        ),
        ({"question": "a", "body": "bb"}, [answers("body", "question")]),
        (
            {"question": "a", "response_a": "bb", "response_b": "c", "preference": 1},
            [
                better("response_a", "response_b"),
                better("response_b", "response_a"),
                "where that differs by row, as `preference` may say, give rows `chosen` and `rejected`",
            ],
        ),
        (
            {"question": "a", "accepted": "At twelve past six.", "refused": "I am not sure."},
            [
                better("accepted", "refused"),
                better("refused", "accepted"),
                *(
                    f"if `{one}` answers `question`{more.format(one, other)}"
                    for more in (
                        ", --columns instruction=question,output={0} --ignore {1}",
                        " and `{1}` is part of the question, --columns instruction=question,output={0},input={1}",
                    )
                    for one, other in (("accepted", "refused"), ("refused", "accepted"))
                ),
                "where that differs by row, give rows `chosen` and `rejected`",
                "what is left out by this may belong to the prompt",
            ],
        ),
        ({"input": CHAT, "ideal": "b", "id": "1"}, [answers("ideal", "input", ("prompt", "completion"))]),
        ({"question": "a", "query": "SELECT"}, [answers("query", "question"), answers("question", "query")]),
        ({"pair": {"en": "a", "gd": "bb"}}, [answers("pair.gd", "pair.en"), answers("pair.en", "pair.gd")]),
    ],
)
def test_fields_whose_names_do_not_tell_are_named_in_each_order(row, ways):
    assert columns_hint([row], {}) == f"say which field is which: {'; '.join(ways)}"


def test_a_field_whose_name_says_nothing_is_left_out_and_its_places_are_named():
    """The answer that was rejected, or a critique of one, became what the system says."""
    read = "--columns instruction=question,output=answer"
    found = columns_hint([{"question": "a", "answer": "b", "critique": "The answer is far too short."}], {})
    said = "say which field is which: if `critique` is what the system says, "
    assert found.startswith(f"{said}{read},system=critique; ")
    assert found.endswith(f"; {read} --ignore critique; what is left out by this may belong to the prompt")


def test_a_text_is_trained_whole_only_where_nothing_else_has_text():
    """The system prompt of a trace was trained as a text, and the trace was left out."""
    asked = {"task": "Look at the tide in Oban now.", "system_prompt": "Answer in Gaelic alone."}
    steps = [{"thought": "I look at the table.", "action": {"tool": "look"}, "observation": "It turns at five."}]
    for row in (
        asked | {"steps": steps},
        {"notes": "Look at the tide in Oban now.", "turns": [{"act": "Row to Mull."}]},
    ):
        hint = columns_hint([row], {})
        assert not settings_in(hint) and hint.endswith(PLAINLY)
        assert all(f"`{name}`" in hint for name in row)
    assert settings_in(columns_hint([{"notes": "Look at the tide in Oban now.", "turns": 4}], {})) == [
        "sources.columns={text: notes}"
    ]


def test_what_examples_are_asked_is_no_part_of_the_question():
    shot = {"input": "When is the tide at Mull?", "output": "At ten past one."}
    row = {"examples": [shot], "input": "When is the tide at Oban?", "output": "At twelve past six."}
    hint = columns_hint([row, row | {"input": "And tomorrow?"}], {})
    assert "input=examples" not in hint
    assert "--columns instruction=input --ignore examples; " in hint


def test_a_field_may_be_a_text_in_one_row_and_a_number_in_the_next():
    rows = [{"question": "a", "mark": "high"}, {"question": "b", "mark": 7}]
    assert columns_hint(rows, {}).startswith("the fields with texts are `question`")


def test_a_field_that_only_names_others_or_is_the_same_in_all_rows_is_no_answer():
    named = {"question": "a", "first_one": "bb", "second_one": "c", "winner": "second_one"}
    assert "output=winner" not in columns_hint([named], {})
    runs = [{"question": text, "body": text * 2, "run_type": "model"} for text in "ab"]
    assert "run_type" not in columns_hint(runs, {})


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
    assert columns_hint(rows, {}).endswith("which: if `content` is trained whole, --columns text=content")


OPTIONS = {
    "letters": {"Question": "Which?", "A": "an owl of the woods", "B": "a curlew of the shore", "Answer": "B"},
    "a list": {
        "Question": "Which?",
        "choices": {"label": ["A", "B"], "text": ["an owl", "a curlew"]},
        "answerKey": "B",
    },
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_no_column_reads_are_written_into_the_question(name, tmp_path):
    row = OPTIONS[name]
    hint = refused(tmp_path / "rows.jsonl", row)
    assert hint.index(": jq ") < hint.index("--ignore")
    command = hint[hint.index("jq -c") : hint.index("_lines.jsonl")] + "_lines.jsonl"
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    written = json.loads((tmp_path / "rows_lines.jsonl").read_text("utf-8"))
    assert written.keys() == {"Question", [*row][-1]}
    assert all(text in written["Question"] for text in ("Which?", "owl", "curlew", "B"))


SAID = ["It lives in woods.", "It is a bird of the shore.", "Nobody knows."]
ASKED = {"prompt": "Where does a curlew live?", "tags": ["a", "b", "c"]}
SEVERAL = {
    "texts": ({"responses": SAID}, [{"responses": each} for each in SAID]),
    "texts in an object": ({"answers": {"text": SAID[:2]}}, [{"answers": {"text": each}} for each in SAID[:2]]),
    "objects": (
        {"completions": [{"text": each, "rank": k} for k, each in enumerate(SAID)]},
        [{"completions": {"text": each, "rank": k}} for k, each in enumerate(SAID)],
    ),
    "numbers": ({"answers": ["12", "13"]}, [{"answers": "12"}, {"answers": "13"}]),
}
"""Answers to one question, and the rows that are made of them."""


def made_by(way, folder):
    subprocess.run(way.split(": ", 1)[1], shell=True, check=True, cwd=folder)
    return [json.loads(line) for line in (folder / "rows_lines.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("name", SEVERAL)
def test_each_of_several_answers_becomes_a_row(name, tmp_path):
    given, expected = SEVERAL[name]
    path = tmp_path / "rows.jsonl"
    said, *ways = re.split(r"; (?=if )", refused(path, ASKED | given))
    assert said == "packer reads one answer a row" and ways[0].startswith("if each ")
    made = [made_by(way, tmp_path) for way in ways]
    assert made[0] == [ASKED | row for row in expected]
    if "responses" in given:
        assert ways[1].startswith("if they are the parts of one answer, in their order: ")
        assert made[1] == [ASKED | {"responses": "\n".join(SAID)}]
    columns, *more = settings_in(refused(path, *made[0]))
    assert all(each.startswith("sources.columns={instruction: prompt, output: ") for each in (columns, *more))


def test_what_an_answer_is_tested_with_is_no_answer_where_another_field_has_one():
    row = {"question": "Print the sum of two numbers.", "solution": "print(sum(map(int, input().split())))"}
    hint = columns_hint([row | {"input_output": '{"inputs": ["1 2"], "outputs": ["3"]}'}], {})
    assert settings_in(hint) == ["sources.columns={instruction: question, output: solution}"]


@pytest.mark.parametrize("as_text", [False, True])
def test_calls_are_not_several_answers(as_text, tmp_path):
    calls = [{"name": "tide", "arguments": {"harbor": place}} for place in ("Oban", "Mallaig")]
    row = ASKED | {"answers": json.dumps(calls) if as_text else calls}
    assert "one answer a row" not in refused(tmp_path / "rows.jsonl", row)


EARLY, LATE = "It is high at twelve past six.", "It is high at noon."


@pytest.mark.parametrize("values", [("first", "second"), (0, 1)])
@pytest.mark.parametrize("names", [("answer_1", "answer_2"), ("reply_x", "reply_y")])
def test_what_may_say_which_of_two_answers_is_better_is_no_answer_and_is_named(names, values):
    said = [(EARLY, LATE), (LATE, EARLY)]
    rows = [
        {"query": "a", **dict(zip(names, texts, strict=True)), "better": value}
        for texts, value in zip(said, values, strict=True)
    ]
    hint = columns_hint(rows, {})
    assert "output=better" not in hint
    assert "as `better` may say, give rows `chosen` and `rejected`" in hint


@pytest.mark.parametrize(
    "more", [{}, {"lang": "de", "pair": 7}, {"question": "Which?"}, {"note": "From a book of tides."}]
)
@pytest.mark.parametrize("field", ["label", "better"])
def test_two_texts_without_a_question_are_no_pair(field, more):
    texts = [f"The tide of day {day} is high {when}." for day in "abcd" for when in ("early", "at noon")]
    rows = [
        {"sentence1": one, "sentence2": other, field: number % 2, **more}
        for number, (one, other) in enumerate(zip(texts[::2], texts[1::2], strict=True))
    ]
    hint = columns_hint(rows, {})
    assert ("is always better" in hint) is ("question" in more)
    assert more or field != "label" or "--columns instruction=sentence1,output=label,input=sentence2" in hint


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


def test_a_field_of_labels_that_repeat_is_no_question(tmp_path):
    rows = [{"kind": "ab"[k % 2] * 3, "reply": f"The ferry number {k} leaves at noon."} for k in range(6)]
    hint = refused(tmp_path / "rows.jsonl", *rows)
    assert settings_in(hint) == ["sources.columns={text: reply}"]
    for k, row in enumerate(rows):
        row["kind"] = f"oban {k}"
    assert "sources.columns={instruction: kind, output: reply}" in settings_in(refused(tmp_path / "rows.jsonl", *rows))


def test_an_answer_that_is_a_list_as_python_prints_it_is_among_the_ways(tmp_path):
    rows = [
        {
            "role": f"Skipper {k}",
            "question": f"When is it high, on day {k}?",
            "made": str([f"It is high at {k} today."]),
        }
        for k in range(4)
    ]
    found = settings_in(refused(tmp_path / "rows.jsonl", *rows))
    assert "sources.columns={instruction: question, output: made}" in found


@pytest.mark.parametrize(
    ("choices", "answer", "asked"),
    [
        (["an owl", "a curlew"], "B", "A. an owl\n\nB. a curlew"),
        (["A) an owl", "B) a curlew"], "B", "A) an owl\n\nB) a curlew"),
        (["an owl", "a curlew"], "a curlew", "an owl\n\na curlew"),
        (["an owl", "a curlew"], "C", "an owl\n\na curlew"),
    ],
)
def test_options_have_the_letters_by_which_answers_name_them(choices, answer, asked):
    row = {"question": "Which of these lives by the shore?", "choices": choices, "answer": answer}
    way = "--columns instruction=question,output=answer,input=choices"
    assert way in columns_hint([row], {})
    columns = {"instruction": "question", "output": "answer", "input": "choices"}
    sample = read_row(row, number=0, schema="alpaca", columns=columns)
    assert sample.messages[0].fields["content"] == f"{row['question']}\n{asked}"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"question": "a", "answer": 4.5},
            "`answer` may be the answer, and `columns` reads texts alone; the fields with texts are `question`",
        ),
        (
            {"question": "a", "answers": {"text": ["c", "d"], "start": [3]}},
            f"{NO_ANSWER.replace('completions', 'answers.text').partition(' are ')[0]} are `question`, `answers.text`",
        ),
        ({"id": "a", "completions": [{"model": "b", "response": "c"}, {"model": "d", "response": "e"}]}, NO_ANSWER),
        ({"question": "a", "chosen": CHAT}, "the fields with texts are `question`"),
        ({"instruction": None, "output": "b"}, "the fields with texts are `output`"),
    ],
)
def test_where_there_is_nothing_to_map_the_hint_says_so(row, said):
    assert columns_hint([row], {}) == said + PLAINLY
    assert columns_hint([{"score": 4}], {}) == "no field of these rows has a text" + READS


@pytest.mark.parametrize(("answer", "said"), [(4, "4"), (0, "0"), (True, "true"), (False, "false")])
def test_an_answer_may_be_a_whole_number_or_a_yes_or_no(answer, said):
    row, columns = {"question": "2+2?", "answer": answer}, {"instruction": "question", "output": "answer"}
    assert columns_hint([row], {}).endswith(
        "if `answer` answers `question`, --columns instruction=question,output=answer"
    )
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


EARLIER = [{"role": "user", "content": "Is it a bird?"}, {"role": "assistant", "content": SAID[1]}]
TURNS = ["How do I clean a kettle?", "Begin with the joints.", "Which tools do I need?"]
STORY = {"story": " ".join(SAID), "questions": [f"Where is it, {k}?" for k in range(3)]}
SEVERAL_TURNS = [
    (STORY | {"answers": SAID}, "the texts in `answers` answer those in `questions`, write"),
    (
        STORY | {"answers": {"input_text": SAID, "span_start": [0, 19, 48]}},
        "the texts in `answers.input_text` answer those in `questions`, write",
    ),
    ({"history": EARLIER, "question": "Where does it live?", "answer": SAID[0]}, "`history` may have several turns"),
    (
        {"conversation_history": EARLIER, "user": "Where does it live?", "assistant": SAID[0]},
        "`conversation_history` may have several turns",
    ),
    *(
        ({name: TURNS, "response": "You need a brush."}, f"`{name}` may have several turns")
        for name in ("context", "history", "dialogue_history", "prompt")
    ),
]


@pytest.mark.parametrize(("row", "named"), SEVERAL_TURNS)
def test_turns_beside_a_question_or_an_answer_are_never_left_out(row, named):
    rows = [{name: f"{value} {k}" if isinstance(value, str) else value for name, value in row.items()} for k in "abc"]
    hint = columns_hint(rows, {})
    assert settings_in(hint) == [] and f"if {named}" in hint


@pytest.mark.parametrize("first", [0, 1])
def test_a_number_that_picks_one_of_several_answers_is_told_before_they_are_rows(first, tmp_path):
    rows = [{"prompt": f"Which, {k}?", "responses": SAID[:2], "best": first + k % 2} for k in range(4)]
    said = refused(tmp_path / "rows.jsonl", *rows)
    which = (
        "if `best` says which of `responses` is the better one, give rows that one alone, or `chosen` and `rejected`"
    )
    assert said.startswith(f"packer reads one answer a row; {which}; if each text")


def test_options_are_written_into_the_question_without_what_else_may_belong_to_it():
    options = {"A": "clean the kettle", "B": "close the door", "C": "call the pilot"}
    rows = [{"question": f"Which, {k}?", **options, "answer": "A", "explanation": SAID[k]} for k in range(3)]
    hint = columns_hint(rows, {})
    assert "if `A`, `B`, `C` belong to the question" in hint and "if `explanation` belongs to the question" in hint
