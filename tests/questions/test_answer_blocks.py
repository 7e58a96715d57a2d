"""Blocks with which answers begin are asked about, whatever their tags are called, and each way on builds what it says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import twins
from command_line import fields, run
from hints import settings_in
from hypothesis import given
from hypothesis import strategies as st
from search_effort import one_in

import packer
from packer.audit.view import view_row
from packer.errors import InputError
from packer.questions.beginnings import blocks_of
from packer.source.decode import Refused
from packer.source.schema import read_row
from packer.store.cache import Cache

INSIDE, SAYS = "The tide turns at five, so the boat waits.", "It leaves at six."
SHAPES = {
    "tag": ("<scratchpad>", "</scratchpad>", ""),
    "attributes": ('<plan step="1">', "</plan>", "<plan>...</plan>"),
    "brackets": ("[[cot]]", "[[/cot]]", ""),
    "words": ("<|begin_of_plan|>", "<|end_of_plan|>", ""),
    "opened by the prompt": ("", "\n</scratchpad>\n", "...</scratchpad>"),
    "headings": ("## Thinking", "\n## Final Response\n", "## Thinking...## Final Response"),
    "fence": ("```thinking", "\n```\n", "```thinking...```"),
    "container": (":::thinking", "\n:::\n", ":::thinking...:::"),
    "comment": ("<!--", "-->", ""),
    "bold": ("**Thought:** ", " **Answer:** ", "**Thought:**...**Answer:**"),
    "labels": ("Reasoning: ", "\nAnswer: ", "Reasoning:...Answer:"),
    "marks that are no pair": ("<unused94>thought", "<unused95>", ""),
    "a mark alone": (
        "My reasoning steps:",
        "\n[BEGIN FINAL RESPONSE]\n",
        "My reasoning steps:...[BEGIN FINAL RESPONSE]",
    ),
}
SHOWS = twins.CHATML.replace(
    "(message.content or '')",
    "('<think>' ~ message.reasoning_content ~ '</think>' if message.reasoning_content else '')"
    " + (message.content or '')",
)


def rows(path: Path, *answers: str) -> Path:
    chats = [[{"role": "user", "content": "When?"}, {"role": "assistant", "content": each}] for each in answers]
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats), "utf-8")
    return path


def trained(cache: Path) -> str:
    with Cache.open(cache) as opened:
        (document,) = view_row(opened, "rows.jsonl", 0).documents
    return "".join(run.text for run in document.runs if run.message is not None)


def asked(folder: Path, *answers: str) -> tuple[tuple[Any, ...], dict[str, str]]:
    """The command that builds rows with these answers, but for its cache, and the error with which it asks."""
    path = rows(folder / "rows.jsonl", *answers)
    build = ("build", path, "--tokenizer", twins.byte_level(folder / "tokenizer", template=SHOWS), "-o")
    return build, fields(*build, folder / "asked", exit_code=3)["error"]


@pytest.mark.parametrize("shape", one_in(2, [*SHAPES]))
def test_each_way_on_trains_a_block_as_it_says(tmp_path: Path, shape: str) -> None:
    opening, closing, name = SHAPES[shape]
    answer = f"{opening}\n{INSIDE} {closing}{SAYS}"
    build, error = asked(tmp_path, answer, f"{opening}\n{INSIDE}{closing}{SAYS} Bring a coat.")
    assert f"`{name or f'{opening}...{closing}'}` (in 2 of 2 rows: `{INSIDE}`)" in error["message"]
    found = settings_in(error["hint"])
    assert len(found) == 2
    heading = closing.lstrip() if shape in ("headings", "bold", "labels") else ""  # of what the answer says
    for number, expected in enumerate((f"<think>{INSIDE}</think>{heading}{SAYS}", answer)):
        run(*build, tmp_path / f"cache{number}", "--set", found[number])
        assert trained(tmp_path / f"cache{number}") == f"{expected}<|im_end|>"


MARKS = {
    "headings": ("## 思考", "\n## 回答\n"),
    "bold": ("**Gedankengang:**", "\n**Antwort:** "),
    "brackets": ("【思考过程】", "【答案】"),
    "square brackets": ("[Thinking]", "\n[Answer] "),
}


@pytest.mark.parametrize("shape", MARKS)
def test_two_marks_that_most_answers_have_in_common_are_asked_about_whatever_they_are_called(
    tmp_path: Path, shape: str
) -> None:
    opening, closing = MARKS[shape]
    answers = [f"{opening}\n{INSIDE} Boat {number}.{closing}{SAYS}" for number in range(3)]
    build, error = asked(tmp_path, *answers, SAYS, f"{opening}\n{INSIDE}")
    name = f"{opening}...{closing.strip()}"
    assert f"begin with what may be reasoning: `{name}` (in 3 of 5 rows: `{INSIDE} Boat 0.`)" in error["message"]
    rows(tmp_path / "rows.jsonl", *answers)
    assert len(settings_in(error["hint"])) == 2
    for number, setting in enumerate(settings_in(error["hint"])):
        run(*build, tmp_path / f"cache{number}", "--set", setting)
    stays = closing.lstrip() if opening.startswith(("#", "**")) else ""
    assert trained(tmp_path / "cache0") == f"<think>{INSIDE} Boat 0.</think>{stays}{SAYS}<|im_end|>"
    assert trained(tmp_path / "cache1") == f"{answers[0]}<|im_end|>"


@pytest.mark.parametrize(
    "answers",
    [
        [f"## Summary\n{INSIDE}\n## Details\n{SAYS}\n## Sources\nTide table {number}." for number in range(4)],
        [f"## Boat {number}\n{INSIDE}\n## Answer\n{SAYS}" for number in range(4)],
        [f"**Note** {INSIDE}\n**Tides of {number}** {SAYS}" for number in range(4)],
        [f"[1] {INSIDE}\n[2] {SAYS}" for _ in range(4)],
        [f"(a) {INSIDE} (b) {SAYS}" for _ in range(4)],
        [f"## Name\nMull\n## Reise\n{SAYS}" for _ in range(4)],
        [f"## Summary\n{INSIDE}\n## Details\n{SAYS}" for _ in range(2)],
        [*[f"## Summary\n{INSIDE}\n## Details\n{SAYS}"] * 3, *[SAYS] * 3],
    ],
)
def test_headings_that_are_more_or_that_differ_are_what_answers_say(tmp_path: Path, answers: list[str]) -> None:
    tokenizer = twins.byte_level(tmp_path / "tokenizer", template=SHOWS)
    path = rows(tmp_path / "rows.jsonl", *answers)
    assert packer.build(path, tmp_path / "cache", tokenizer=tokenizer, progress=False).built


def test_blocks_one_after_another_are_asked_about_at_once(tmp_path: Path) -> None:
    answer = f"<view>A map of the sound.</view>\n<view>A map of the tides.</view><REASONING>{INSIDE}</REASONING>\n<answer>{SAYS}</answer>"
    build, error = asked(tmp_path, answer)
    run(*build, tmp_path / "cache", "--set", settings_in(error["hint"])[0])
    assert trained(tmp_path / "cache") == (
        f"<think>A map of the sound.\n\nA map of the tides.\n\n{INSIDE}</think><answer>{SAYS}</answer><|im_end|>"
    )


def test_a_label_of_an_action_stays_and_what_a_tool_may_have_said_behind_it_is_named(tmp_path: Path) -> None:
    acts = f"Action: look\nAction Input: {{}}\nObservation: {SAYS}\nThought: I know it.\nFinal Answer: At six."
    build, error = asked(tmp_path, f"Thought: {INSIDE}\n{acts}")
    hint = error["hint"]
    assert "also behind `Thought:`, `Action:`, `Action Input:`, `Observation:`, `Final Answer:`" in hint
    as_reasoning, as_said = settings_in(hint)
    for setting, expected in (
        (as_reasoning, f"<think>{INSIDE}</think>{acts}"),
        (as_said, f"Thought: {INSIDE}\n{acts}"),
    ):
        run(*build, tmp_path / f"cache {len(expected)}", "--set", setting)
        assert trained(tmp_path / f"cache {len(expected)}") == f"{expected}<|im_end|>"
    _, error = asked(tmp_path, f"Thought: {INSIDE}\nAction: look")
    assert "either way" not in error["hint"]


def test_a_block_may_have_blocks_in_it() -> None:
    assert [block.name for block in blocks_of(f"<pad><way>By boat.</way>{INSIDE}</pad>{SAYS}")] == ["<pad>...</pad>"]


def test_an_answer_may_have_any_number_of_blocks() -> None:
    for name in ("step", "step{}"):
        tags = [name.format(number) for number in range(3000)]
        answer = "".join(f"<{tag}>{INSIDE}</{tag}>" for tag in tags) + SAYS
        assert [block.name for block in blocks_of(answer)][:1] == [f"<{tags[0]}>...</{tags[0]}>"]
    (_, said) = read_row(
        {"messages": [{"role": "user", "content": "When?"}, {"role": "assistant", "content": answer}]},
        number=0,
        schema="messages",
        columns={},
        roles={f"<{tag}>...</{tag}>": "reasoning" for tag in tags[:20]},
    ).messages
    assert said.fields["reasoning_content"].count(INSIDE) == 20


@pytest.mark.parametrize(
    "answer",
    [
        "<p>The tide turns at five, so it waits.</p>\n<p>It leaves at six.</p>",
        "<p>The tide turns at five, so it waits.</p>\n<ul><li>It leaves.</li></ul>\n<p>Bring a coat.</p>",
        "<div><b>The tide</b> turns at five, so it waits.</div> <i>It leaves</i> at six.",
        f"<answer>{INSIDE}</answer>",
        f"<b>Note</b> {SAYS}",
        f"You forgot the closing tag </div> here. {SAYS}",
        f"## Summary\n{INSIDE}\n## Details\n{SAYS}",
        f"Rethinking Ferries: {INSIDE}\nAnswer: {SAYS}",
        f"[the tide]({SAYS}) {INSIDE}",
    ],
)
def test_markup_and_headings_for_readers_are_not_asked_about(answer: str) -> None:
    assert not [*blocks_of(answer)]


def test_nobody_is_asked_where_a_block_is_rare_or_the_template_shows_no_reasoning(tmp_path: Path) -> None:
    block = f"<cot>{INSIDE}</cot>{SAYS}"
    showing, plain = (
        twins.byte_level(tmp_path / name, template=template) for name, template in (("a", SHOWS), ("b", twins.CHATML))
    )
    path = rows(tmp_path / "rows.jsonl", block, *[SAYS] * 100)
    assert packer.build(path, tmp_path / "rare", tokenizer=showing, progress=False).built
    path = rows(tmp_path / "rows.jsonl", block, *[SAYS] * 98)
    assert packer.build(path, tmp_path / "plain", tokenizer=plain, progress=False).built
    with pytest.raises(InputError, match=re.escape("`<cot>...</cot>` (in 1 of 99 rows")):
        packer.build(path, tmp_path / "asked", tokenizer=showing, progress=False)
    known = twins.byte_level(tmp_path / "c", template=SHOWS.replace("think>", "cot>"))
    assert packer.build(rows(path, block), tmp_path / "known", tokenizer=known, progress=False).built
    assert trained(tmp_path / "known") == f"{block}<|im_end|>"  # as the template writes its own


ROLES = {"<cot>...</cot>": "reasoning", "Thought:...Answer:": "reasoning"}


def answered(answer: str, **more: Any) -> dict[str, Any]:
    value = {"messages": [{"role": "user", "content": "When?"}, {"role": "assistant", "content": answer, **more}]}
    return read_row(value, number=0, schema="messages", columns={}, roles=ROLES).messages[1].fields


def test_blocks_in_a_row_are_paragraphs_of_one_reasoning_and_calls_may_follow() -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": {}}}
    said = answered("<cot>One.</cot>\nThought: Two.\nAnswer: Six.")
    assert (said["reasoning_content"], said["content"]) == ("One.\n\nTwo.", "Answer: Six.")
    called = answered("<cot>One.</cot>", tool_calls=[call])
    assert (called["reasoning_content"], called["content"]) == ("One.", "")


@pytest.mark.parametrize(
    ("answer", "more", "code"),
    [
        ("<cot>The tide turns", {}, "cut_off"),
        ("Thought: The tide turns.\nFinal: Six.", {}, "cut_off"),
        ("<cot>One.</cot>Six.", {"reasoning_content": "Two."}, "wrong_type"),
    ],
)
def test_a_block_that_does_not_end_or_says_something_else_than_a_field_is_refused(
    answer: str, more: dict[str, Any], code: str
) -> None:
    with pytest.raises(Refused) as caught:
        answered(answer, **more)
    assert caught.value.code == code


def test_both_sides_of_a_pair_are_read_alike(tmp_path: Path) -> None:
    sides = {side: [{"role": "assistant", "content": f"<cot>{side}.</cot>Six."}] for side in ("chosen", "rejected")}
    row = {"prompt": [{"role": "user", "content": "When?"}], **sides}
    sample = read_row(row, number=0, schema="preference", columns={}, roles=ROLES)
    assert sample.preference is not None and sample.preference.rejected is not None
    both = (sample, sample.preference.rejected)
    assert [each.messages[-1].fields["reasoning_content"] for each in both] == ["chosen.", "rejected."]


@given(
    st.from_regex(r"(?!begin_|start_)[a-z][a-z_]{0,12}", fullmatch=True).flatmap(
        lambda name: st.sampled_from([name, name.upper(), name.title()])
    ),
    st.sampled_from([("<", ">"), ("[", "]"), ("{{", "}}"), ("<|", "|>"), ("◁", "▷")]),
)
def test_a_block_is_found_and_read_whatever_its_tag_is_called(name: str, marks: tuple[str, str]) -> None:
    left, right = marks
    answer = f"{left}{name}{right}{INSIDE}{left}/{name}{right}\n\n{SAYS}"
    (block,) = blocks_of(answer)
    chat = {"messages": [{"role": "user", "content": "When?"}, {"role": "assistant", "content": answer}]}
    sample = read_row(chat, number=0, schema="messages", columns={}, roles={block.name: "reasoning"})
    said = sample.messages[1].fields
    assert (said["reasoning_content"], said["content"]) == (INSIDE, SAYS)
