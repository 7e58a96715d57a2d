"""Hints about columns are followed letter by letter: the next build takes the row, and what was said to be read is."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import twins
import yaml
from command_line import fields, run
from followed_steps import write
from hints import settings_in
from hypothesis import example, given, settings
from hypothesis import strategies as st
from search_effort import IS_DEEP, each_with_a_kind, one_in
from shown_rows import hint_for, learned, shown_for, whole
from supervision_stages import Stages, chat
from watched_builds import Notes

from packer.audit.preview import preview
from packer.audit.view import view_row
from packer.errors import InputError, RecipeError
from packer.recipe.named_options import as_setting
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
    *("system_prompt", "System Message", "system", "cot", "rationale", "reasoning"),
    *("context", "passage", "input", "it's"),
)


def values_of(tokenizer: Path, *paths: Path) -> dict[str, Any]:
    """What a recipe says that names these files and a tokenizer."""
    return {"sources": [{"path": str(path)} for path in paths], "tokenizer": str(tokenizer)}


def follow(
    path: Path, row: dict[str, Any], columns: dict[str, str], tokenizer: Path, *, last: bool
) -> tuple[list[str], str, str]:
    """Follow hints until the row builds: of each, the first way out or the last. Return them, the rendered row, and the notes."""
    write(path, [row])
    values = {"sources": [{"path": str(path), "columns": columns}], "tokenizer": str(tokenizer)}
    followed: list[str] = []
    ignored: set[str] = set()
    while len(followed) <= 4:
        try:
            notes = Notes()
            overrides = [each for each in followed if each.startswith("sources.columns=")][-1:]
            values["sources"][0]["ignore"] = sorted(ignored)
            seen = preview(make_recipe(values, overrides), progress=notes)
            hint = seen.hint or seen.rows[0].hint
            if hint is None:
                return followed, whole(seen), "\n".join([*notes.notes, *ignored])
        except InputError as error:
            hint = str(error.hint)
        ways = re.split(r"; (?=--|if )| or (?=--columns)", hint)
        ways = [way[way.index("--") :] for way in ways if "--columns" in way or "--ignore" in way]
        ways = [way for way in ways if "FIELD" not in way]  # whoever knows the rows fills it in
        assert ways, hint
        way = re.split(r" reads `| leaves |; ", ways[-1 if last else 0])[0]
        words = shlex.split(way)
        new = [each for each in settings_in(way) if each.startswith("sources.columns=")]
        new_ignored = {words[i + 1] for i, word in enumerate(words) if word == "--ignore"}
        assert not {*new} & {*followed} and (new or not new_ignored <= ignored), hint
        followed += new
        ignored |= new_ignored
    raise AssertionError(followed)


@settings(max_examples=(4 if IS_DEEP else 1) * settings.default.max_examples)
@given(
    row=st.sampled_from(sorted(ROWS)),
    extra=st.sets(st.sampled_from(NAMES), max_size=3),
    renamed=st.sets(
        st.sampled_from(["prompt", "completion", "instruction", "output", "messages", "chosen", "system", "input"])
    ),
    last=st.booleans(),
)
@example(row="strings", extra={"cot", "system_prompt", "input"}, renamed={"prompt", "completion"}, last=False)
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


LOOK = {"name": "look", "arguments": {"place": "x"}}
PUBLISHED: dict[str, dict[str, Any]] = {
    "capybara pairs": {
        "conversation": [{"input": "question", "output": "answer"}, {"input": "more", "output": "rest"}],
        "prompt": "question",
        "chosen": [USER, ANSWER, {"role": "user", "content": "more"}, {"role": "assistant", "content": "rest"}],
        "rejected": [USER, ANSWER, {"role": "user", "content": "more"}, {"role": "assistant", "content": "other"}],
    },
    "a worse answer beside messages": {"messages": [USER, ANSWER], "rejected_answer": "other words than these"},
    "squad": {"question": "question", "context": "be kind", "answers": {"text": ["answer"], "answer_start": [20]}},
    "passages with titles": {
        "question": "question of four words",
        "documents": [{"title": "x", "text": "be kind to all"}, {"title": "y", "text": "and be careful always"}],
        "answer": "answer",
    },
    "one passage": {"query": "question", "passages": ["be kind to all who ask"], "reply": ["answer"]},
    "argilla orca pairs": {
        "system": "be kind",
        "input": "question",
        "chosen": "answer",
        "rejected": "other",
        "rating": [9.0, 8.0],
    },
    "limo": {"question": "question", "answer": "42", "solution": "We add all of these up, and so the answer is 42."},
    "medical o1": {"Question": "question", "Complex_CoT": "be careful", "Response": "answer"},
    "nemotron v1": {
        "input": [USER],
        "output": "answer",
        "reasoning": "on",
        "system_prompt": "be kind",
        "category": "x",
    },
    "moss": {"meta_instruction": "be kind", "conversation": [{"human": "question", "assistant": "answer"}]},
    "open math reasoning": {
        "problem": "question",
        "generated_solution": "That is the answer.",
        "expected_answer": "42",
    },
    "summaries": {"instruction": "question", "document": "be kind", "output": "answer"},
    "dolphin r1": {"messages": [USER], "reasoning": "be careful", "answer": "answer", "model": "x"},
    "langfuse": {"id": "x", "input": {"messages": [USER]}, "output": {"role": "assistant", "content": "answer"}},
    "nested": {"data": {"question": "question", "context": "you should be kind to all", "answer": "answer"}},
    "speakers": {"sys": "be kind", "human": "question", "ai": "answer"},
    "good and bad": {"question": "question", "good_answer": "answer", "bad_answer": "this one is much longer"},
    "webgpt with pages": {
        "question": {"id": "x", "full_text": "the question in several words"},
        "quotes_0": {"extract": ["a text of some page that says so"]},
        "answer_0": "other",
        "answer_1": "answer",
        "score_0": -1.0,
        "score_1": 1.0,
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
            ANSWER | {"content": "I look.", "tool_calls": [{"id": "1", "function": LOOK}]},
            {"role": "tool", "content": "", "name": "look", "tool_call_id": "1"},
            ANSWER,
        ],
        "exit_status": "x",
    },
    "with a setting": {"instruction": "question", "output": "answer", "reasoning": "off"},
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
    for words in ("be kind", "be careful"):
        assert words in text or words not in json.dumps(row), words
    assert name != "passages with titles" or "be kind to all\n\nand be careful always" in text


def test_what_the_system_says_is_read_from_a_variable_beside_one_in_which_rows_differ(tmp_path: Path) -> None:
    said = [{"custom_instructions": f"be kind to all of them, {k}", "enable_thinking": k > 1} for k in range(4)]
    rows = [{"messages": [USER, ANSWER], "chat_template_kwargs": each | {"tools": None}} for each in said]
    hint = str(shown_for(tmp_path, twins.CHATML, rows).rows[0].hint)
    assert hint.startswith("--columns chat_template_kwargs=null,system=chat_template_kwargs.FIELD ")
    option = as_setting("columns", hint.split()[1].replace("FIELD", "custom_instructions"))
    assert "be kind to all of them, 0" in whole(shown_for(tmp_path, twins.CHATML, rows, option))


def test_a_sentence_for_what_is_no_variable_of_the_template_is_not_lost(tmp_path: Path) -> None:
    without = Stages.load(twins.byte_level(tmp_path / "without"))
    reads = Stages.load(twins.byte_level(tmp_path / "with", template="{{ custom_instructions or '' }}" + twins.CHATML))
    for value in ("be kind", "友善地回答", ["{}"], {"a": 1}):
        row = chat(USER, ANSWER, custom_instructions=value)
        assert [found for found, _ in without.reasons([row])] == ["unread_content"]
        assert reads.reasons([row]) == []
    for harmless in (True, None, "", "high", [], 3):
        assert without.reasons([chat(USER, ANSWER, custom_instructions=harmless)]) == []
    for of_template in ("role", "message", "im_start"):
        assert of_template in twins.CHATML
        row = chat(USER, ANSWER, **{of_template: "be kind"})
        assert [found for found, _ in without.reasons([row])] == ["unread_content"]


@pytest.mark.parametrize("stop", ["", 'supervision.stop=["\\n\\n"]'])
def test_the_token_that_ends_a_turn_is_named_where_it_is_no_stop_token(tmp_path: Path, stop: str) -> None:
    """As of a folder of Gemma without its generation_config.json; stop tokens of the recipe stay."""
    folder = twins.line_breaks(tmp_path / "twin")
    (folder / "generation_config.json").unlink()
    values = values_of(folder, write(tmp_path / "rows.jsonl", [{"messages": [USER, ANSWER]}]))
    seen = preview(make_recipe(values, [stop] if stop else []))
    assert [each.code for each in seen.rows[0].view.rejected] == ["no_terminator"]
    _, override, *_ = shlex.split(hint_for(seen))
    assert override.endswith('"<end_of_turn>"]')
    assert override.startswith(stop.removesuffix("]"))
    assert learned(preview(make_recipe(values, [override]))) == ["answer<end_of_turn>"]


def test_an_answer_beside_messages_that_end_in_a_question_is_named_though_rows_with_an_error_have_none(
    tmp_path: Path, starter: Path
) -> None:
    path, asked = tmp_path / "rows.jsonl", [USER, ANSWER, {"role": "user", "content": "And at noon?"}]
    rows: list[dict[str, Any]] = [
        {"messages": asked, "answer": f"It is pier {n}, as ever.", "error": None} for n in "abc"
    ]
    rows.append({"messages": asked, "answer": "", "error": "The server had too much to do."})
    write(path, rows)
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


def test_no_hint_about_empty_questions_for_a_result_without_content(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "output": "18"}
    rows = [{"messages": [USER, ANSWER | {"content": [call]}, USER | {"content": [result]}, ANSWER]}]
    assert hint_for(shown_for(tmp_path, twins.CHATML, rows)).startswith("messages need their text under `content`")


@pytest.mark.parametrize(
    ("row", "number"),
    [
        ({"question": "2 + 2?", "reply": "4"}, 0),
        ({"messages": [{"role": "client", "content": "2 + 2?"}, {"role": "counselor", "content": "4"}]}, 1),
        ({"prompt": "2 + 2?", "completion": "4", "system_prompt": "Count with care, please."}, 1),
    ],
)
def test_a_hint_about_one_of_several_sources_sets_keys_of_that_source(
    row: dict[str, Any], number: int, tmp_path: Path, starter: Path
) -> None:
    """Columns for both would be refused for the other, which has no such field."""
    paths = [write(tmp_path / "chat.jsonl", [ROWS["messages"]])]
    paths.insert(number, write(tmp_path / "other.jsonl", [row]))
    values = values_of(starter / "tokenizer", *paths)
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
        return str(error.hint)
    return next(filter(None, [seen.hint, *(row.hint for row in seen.rows)]), "")


@pytest.mark.parametrize("setting", ["sources[2].limit=1", "sources[x].limit=1", "sources[0].limit.a=1"])
def test_a_key_of_a_source_that_is_not_there_is_one_error(setting: str) -> None:
    with pytest.raises(RecipeError):
        make_recipe({"sources": [{"path": "a"}, {"path": "b"}]}, [setting])


def test_what_two_sources_are_both_asked_is_said_once_for_both(tmp_path: Path, starter: Path) -> None:
    row = {"prompt": "2 + 2?", "completion": "4", "system_prompt": "Count with care, please."}
    files = (write(tmp_path / name, [row]) for name in ("train.jsonl", "test.jsonl"))
    values = values_of(starter / "tokenizer", *files)
    columns, *others = settings_in(hint_of(values))
    assert columns.startswith("sources.columns=") and not others
    assert hint_of(values, [columns]) == ""


CALL = {"type": "function", "function": LOOK}
CALLED = [USER, ANSWER | {"content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "x"}, ANSWER]
PEOPLE = [
    {"author": "mira", "content": "question", "pinned": False},
    {"author": "HelpBot", "content": "answer", "pinned": False},
]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"messages": PEOPLE}, "<|im_start|>user\nquestion"),
        ({"messages": CALLED, "tools": ["tide", "moon"]}, "answer"),
    ],
)
def test_each_step_for_rows_that_are_refused_leads_to_a_build(
    row: dict[str, Any], says: str, tmp_path: Path, starter: Path
) -> None:
    """Speakers with names, and tools without definitions."""
    path, overrides = write(tmp_path / "rows.jsonl", [row]), list[str]()
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
    assert says in whole(seen) and "answer" in whole(seen)


@pytest.mark.parametrize(("before", "is_offered"), [("", True), ("System: Be kind.\n", False)])
def test_headers_are_taken_off_prompts_only_where_no_system_message_would_be_left_in_the_question(
    before: str, is_offered: bool, tmp_path: Path, starter: Path
) -> None:
    row, notes = {"prompt": f"{before}User: question\nAssistant:", "completion": " answer"}, Notes()
    values = values_of(starter / "tokenizer", write(tmp_path / "rows.jsonl", [row]))
    preview(make_recipe(values), progress=notes)
    (note,) = (each for each in notes.notes if "without the chat template" in each)
    assert ("rows.wrapped=unwrap" in note) == is_offered
    (shown,) = preview(make_recipe(values, settings_in(note))).rows
    assert (shown.hint is None) == is_offered
