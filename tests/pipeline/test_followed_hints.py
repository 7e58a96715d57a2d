"""Hints about columns are followed letter by letter: the next build takes the row, and what was said to be read is."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import twins
import yaml
from command_line import fields, run
from hints import settings_in
from hypothesis import example, given, settings
from hypothesis import strategies as st
from search_effort import IS_DEEP, each_with_a_kind, one_in
from supervision_stages import Stages, chat
from watched_builds import Notes

from packer.audit.preview import preview
from packer.audit.view import view_row
from packer.batches import RowBatch
from packer.errors import InputError, RecipeError
from packer.pipeline.messages import suggestions
from packer.pipeline.messages.suggestions import PARALLEL_CALLS, Trial
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache

USER, ANSWER = {"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}
ROWS = {
    "strings": {"prompt": "question", "completion": "answer"},
    "messages in prompt and completion": {"prompt": [USER], "completion": [ANSWER]},
    "alpaca": {"instruction": "question", "output": "answer"},
    "query": {"query": "question", "response": "answer"},
    "messages": {"messages": [USER, ANSWER]},
    "pair of texts": {"prompt": "question", "chosen": "answer", "rejected": "other"},
    "pair of messages": {"prompt": [USER], "chosen": [ANSWER], "rejected": [ANSWER | {"content": "other"}]},
    "pair after an instruction": {"instruction": "question", "chosen": "answer", "rejected": "other"},
    "rated strings": {"prompt": "question", "completion": "answer", "label": True},
    "rated messages": {"messages": [USER, ANSWER], "label": True},
    "rated alpaca": {"instruction": "question", "output": "answer", "label": False},
}
NAMES = (
    "system_prompt",
    "System Message",
    "cot",
    "rationale",
    "context",
    "passage",
    "system",
    "reasoning",
    "input",
    "it's",
)


def follow(
    path: Path, row: dict[str, Any], columns: dict[str, str], tokenizer: Path, *, last: bool
) -> tuple[list[str], str, str]:
    """Follow hints until the row builds: of each, the first way out or the last. Return them, the rendered row, and the notes."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    else:
        path.write_text(json.dumps(row) + "\n", "utf-8")
    values = {"sources": [{"path": str(path), "columns": columns}], "tokenizer": str(tokenizer)}
    followed: list[str] = []
    ignored: set[str] = set()
    while len(followed) <= 4:
        try:
            notes = Notes()
            overrides = [each for each in followed if each.startswith("sources.columns=")][-1:]
            values["sources"][0]["ignore"] = sorted(ignored)
            seen = preview(make_recipe(values, overrides), progress=notes)
            (shown,) = seen.rows
            if shown.hint is None and seen.hint is None:
                text = "".join(run.text for document in shown.view.documents for run in document.runs)
                return followed, text, "\n".join([*notes.notes, *ignored])
            hint = seen.hint or shown.hint
        except InputError as error:
            assert error.hint is not None
            hint = error.hint
        assert hint is not None
        ways = re.split(r"; (?=--|if )| or (?=--columns)", hint)
        ways = [way[way.index("--") :] for way in ways if "--columns" in way or "--ignore" in way]
        assert ways, hint
        way = re.split(r" reads `| leaves |; ", ways[-1 if last else 0])[0]
        words = shlex.split(way)
        new = [each for each in settings_in(way) if each.startswith("sources.columns=")]
        new_ignored = {words[i + 1] for i, word in enumerate(words) if word == "--ignore"}
        assert not {*new} & {*followed} and (new or not new_ignored <= ignored), hint
        followed += new
        ignored |= new_ignored
    raise AssertionError(followed)


@settings(max_examples=(4 if IS_DEEP else 2) * settings.default.max_examples)
@given(
    row=st.sampled_from(sorted(ROWS)),
    extra=st.sets(st.sampled_from(NAMES), max_size=3),
    renamed=st.sets(
        st.sampled_from(["prompt", "completion", "instruction", "output", "messages", "chosen", "system", "input"])
    ),
    last=st.booleans(),
)
@example(row="strings", extra={"cot"}, renamed=set(), last=False)
@example(row="strings", extra={"cot", "system_prompt", "input"}, renamed={"prompt", "completion"}, last=False)
@example(row="strings", extra={"system", "reasoning"}, renamed={"prompt", "completion"}, last=False)
@example(row="pair of texts", extra={"system_prompt"}, renamed={"prompt", "chosen"}, last=False)
@example(row="alpaca", extra={"system", "system_prompt", "cot", "rationale"}, renamed={"system"}, last=True)
def test_hints_about_columns_lead_to_a_row_that_builds(
    tmp_path_factory: pytest.TempPathFactory, starter: Path, row: str, extra: set[str], renamed: set[str], last: bool
) -> None:
    fields = ROWS[row] | {name: f"the text of {name}" for name in extra}
    columns = {name: f"my {name}" for name in renamed & {*ROWS[row], *(extra & {"system"})}}
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    named = {columns.get(name, name): value for name, value in fields.items()}
    followed, text, notes = follow(path, named, columns, starter / "tokenizer", last=last)
    assert "question" in text
    assert "answer" in text
    said = yaml.safe_load(followed[-1].partition("=")[2]) if followed else columns
    for name in extra:
        own = columns.get(name, name)
        left_out = own in notes.split("\n") or any(new in {name, own} and old is None for new, old in said.items())
        assert (f"the text of {name}" in text) + left_out == 1, (name, followed, notes)


