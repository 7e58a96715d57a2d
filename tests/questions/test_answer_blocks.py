"""Blocks with which answers begin are asked about, whatever their tags are called, and each way on builds what it says."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import twins
from command_line import fields, run
from hints import arguments_in
from hypothesis import given
from hypothesis import strategies as st
from search_effort import one_in

import packer
from packer.audit.view import view_row
from packer.errors import InputError
from packer.questions.beginnings import blocks_of
from packer.questions.conversations import PAGE
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
    "marks that are no pair": ("<unused94>", "<unused95>", ""),
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


def ignored(hint: str) -> list[str]:
    """The options of a hint that say that a text is meant as it stands."""
    words = shlex.split(hint[hint.index("--ignore") :].partition(" trains ")[0])
    assert words[::2] == ["--ignore"] * (len(words) // 2)
    return words


@pytest.mark.parametrize("shape", one_in(2, [*SHAPES]))
def test_a_block_is_asked_about_and_trained_as_it_stands_if_it_is_ignored(tmp_path: Path, shape: str) -> None:
    opening, closing, name = SHAPES[shape]
    answer = f"{opening}\n{INSIDE} {closing}{SAYS}"
    build, error = asked(tmp_path, answer, f"{opening}\n{INSIDE}{closing}{SAYS} Bring a coat.")
    assert f"`{name or f'{opening}...{closing}'}` (in 2 of 2 rows: `{INSIDE}`)" in error["message"]
    run(*build, tmp_path / "cache", *ignored(error["hint"]))
    assert trained(tmp_path / "cache") == f"{answer}<|im_end|>"


def test_a_call_from_python_is_told_the_name_of_a_block_as_it_is(tmp_path: Path) -> None:
    opening, closing, name = SHAPES["labels"]
    path = rows(tmp_path / "rows.jsonl", answer := f"{opening}{INSIDE}{closing}{SAYS}")
    options: dict[str, Any] = {"tokenizer": twins.byte_level(tmp_path / "a", template=SHOWS), "progress": False}
    with pytest.raises(InputError) as caught:
        packer.build(path, tmp_path / "cache", **options)
    hint = str(caught.value.hint)
    assert hint.endswith(" trains it with the answers")
    assert arguments_in(hint) == {"ignore": [name]}
    packer.build(path, tmp_path / "cache", **options, **arguments_in(hint))
    assert trained(tmp_path / "cache") == f"{answer}<|im_end|>"


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
    run(*build, tmp_path / "cache", *ignored(error["hint"]))
    assert trained(tmp_path / "cache") == f"{answers[0]}<|im_end|>"


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
    answer = f"<view>A map of the sound.</view>\n<view>A map of the tides.</view><plan>{INSIDE}</plan>{SAYS}"
    build, error = asked(tmp_path, answer)
    words = ignored(error["hint"])
    assert words[1::2] == ["<plan>...</plan>", "<view>...</view>"]
    run(*build, tmp_path / "cache", *words)
    assert trained(tmp_path / "cache") == f"{answer}<|im_end|>"


def program_of_page() -> str:
    page = (Path(__file__).resolve().parents[2] / PAGE).read_text("utf-8").partition("## Beginnings of texts\n")[2]
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return str(program)


def test_the_page_that_a_hint_names_gives_reasoning_its_field_and_takes_names_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"role": "system", "content": [{"type": "text", "text": "Know the tides."}]}
    chat = [
        told,
        {"role": "user", "content": "Human: When? <cot>is a tag.</cot>"},
        {"role": "assistant", "content": f"Claude: <cot>{INSIDE}\n</cot>\n\n{SAYS}"},
        {"role": "user", "content": "Human: Does Claude: know?"},
        {"role": "assistant", "content": "Claude: It does."},
    ]
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": chat}) + "\n", "utf-8")
    build = ("build", tmp_path / "rows.jsonl", "--tokenizer", twins.byte_level(tmp_path / "a", template=SHOWS), "-o")
    (tmp_path / "rows.jsonl").symlink_to(tmp_path / "chat.jsonl")
    hint = fields(*build, tmp_path / "cache", exit_code=3)["error"]["hint"]
    assert f"remove speakers' names, as {PAGE}#beginnings-of-texts shows" in hint
    (tmp_path / "rows.jsonl").unlink()
    monkeypatch.chdir(tmp_path)
    exec(program_of_page(), {})
    assert json.loads((tmp_path / "rows.jsonl").read_text("utf-8"))["messages"] == [
        told,
        {"role": "user", "content": "When? <cot>is a tag.</cot>"},
        {"role": "assistant", "content": SAYS, "reasoning_content": INSIDE},
        {"role": "user", "content": "Does Claude: know?"},
        {"role": "assistant", "content": "It does."},
    ]
    run(*build, tmp_path / "cache")
    assert trained(tmp_path / "cache") == f"<think>{INSIDE}</think>{SAYS}<|im_end|>It does.<|im_end|>"


def test_a_recipe_that_names_a_block_as_a_role_is_told_what_to_do(tmp_path: Path) -> None:
    build, _ = asked(tmp_path, f"<cot>{INSIDE}</cot>{SAYS}")
    error = fields(*build, tmp_path / "cache", "--roles", "<cot>...</cot>=reasoning", exit_code=2)["error"]
    assert error["message"].endswith("sources[0].roles: '<cot>...</cot>' is no name of a role")
    assert f"{PAGE}#beginnings-of-texts" in error["hint"] and "`ignore`" in error["hint"]


def test_a_block_may_have_blocks_in_it() -> None:
    assert [block.name for block in blocks_of(f"<pad><way>By boat.</way>{INSIDE}</pad>{SAYS}")] == ["<pad>...</pad>"]


def test_an_answer_may_have_any_number_of_blocks() -> None:
    for name in ("step", "step{}"):
        tags = [name.format(number) for number in range(3000)]
        answer = "".join(f"<{tag}>{INSIDE}</{tag}>" for tag in tags) + SAYS
        assert [block.name for block in blocks_of(answer)][:1] == [f"<{tags[0]}>...</{tags[0]}>"]


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


@given(
    st.from_regex(r"(?!begin_|start_)[a-z][a-z_]{0,12}", fullmatch=True).flatmap(
        lambda name: st.sampled_from([name, name.upper(), name.title()])
    ),
    st.sampled_from([("<", ">"), ("[", "]"), ("{{", "}}"), ("<|", "|>"), ("◁", "▷")]),
)
def test_a_block_is_found_whatever_its_tag_is_called(name: str, marks: tuple[str, str]) -> None:
    left, right = marks
    answer = f"{left}{name}{right}{INSIDE}{left}/{name}{right}\n\n{SAYS}"
    (block,) = blocks_of(answer)
    assert (block.opening, block.inside) == (f"{left}{name}{right}", INSIDE)
