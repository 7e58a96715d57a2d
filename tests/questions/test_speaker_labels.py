"""Names of speakers before what they say are asked about, whatever they are, and each way on trains what it says."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
import twins
from command_line import fields, run
from hints import settings_in
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer.audit.view import view_row
from packer.errors import InputError
from packer.questions.beginnings import names_in
from packer.questions.row_notes import notes_on
from packer.source.schema import read_row
from packer.store.cache import Cache

ASKED, SAID = "When is high water?", "At six."


def talk(asks: str, answers: str, number: int = 0) -> dict[str, Any]:
    said = [f"{asks}{ASKED}", f"{answers}Number {number}.", f"{asks}Really?", f"{answers}{SAID}"]
    roles = ("user", "assistant") * 2
    return {"messages": [{"role": role, "content": text} for role, text in zip(roles, said, strict=True)]}


def names(rows: Sequence[dict[str, Any]], roles: Collection[str] = ()) -> list[str]:
    """The labels that name who speaks."""
    samples = [read_row(row, number=0, schema="messages", columns={}) for row in rows]
    return [each.path for each in names_in(samples, roles)]


@pytest.mark.parametrize(
    ("asks", "answers"),
    [
        ("Human: ", "Claude: "),
        ("Q: ", "A: "),
        ("**Customer:** ", "**Agent:** "),
        ("**Kunde**: ", "**Berater**: "),
        ("[Guest]: ", "[Harbor master]: "),
        ("### Skipper:\n", "### Pilot of Oban:\n"),
        ("You said:\n\n", "Claude said:\n\n"),
        ("问：", "答："),
        ("", "Claude: "),
    ],
)
def test_each_way_on_trains_what_it_says(tmp_path: Path, asks: str, answers: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(talk(asks, answers, number)) + "\n" for number in range(3)), "utf-8")
    tokenizer = twins.byte_level(tmp_path / "tokenizer", template=twins.CHATML)
    build = ("build", path, "--tokenizer", tokenizer, "-o")
    if not asks:
        told = " ".join(run(*build, tmp_path / "cache").stderr.split())
        assert f"begin their answer with the label `{answers.strip()}`; cut it off" in told
        return
    error = fields(*build, tmp_path / "asked", exit_code=3)["error"]
    assert f"`{answers.strip()}` (in 3 of 3 rows" in error["message"]
    assert "remove speakers' names" in error["hint"]
    (setting,) = settings_in(error["hint"])
    run(*build, tmp_path / "cache", "--set", setting)
    with Cache.open(tmp_path / "cache") as opened:
        (document,) = view_row(opened, "rows.jsonl", 0).documents
    trained = [each.text for each in document.runs if each.message is not None]
    assert trained == [f"{answers}Number 0.<|im_end|>", f"{answers}{SAID}<|im_end|>"]


def test_a_name_among_roles_is_asked_about_wherever_an_answer_begins_with_it(tmp_path: Path) -> None:
    named, plain = talk("", "Claude: "), talk("", "")
    assert names([named, *[plain] * 8]) == []
    assert names([named, *[plain] * 8], roles=["Claude:"]) == ["Claude:"]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (named, *[plain] * 8)), "utf-8")
    tokenizer = twins.byte_level(tmp_path / "tokenizer", template=twins.CHATML)
    with pytest.raises(InputError, match="`Claude:` \\(in 1 of 9 rows"):
        packer.build(path, tmp_path / "cache", tokenizer=tokenizer, roles={"Claude:": "assistant"})


def test_a_name_that_has_a_rule_of_its_own_is_not_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(talk("Human: ", "Assistant: ")), "utf-8")
    tokenizer = twins.byte_level(tmp_path / "tokenizer", template=twins.CHATML)
    build = ("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache")
    assert "wrapped_twice" in fields(*build, exit_code=3)["error"]["message"]
    run(*build, "--set", "rows.wrapped=unwrap")


@pytest.mark.parametrize(
    ("asks", "answers", "shared"),
    [
        ("", "", None),
        ("", "Answer: ", "Answer:"),
        ("Note: ", "Note: ", "Note:"),
        ("Note: ", '{"text": "', None),
        ("Note: ", "https://a.example/", None),
        ("Note: ", "The answer is this: ", None),
        ("Note: ", "10:30 ", None),
    ],
)
def test_what_answers_alone_begin_with_names_nobody(asks: str, answers: str, shared: str | None) -> None:
    rows = [talk(asks, answers)] * 3
    assert names(rows) == []
    notes = [note.says for note in notes_on([read_row(row, number=0, schema="messages", columns={}) for row in rows])]
    assert [f"`{shared}`" in note for note in notes if "begin their answer" in note] == [True] * bool(shared)


def test_nearly_all_texts_of_a_source_have_the_label() -> None:
    named, plain = talk("Q: ", "A: "), talk("", "")
    assert names([*[named] * 9, plain]) == ["A:"]
    assert names([*[named] * 8, plain]) == []
    assert names([{"messages": named["messages"][:2]}]) == [], "of one answer nobody knows"


@given(
    st.from_regex(r"[^\W\d_]{1,12}( [^\W\d_]{1,12}){0,2}", fullmatch=True),
    st.sampled_from(["{}: ", "**{}:** ", "**{}**: ", "[{}]: ", "### {}:\n", "{}：", "<{}>: ", "{} : "]),
)
def test_a_name_is_found_whatever_it_is(name: str, form: str) -> None:
    rows = [talk("Zq: ", form.format(name), number) for number in range(2)]
    assert names(rows) == [form.format(name).strip()] * (name != "Zq")