PUBLISHED: dict[str, dict[str, Any]] = {
    "aya": {"inputs": "question", "targets": "answer", "language": "x"},
    "capybara": {
        "source": "x",
        "conversation": [{"input": "question", "output": "answer"}, {"input": "more", "output": "rest"}],
    },
    "capybara pairs": {
        "conversation": [{"input": "question", "output": "answer"}, {"input": "more", "output": "rest"}],
        "prompt": "question",
        "chosen": [USER, ANSWER, {"role": "user", "content": "more"}, {"role": "assistant", "content": "rest"}],
        "rejected": [USER, ANSWER, {"role": "user", "content": "more"}, {"role": "assistant", "content": "other"}],
    },
    "a worse answer beside messages": {"messages": [USER, ANSWER], "rejected_answer": "other words than these"},
    "code feedback": {"query": "question", "answer": "answer", "lang": "x"},
    "squad": {"question": "question", "context": "be kind", "answers": {"text": ["answer"], "answer_start": [20]}},
    "passages": {"question": "question", "documents": ["be kind to all", "and be careful"], "answer": "answer"},
    "passages with titles": {
        "question": "question of four words",
        "documents": [{"title": "x", "text": "be kind to all"}, {"title": "y", "text": "and be careful always"}],
        "answer": "answer",
    },
    "one passage": {"query": "question", "passages": ["be kind to all who ask"], "reply": ["answer"]},
    "gsm8k": {"question": "question", "answer": "answer"},
    "intel orca pairs": {"system": "be kind", "question": "question", "chosen": "answer", "rejected": "other"},
    "argilla orca pairs": {
        "system": "be kind",
        "input": "question",
        "chosen": "answer",
        "rejected": "other",
        "rating": [9.0, 8.0],
    },
    "limo": {"question": "question", "answer": "42", "solution": "answer 42"},
    "medical o1": {"Question": "question", "Complex_CoT": "be careful", "Response": "answer"},
    "nemotron v1": {
        "input": [USER],
        "output": "answer",
        "reasoning": "on",
        "system_prompt": "be kind",
        "category": "x",
    },
    "moss": {"meta_instruction": "be kind", "conversation": [{"human": "question", "assistant": "answer"}]},
    "open math reasoning": {"problem": "question", "generated_solution": "answer", "expected_answer": "42"},
    "summaries": {"instruction": "question", "document": "be kind", "output": "answer"},
    "open code reasoning": {"id": "x", "input": "question", "output": "answer", "license": "x"},
    "a corrected answer": {
        "instruction": "question",
        "output": "These are the words of a model.",
        "corrected_output": "These are the words of an answer.",
    },
    "firefly": {"kind": "x", "input": "question", "target": "answer"},
    "dolphin r1": {"messages": [USER], "reasoning": "be careful", "answer": "answer", "model": "x"},
    "llama factory's ratings": {"instruction": "question", "input": "", "output": "answer", "kto_tag": False},
    "openai responses": {"input": [USER], "output": [ANSWER]},
    "sciq": {
        "question": "question",
        "distractor1": "x",
        "correct_answer": "answer",
        "support": "you should be kind to all",
    },
    "langfuse": {"id": "x", "input": {"messages": [USER]}, "output": {"role": "assistant", "content": "answer"}},
    "langsmith": {"inputs": {"input": "question"}, "outputs": {"output": "answer"}, "metadata": {"split": "x"}},
    "nested": {"data": {"question": "question", "context": "you should be kind to all", "answer": "answer"}},
    "speakers": {"sys": "be kind", "human": "question", "ai": "answer"},
    "evals": {"input": [USER], "ideal": "answer"},
    "good and bad": {"question": "question", "good_answer": "answer", "bad_answer": "this one is much longer"},
    "winners": {"input": "question", "preferred": "answer", "dispreferred": "this one is much longer"},
    "webgpt": {"question": "question", "answer_0": "other", "answer_1": "answer", "score_0": -1.0, "score_1": 1.0},
    "webgpt with pages": {
        "question": {"id": "x", "full_text": "the question in several words"},
        "quotes_0": {"extract": ["a text of some page that says so"]},
        "answer_0": "other",
        "answer_1": "answer",
        "score_0": -1.0,
        "score_1": 1.0,
    },
    "shp": {
        "history": "the question in several words",
        "human_ref_A": "answer",
        "human_ref_B": "other",
        "score_A": 9,
        "score_B": 5,
    },
    "helpsteer 3": {
        "context": [USER],
        "response1": "other",
        "response2": "answer",
        "overall_preference": 2,
        "individual_preference": [
            {"score": 2, "reasoning": "The second one is better.", "feedback1": "It is no good."}
        ],
    },
    "two models": {
        "question": "question",
        "solution": "another solution",
        "grey_thinking_trajectory": "be careful, as the table of tides has it",
        "grey_attempt": "the answer of the grey one",
        "blue_attempt": "other",
        "blue_thinking_trajectory": "I ask",
        "blue_grade": "No",
    },
    "ultra interact pairs": {
        "trajectory": [{"from": "user", "value": "question"}],
        "chosen": "answer",
        "rejected": "other",
        "task": "x",
    },
    "a trajectory with an empty result": {
        "trajectory": [
            USER,
            ANSWER
            | {
                "content": "I look.",
                "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": {"place": "x"}}}],
            },
            {"role": "tool", "content": "", "name": "look", "tool_call_id": "1"},
            ANSWER,
        ],
        "exit_status": "x",
    },
    "with a setting": {"instruction": "question", "output": "answer", "reasoning": "off"},
    "smoltalk 2": {
        "messages": [USER, ANSWER],
        "chat_template_kwargs": {"custom_instructions": "be kind", "enable_thinking": False},
    },
    "smoltalk 2 with tools": {
        "messages": [USER, ANSWER],
        "chat_template_kwargs": {
            "enable_thinking": False,
            "xml_tools": [json.dumps({"name": "tide", "parameters": {"properties": {"harbor": {"type": "string"}}}})],
        },
    },
}
"""Rows in the forms of published data sets, in other words."""


@pytest.mark.parametrize(("name", "kind"), each_with_a_kind(one_in(2, [*PUBLISHED]), ["jsonl", "parquet"]))
def test_a_row_of_a_published_form_builds_by_its_hints(name: str, kind: str, tmp_path: Path, starter: Path) -> None:
    row = PUBLISHED[name]
    followed, text, notes = follow(tmp_path / f"rows.{kind}", row, {}, starter / "tokenizer", last=False)
    assert len(followed) <= 2
    assert "question" in text and "answer" in text
    said = "\n".join([text, notes, *followed])
    for field, value in row.items():
        assert not isinstance(value, str) or value in text or field in said or field == "id", field
    kept = {
        "intel orca pairs": "be kind",
        "moss": "be kind",
        "summaries": "be kind",
        "argilla orca pairs": "be kind",
        "nemotron v1": "be kind",
        "medical o1": "be careful",
        "dolphin r1": "be careful",
        "two models": "be careful, as the table of tides has it",
        "nested": "be kind",
        "squad": "be kind",
        "a corrected answer": "the words of an answer",
        "passages": "be kind to all\n\nand be careful",
        "one passage": "be kind to all who ask",
        "passages with titles": "be kind to all\n\nand be careful always",
        "speakers": "be kind",
        "smoltalk 2": "be kind",
        "smoltalk 2 with tools": "harbor",
    }
    assert kept.get(name, "question") in text


def test_what_the_system_says_is_read_from_a_variable_beside_one_in_which_rows_differ(
    tmp_path: Path, starter: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [
        {"custom_instructions": f"be kind to all of them, {k}", "enable_thinking": k > 1, "tools": None}
        for k in range(4)
    ]
    path.write_text(
        "".join(json.dumps({"messages": [USER, ANSWER], "chat_template_kwargs": each}) + "\n" for each in rows)
    )
    recipe = {"sources": [{"path": str(path)}], "tokenizer": str(starter / "tokenizer")}
    hint = preview(make_recipe(recipe), rows=1).rows[0].hint
    assert hint is not None and "if `custom_instructions` is what the system says" in hint
    assert " leaves out the variables `enable_thinking`; " in hint
    (shown,) = preview(make_recipe(recipe, settings_in(hint)[:1]), rows=1).rows
    assert "be kind to all of them, 0" in "".join(
        run.text for document in shown.view.documents for run in document.runs
    )


def test_a_sentence_for_a_variable_that_the_template_does_not_have_is_not_lost(tmp_path: Path) -> None:
    talk = [USER, ANSWER]
    for value, code in (
        ("be kind", "unread_content"),
        ("友善地回答", "unread_content"),
        (["{}"], "unread_content"),
        ({"a": 1}, "unread_content"),
    ):
        stages = Stages.load(twins.byte_level(tmp_path / "without"))
        assert [found for found, _ in stages.reasons([chat(*talk, custom_instructions=value)])] == [code]
        reads = "{{ custom_instructions or '' }}" + twins.CHATML
        stages = Stages.load(twins.byte_level(tmp_path / "with", template=reads))
        assert stages.reasons([chat(*talk, custom_instructions=value)]) == []
    for harmless in (True, None, "", "high", [], 3):
        stages = Stages.load(twins.byte_level(tmp_path / "without"))
        assert stages.reasons([chat(*talk, custom_instructions=harmless)]) == []


@pytest.mark.parametrize("stop", ["", 'supervision.stop=["\\n\\n"]'])
def test_the_token_that_ends_a_turn_is_named_where_it_is_no_stop_token(tmp_path: Path, stop: str) -> None:
    """As of a folder of Gemma without its generation_config.json; stop tokens of the recipe stay."""
    folder = twins.line_breaks(tmp_path / "twin")
    (folder / "generation_config.json").unlink()
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": [USER, ANSWER]}) + "\n", "utf-8")
    given_keys = {"sources": [{"path": str(tmp_path / "rows.jsonl")}], "tokenizer": str(folder)}
    (row,) = preview(make_recipe(given_keys, [stop] if stop else [])).rows
    assert [each.code for each in row.view.rejected] == ["no_terminator"]
    _, override, *_ = shlex.split(row.hint or "")
    assert override.endswith('"<end_of_turn>"]')
    assert override.startswith(stop.removesuffix("]"))
    (row,) = preview(make_recipe(given_keys, [override])).rows
    assert [run.text for document in row.view.documents for run in document.runs if run.message is not None] == [
        "answer<end_of_turn>"
    ]


@pytest.mark.parametrize("name", ["role", "message", "im_start"])
def test_a_word_of_the_template_that_is_not_one_of_its_variables_is_not_read(tmp_path: Path, name: str) -> None:
    stages = Stages.load(twins.byte_level(tmp_path / "model", template=twins.CHATML))
    assert name in twins.CHATML
    assert [found for found, _ in stages.reasons([chat(USER, ANSWER, **{name: "be kind"})])] == ["unread_content"]


def test_an_answer_beside_messages_that_end_in_a_question_is_named_though_rows_with_an_error_have_none(
    tmp_path: Path, starter: Path
) -> None:
    path, asked = tmp_path / "rows.jsonl", [USER, ANSWER, {"role": "user", "content": "And at noon?"}]
    rows: list[dict[str, Any]] = [
        {"messages": asked, "answer": f"It is pier {n}, as ever.", "error": None} for n in "abc"
    ]
    rows.append({"messages": asked, "answer": "", "error": "The server had too much to do."})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    build = ("build", path, "--tokenizer", starter / "tokenizer", "-o", tmp_path / "cache")
    hint = fields(*build, exit_code=3)["error"]["hint"]
    assert "=error" not in hint
    assert settings_in(hint)[0] == "sources.columns={prompt: messages, completion: answer}"
    run(*build, "--set", settings_in(hint)[0])
    with Cache.open(tmp_path / "cache") as cache:
        documents = [view_row(cache, "rows.jsonl", row).documents for row in range(3)]
        assert cache.manifest.totals.rejected == {"wrong_type": 1}
    said = ["".join(run.text for run in each.runs if run.message is not None) for (each,) in documents]
    assert [text.partition("<|")[0] for text in said] == [row["answer"] for row in rows[:3]]


def test_the_hint_for_a_rating_that_is_a_text_is_followed(tmp_path: Path, starter: Path) -> None:
    """The schema of rated answers reads no text, so a hint that names the schema would lead to the next rejection."""
    row = {"prompt": "question", "completion": "answer", "label": "True"}
    followed, text, _ = follow(tmp_path / "rows.jsonl", row, {}, starter / "tokenizer", last=False)
    assert followed == ["sources.columns={label: null}"] and "answer" in text


def test_no_hint_about_empty_questions_for_a_result_without_content(tmp_path: Path, starter: Path) -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "output": "18"}
    row = {"messages": [USER, ANSWER | {"content": [call]}, USER | {"content": [result]}, ANSWER]}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", "utf-8")
    recipe = make_recipe({"sources": [{"path": str(path)}], "tokenizer": str(starter / "tokenizer")}, ())
    (shown,) = preview(recipe).rows
    assert shown.hint is not None
    assert shown.hint.startswith("messages need their text under `content`")


@pytest.mark.parametrize(
    "row",
    [
        {"question": "2 + 2?", "reply": "4"},
        {"messages": [{"role": "client", "content": "2 + 2?"}, {"role": "counselor", "content": "4"}]},
        {"question": "2 + 2?", "answer": "4", "critique": "It is far too short."},
        {"prompt": "2 + 2?", "completion": "4", "system_prompt": "Count with care, please."},
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_hint_about_one_of_several_sources_sets_keys_of_that_source(
    row: dict[str, Any], number: int, tmp_path: Path, starter: Path
) -> None:
    """Columns for both would be refused for the other, which has no such field."""
    (tmp_path / "chat.jsonl").write_text(json.dumps(ROWS["messages"]) + "\n", "utf-8")
    (tmp_path / "other.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    names = [*["chat.jsonl"] * number, "other.jsonl", *["chat.jsonl"] * (1 - number)]
    values = {
        "sources": [{"path": str(tmp_path / name)} for name in names],
        "tokenizer": str(starter / "tokenizer"),
    }
    hint = hint_of(values)
    assert hint.endswith("; `sources.` in place of `sources[N].` is for all of them")
    *_, way = (way for way in hint.split("; ") if "--set" in way)
    ways = settings_in(way)
    assert ways and all(each.startswith(f"sources[{number}].") for each in ways)
    assert hint_of(values, ways) == ""


def hint_of(values: dict[str, Any], ways: Sequence[str] = ()) -> str:
    """The first hint for some sources; nothing if they build."""
    try:
        seen = preview(make_recipe(values, ways), progress=Notes())
    except InputError as error:
        assert error.hint is not None
        return error.hint
    return next(filter(None, [seen.hint, *(row.hint for row in seen.rows)]), "")


@pytest.mark.parametrize("setting", ["sources[2].limit=1", "sources[x].limit=1", "sources[0].limit.a=1"])
def test_a_key_of_a_source_that_is_not_there_is_one_error(setting: str) -> None:
    with pytest.raises(RecipeError):
        make_recipe({"sources": [{"path": "a"}, {"path": "b"}]}, [setting])


def test_what_two_sources_are_both_asked_is_said_once_for_both(tmp_path: Path, starter: Path) -> None:
    row = {"prompt": "2 + 2?", "completion": "4", "system_prompt": "Count with care, please."}
    for name in ("train.jsonl", "test.jsonl"):
        (tmp_path / name).write_text(json.dumps(row) + "\n", "utf-8")
    sources = [{"path": str(tmp_path / name)} for name in ("train.jsonl", "test.jsonl")]
    values = {"sources": sources, "tokenizer": str(starter / "tokenizer")}
    columns, *others = settings_in(hint_of(values))
    assert columns.startswith("sources.columns=") and not others
    assert hint_of(values, [columns]) == ""


OWN_MARKERS = twins.CHATML.replace(
    "(message.content or '')",
    "('[R]' ~ message.reasoning_content ~ '[/R]' if message.reasoning_content and not tools else '')"
    " + (message.content or '')",
)
REASONED = ANSWER | {"reasoning_content": "I should think about it."}


@pytest.mark.parametrize(("template", "is_inline_proposed"), [(twins.CHATML, True), (OWN_MARKERS, False)])
def test_hints_about_reasoning_were_tried_and_never_put_tags_beside_markers_of_the_template(
    tmp_path: Path, template: str, is_inline_proposed: bool
) -> None:
    template = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + template
    folder = twins.byte_level(tmp_path / "model", template=template)
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {}}}]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": [USER, REASONED], "tools": tools}) + "\n", "utf-8")
    values = {"sources": [{"path": str(path)}], "tokenizer": str(folder)}
    (shown,) = preview(make_recipe(values)).rows
    assert [each.code for each in shown.view.rejected] == ["dropped_reasoning"]
    assert shown.hint is not None
    ways = [shlex.split(way)[1] for way in shown.hint.split("; ")]
    assert ("supervision.reasoning=inline" in ways) == is_inline_proposed
    assert ways[-1] == "supervision.allow_dropped=[reasoning]"
    for way in ways:
        assert preview(make_recipe(values, [way])).totals.kept == 1


def test_no_hint_trains_tags_of_another_family_as_letters(tmp_path: Path) -> None:
    closes = "assistant\\n<think>' ~ ('' if thinking else '</think>')"
    template = twins.CHATML.replace("assistant\\n'", closes).replace(
        "(message.content or '')",
        "('<think></think>' if message.role == 'assistant' else '') ~ (message.content or '')",
    )
    folder = twins.byte_level(tmp_path / "model", template=template)
    said = ANSWER | {"content": "<|begin_of_thought|>I should think.<|end_of_thought|>\n\nAt six."}
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": [USER, said]}) + "\n", "utf-8")
    values = {"sources": [{"path": str(tmp_path / "rows.jsonl")}], "tokenizer": str(folder)}
    (shown,) = preview(make_recipe(values)).rows
    assert [each.code for each in shown.view.rejected] == ["dropped_reasoning"]
    assert "supervision.reasoning=inline" not in (shown.hint or "")


ONLY_INLINE = twins.CHATML.replace("assistant\\n' }}", "assistant\\n' }}{% set known = '<think></think>' %}")
"""As SmolLM3, which knows tags of reasoning in texts, and no field."""


@pytest.mark.parametrize("asked", ["Write <|begin_of_thought|> {thought} <|end_of_thought|>.", "Think first."])
def test_the_ways_out_for_tags_of_another_family_go_in_no_circle(tmp_path: Path, asked: str) -> None:
    """As OpenThoughts, whose system message asks for its tags; where none does, their letters are not learned."""
    block = "<|begin_of_thought|>\n\nI should think.\n\n<|end_of_thought|>\n\n"
    said = block + "<|begin_of_solution|>At six.<|end_of_solution|>"
    talk = [{"from": "user", "value": "When?"}, {"from": "assistant", "value": said}]

    def trained(*ways: str) -> str:
        (seen,) = shown_for(tmp_path, ONLY_INLINE, [{"system": asked, "conversations": talk}], *ways).rows
        return "".join(run.text for document in seen.view.documents for run in document.runs if run.message is not None)

    hint = hint_for(shown_for(tmp_path, ONLY_INLINE, [{"system": asked, "conversations": talk}]))
    one, other = hint.split("; ")
    without, kept = (other, one) if asked.startswith("Write") else (one, other)
    assert trained(*settings_in(without)) == "At six.<|im_end|>"
    if kept == other:
        assert kept.startswith("give reasoning under `reasoning_content`, without tags: ")
        talk[1] |= {"value": "At six.", "reasoning_content": "I should think."}
        said = "<think>\nI should think.\n</think>\n\nAt six."
    assert trained(*settings_in(kept)) == f"{said}<|im_end|>"


CHANNELS = """\
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.thinking %}{{ '[R]' + m.thinking + '[/R]' }}{% endif %}
{{- m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
SWITCHED = CHANNELS.replace(
    "'<|im_start|>assistant\\n' }}",
    "'<|im_start|>assistant\\n' + ('[R][/R]' if enable_thinking is defined and not enable_thinking else '') }}",
)
EFFORTS = (
    """\
{%- if reasoning_effort is not defined %}{% set reasoning_effort = 'none' %}{% endif %}
{{- {'none': 'no', 'low': 'some', 'high': 'much'}[reasoning_effort] if reasoning_effort in ['none', 'low', 'high'] }}
"""
    + CHANNELS
)
INLINE_ROW = [USER, ANSWER | {"content": "<reasoning>I should think.</reasoning>\n4"}]


def shown_for(folder: Path, template: str, rows: list[Any], *overrides: str, **kwargs: Any) -> Any:
    """The preview of rows of messages, given with or without variables of their own."""
    model = twins.byte_level(folder / "model", template=template)
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    values = {"sources": [{"path": str(path)}], "tokenizer": str(model), "template": {"kwargs": kwargs}}
    return preview(make_recipe(values, overrides))


def hint_for(seen: Any) -> str:
    (shown,) = seen.rows
    assert shown.hint is not None
    return str(shown.hint)


def test_the_hint_for_reasoning_in_other_tags_moves_it_to_where_the_template_has_it(tmp_path: Path) -> None:
    rows = [{"messages": INLINE_ROW}]
    hint = hint_for(shown_for(tmp_path, CHANNELS, rows))
    (way,) = hint.split("; ")
    assert shlex.split(way)[:2] == ["--set", "supervision.reasoning=field"]
    (built,) = shown_for(tmp_path, CHANNELS, rows, "supervision.reasoning=field").rows
    assert "[R]I should think.[/R]4" in "".join(run.text for document in built.view.documents for run in document.runs)


def test_the_hint_for_tags_of_which_no_prompt_is_continued_moves_them_to_the_field(tmp_path: Path) -> None:
    """Markers that the template writes in one mode alone."""
    deep = CHANNELS.replace("{%- if m.thinking %}", "{%- if m.thinking and deep == 'yes' %}").replace(
        "assistant\\n' }}", "assistant\\n' + ('[R]' if deep == 'yes' else '') }}"
    )
    rows = [{"messages": [USER, ANSWER | {"content": "<think>\nI should think.\n</think>\n\n4"}]}]
    way = shlex.split(hint_for(shown_for(tmp_path, deep, rows)).split("; ")[0])
    assert way[:2] == ["--set", "supervision.reasoning=field"]
    (built,) = shown_for(tmp_path, deep, rows, way[1]).rows
    assert "[R]I should think.[/R]4" in "".join(run.text for document in built.view.documents for run in document.runs)


def test_the_hint_for_reasoning_holds_where_the_template_names_its_channels(tmp_path: Path) -> None:
    """As Kimi K3: `<|close|>response<|sep|>` stands behind an answer."""
    channels = CHANNELS.replace("m.content + '", "m.content + '<|endoftext|>response<|im_end|>").replace(
        "[R]", "[THOUGHT]"
    )
    hint = hint_for(shown_for(tmp_path, channels, [{"messages": INLINE_ROW}]))
    assert settings_in(hint) == ["supervision.reasoning=field"]


def test_tags_are_not_proposed_to_a_template_that_has_others_before_calls(tmp_path: Path) -> None:
    """As Command R7B, which shows reasoning only before calls, and answers in a channel."""
    before_calls = CHANNELS.replace("m.thinking %}", "m.thinking and m.tool_calls %}")
    before_calls = before_calls.replace("[R]", "<|START_THINKING|>").replace("[/R]", "<|END_THINKING|>")
    for messages in (INLINE_ROW, [USER, REASONED]):
        hint = hint_for(shown_for(tmp_path, before_calls, [{"messages": messages}]))
        assert "supervision.reasoning=inline" not in hint
        assert shown_for(tmp_path, before_calls, [{"messages": messages}], *settings_in(hint)).totals.kept == 1


def test_the_hint_for_tags_that_the_template_alone_has_names_the_field_of_reasoning(tmp_path: Path) -> None:
    rows = [{"messages": [USER, ANSWER | {"content": "4, for: [R]I should think.[/R]"}]}]
    (way,) = hint_for(shown_for(tmp_path, CHANNELS, rows)).split("; ")
    assert way.startswith("give reasoning under `reasoning_content`, without tags")
    rows = [{"messages": [USER, ANSWER | {"content": "4", "reasoning_content": "I should think."}]}]
    (built,) = shown_for(tmp_path, CHANNELS, rows).rows
    assert "[R]I should think.[/R]4" in "".join(run.text for document in built.view.documents for run in document.runs)


@pytest.mark.parametrize("messages", [[USER, REASONED], [USER, ANSWER | {"content": "<think>I should.</think>4"}]])
def test_the_hint_for_variables_of_a_row_that_contradict_it_is_followed(tmp_path: Path, messages: list[Any]) -> None:
    template = SWITCHED.replace("[R]", "<think>").replace("[/R]", "</think>")
    rows = [{"messages": messages, "chat_template_kwargs": {"enable_thinking": False}}]
    hint = hint_for(shown_for(tmp_path, template, rows))
    columns = "sources.columns={chat_template_kwargs: null}"
    _, last = hint.split("; ")
    assert settings_in(hint) == [columns]
    assert last.startswith("leave out the reasoning of such rows")
    assert shown_for(tmp_path, template, rows, columns).totals.kept == 1


def test_the_hints_for_a_template_with_several_efforts_are_followed(tmp_path: Path) -> None:
    rows = [{"messages": [USER, REASONED]}]
    *ways, last = hint_for(shown_for(tmp_path, EFFORTS, rows)).split("; ")
    settings = [shlex.split(way)[1] for way in ways]
    assert settings == ['template.kwargs.reasoning_effort="low"', 'template.kwargs.reasoning_effort="high"']
    assert last == "give each row its own in chat_template_kwargs"
    for setting in settings:
        assert shown_for(tmp_path, EFFORTS, rows, setting).totals.kept == 1
    rows[0]["chat_template_kwargs"] = {"reasoning_effort": "low"}
    assert shown_for(tmp_path, EFFORTS, rows).totals.kept == 1


def test_the_hint_for_a_word_that_means_none_by_default_names_the_variable(tmp_path: Path) -> None:
    only_none = "{{ 'think' if reasoning_effort is defined and reasoning_effort != 'none' }}" + CHANNELS
    rows = [{"messages": [USER, REASONED]}]
    seen = shown_for(tmp_path, only_none, rows)
    assert hint_for(seen).endswith("or set the variable to what asks for it")
    assert "contradicts reasoning_effort" in seen.rows[0].view.rejected[0].reason
    assert shown_for(tmp_path, only_none, rows, "template.kwargs.reasoning_effort=high").totals.kept == 1


def test_the_hints_for_inline_reasoning_and_an_effort_are_one_stop(tmp_path: Path) -> None:
    """As Hunyuan 3: reasoning in markers of its own, and only under an effort."""
    rows = [{"messages": INLINE_ROW}]
    way, *_ = hint_for(shown_for(tmp_path, EFFORTS, rows)).split("; ")
    _, setting, _, form, *_ = shlex.split(way)
    assert (setting, form) == ('template.kwargs.reasoning_effort="low"', "supervision.reasoning=field")
    assert shown_for(tmp_path, EFFORTS, rows, setting, form).totals.kept == 1


def test_the_hint_for_inline_reasoning_and_a_variable_of_the_row_is_one_stop(tmp_path: Path) -> None:
    rows = [{"messages": INLINE_ROW, "chat_template_kwargs": {"reasoning_effort": "none"}}]
    asking = EFFORTS.replace("'none' %}{% endif", "'high' %}{% endif")
    way, *_ = hint_for(shown_for(tmp_path, asking, rows)).split("; ")
    columns, form = settings_in(way)
    assert form == "supervision.reasoning=field"
    assert shown_for(tmp_path, asking, rows, columns, form).totals.kept == 1


ENDS_CALLS = """\
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
{%- for call in m.tool_calls or [] %}{{ call.function.name ~ (call.function.arguments | tojson) ~ '<|endoftext|>' }}{% endfor %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""Ends each call with a token, and no turn with any."""

CALLS = [{"type": "function", "function": {"name": name, "arguments": {"x": "1"}}} for name in ("look", "listen")]


def learned(seen: Any) -> list[str]:
    """What is trained of the only row that is shown."""
    (row,) = seen.rows
    return [run.text for document in row.view.documents for run in document.runs if run.message is not None]


@pytest.mark.parametrize(
    ("answer", "said"), [(ANSWER, ["answer"]), (ANSWER | {"tool_calls": CALLS}, ["answer", "look", "listen"])]
)
def test_the_token_that_ends_a_call_is_no_stop_token_of_an_answer(
    tmp_path: Path, answer: dict[str, Any], said: list[str]
) -> None:
    """Behind it, other calls of the turn would be lost."""
    rows = [{"messages": [USER, answer]}]
    hint = hint_for(shown_for(tmp_path, ENDS_CALLS, rows))
    ways = [shlex.split(way)[1] for way in hint.split("; ") if way.startswith("--set")]
    assert ways == ["supervision.no_terminator=append"]
    (text,) = learned(shown_for(tmp_path, ENDS_CALLS, rows, *ways))
    assert text.endswith("<|im_end|>") and all(word in text for word in said)
    stopped = shown_for(tmp_path, ENDS_CALLS, rows, 'supervision.stop=["<|endoftext|>"]')
    assert "allow_dropped" not in hint_for(stopped)


@pytest.mark.parametrize("content", ["", "Let me look."])
def test_a_lost_call_is_allowed_only_where_another_answer_is_trained(tmp_path: Path, content: str) -> None:
    """What is said before the call is not: it would be learned to stop where the call follows."""
    called = [USER, {"role": "assistant", "content": content, "tool_calls": CALLS[:1]}]
    assert "allow_dropped" not in hint_for(shown_for(tmp_path, twins.CHATML, [{"messages": called}]))
    rows = [{"messages": [*called, USER, ANSWER]}]
    hint = hint_for(shown_for(tmp_path, twins.CHATML, rows))
    assert "builds without it, and does not train turns with calls" in hint
    assert learned(shown_for(tmp_path, twins.CHATML, rows, *settings_in(hint))) == ["answer<|im_end|>"]


PROPERTIES = (
    "{% for t in tools or [] %}{{ t.function.name ~ ' ' ~ t.function.parameters.properties | list }}{% endfor %}"
)
ONE_CALL = twins.CHATML.replace(
    "(message.content or '')",
    "(message.tool_calls[0].function | tojson if message.tool_calls else message.content or '')",
)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("form", ["bare", "wrapped", "text"])
def test_parameters_without_properties_get_them_by_the_command_of_the_page(tmp_path: Path, form: str) -> None:
    defined: Any = [{"name": "look", "parameters": {"place": {"type": "str"}}}]
    defined = [{"type": "function", "function": each} for each in defined] if form == "wrapped" else defined
    row = {"messages": [USER, ANSWER], "tools": json.dumps(defined) if form == "text" else defined}
    hint = hint_for(shown_for(tmp_path, PROPERTIES + twins.CHATML, [row]))
    assert "#parameters-of-tools has the command" in hint and "allow_dropped" not in hint
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/exports.md").read_text("utf-8")
    command = re.search(r"## Parameters of tools\n.*?```sh\n(.*?)```", page, re.DOTALL)[1]  # type: ignore[index]
    (tmp_path / "rows.json").write_text(json.dumps(row), "utf-8")
    subprocess.run(["bash", "-euc", command], check=True, cwd=tmp_path)
    made = json.loads((tmp_path / "rows.jsonl").read_text("utf-8"))
    (text,) = shown_for(tmp_path, PROPERTIES + twins.CHATML, [made]).rows[0].view.documents[0].runs[:1]
    assert text.text.startswith("look ['place']")


def test_a_template_that_writes_one_call_of_a_message_has_a_place_for_calls(tmp_path: Path) -> None:
    called = {"role": "assistant", "content": "", "tool_calls": CALLS}
    hint = hint_for(shown_for(tmp_path, ONE_CALL, [{"messages": [USER, called]}]))
    assert hint.startswith("this template allows one call per message") and "no place" not in hint


WRAPS = twins.CHATML.replace(
    "(message.content or '')",
    "('<tool_response>' + message.content + '</tool_response>' if message.role == 'tool' else message.content or '')",
)
RESULT = {"role": "tool", "content": "<tool_response>06:12</tool_response>"}


@pytest.mark.parametrize(
    ("call", "is_offered"),
    [("Let me look.", True), ("[f(x=1)]", False), ("I call f, see below.", True)],
)
def test_tags_are_taken_off_only_where_no_call_is_left_as_text(tmp_path: Path, call: str, is_offered: bool) -> None:
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {}}}]
    template = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + WRAPS
    rows = [{"messages": [USER, ANSWER | {"content": call}, RESULT, ANSWER], "tools": tools}]
    seen = shown_for(tmp_path, template, rows)
    assert [each.code for each in seen.rows[0].view.rejected] == ["wrapped_twice"]
    assert ("rows.wrapped=unwrap" in hint_for(seen)) == is_offered


def test_two_keys_that_help_only_together_are_named_together(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    template = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + WRAPS
    defines = {"role": "system", "content": json.dumps(tools)}
    rows = [{"messages": [defines, USER, ANSWER | {"content": "Let me look."}, RESULT, ANSWER], "tools": tools}]
    both = "--columns tools=null --set rows.wrapped=unwrap"
    assert both in hint_for(shown_for(tmp_path, template, rows))
    ways = ("sources.columns={tools: null}", "rows.wrapped=unwrap")
    assert [row.view.rejected for row in shown_for(tmp_path, template, rows, *ways).rows] == [()]


def test_fewer_calls_of_a_message_are_not_suggested_for_rows_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suggestions, "_are_kept", lambda *_: True)
    several = [chat(USER, ANSWER | {"tool_calls": CALLS[:number]}) for number in (1, 2)]
    model = Stages.load(twins.byte_level(tmp_path / "model")).model
    rows = ([RowBatch(samples=(each,), rejections=(), num_rows=1)] for each in several)
    one, two = (Trial(rows=each, recipe=make_recipe({}), model=model).helps([PARALLEL_CALLS]) for each in rows)
    assert (one, two) == (False, True)


def test_all_that_a_template_drops_of_a_row_is_allowed_in_one_step(tmp_path: Path) -> None:
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}]
    rows = [{"messages": [USER, ANSWER | {"reasoning_content": "I think."}], "tools": tools}]
    (said,) = settings_in(hint_for(shown_for(tmp_path, twins.CHATML, rows)))
    assert said == "supervision.allow_dropped=[reasoning,tools]"
    assert [row.view.rejected for row in shown_for(tmp_path, twins.CHATML, rows, said).rows] == [()]


def test_no_field_is_proposed_for_reasoning_that_the_template_has_no_place_for(tmp_path: Path) -> None:
    called = {"role": "assistant", "content": "", "reasoning_content": "I think.", "tool_calls": CALLS}
    hint = hint_for(shown_for(tmp_path, twins.CHATML, [{"messages": [USER, called]}]))
    assert "no place for this" in hint and "reasoning_content" not in hint


def test_what_trains_two_answers_in_a_row_is_not_offered(tmp_path: Path) -> None:
    opens = CHANNELS.replace("'<|im_start|>assistant\\n' }}", "'<|im_start|>assistant\\n<think>\\n' }}")
    for messages, is_offered in (([USER, ANSWER], True), ([USER, ANSWER, ANSWER], False)):
        rows = [{"messages": messages}]
        hint = hint_for(shown_for(tmp_path, opens, rows, "supervision.on_prompt_mismatch=refuse"))
        assert ("on_prompt_mismatch=continue" in hint) == is_offered


CALLED = [
    USER,
    {"role": "assistant", "content": "", "tool_calls": CALLS[:1]},
    {"role": "tool", "content": "06:12"},
    ANSWER,
]
PEOPLE = [
    {"author": "mira", "content": "question", "pinned": False},
    {"author": "HelpBot", "content": "answer", "pinned": False},
]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"messages": PEOPLE}, "<|im_start|>user\nquestion"),
        ({"messages": [*CALLED[:2], {"role": "tool", "content": "x"}, ANSWER], "tools": ["tide", "moon"]}, "answer"),
    ],
)
def test_each_step_for_rows_that_are_refused_leads_to_a_build(
    row: dict[str, Any], says: str, tmp_path: Path, starter: Path
) -> None:
    """Speakers with names, and tools without definitions."""
    path, overrides = tmp_path / "rows.jsonl", list[str]()
    path.write_text(json.dumps(row) + "\n")
    for _ in range(4):
        columns = {"messages": next(iter(row))}
        recipe = {"sources": [{"path": str(path), "columns": columns}], "tokenizer": str(starter / "tokenizer")}
        seen = preview(make_recipe(recipe, overrides))
        if (hint := seen.hint or seen.rows[0].hint) is None:
            break
        if (command := re.search(r": (jq .*\.jsonl)$", hint)) is not None:
            subprocess.run(["bash", "-euc", command[1]], check=True, cwd=tmp_path)
            path, overrides = tmp_path / f"{path.stem}_lines.jsonl", []
        else:
            overrides += settings_in(hint)[:1]
    text = "".join(run.text for document in seen.rows[0].view.documents for run in document.runs)
    assert says in text and "answer" in text


@pytest.mark.parametrize(("before", "is_offered"), [("", True), ("System: Be kind.\n", False)])
def test_headers_are_taken_off_prompts_only_where_no_system_message_would_be_left_in_the_question(
    before: str, is_offered: bool, tmp_path: Path, starter: Path
) -> None:
    path, notes = tmp_path / "rows.jsonl", Notes()
    path.write_text(json.dumps({"prompt": f"{before}User: question\nAssistant:", "completion": " answer"}) + "\n")
    values = {"sources": [{"path": str(path)}], "tokenizer": str(starter / "tokenizer")}
    preview(make_recipe(values), progress=notes)
    (note,) = (each for each in notes.notes if "without the chat template" in each)
    assert ("rows.wrapped=unwrap" in note) == is_offered
    (shown,) = preview(make_recipe(values, settings_in(note))).rows
    assert (shown.hint is None) == is_offered
