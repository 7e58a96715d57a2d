"""Names of speakers before what they say are asked about, whatever they are, and each way on trains what it says."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import twins
from command_line import fields, run
from hints import settings_in
from hypothesis import given
from hypothesis import strategies as st

from packer.audit.view import view_row
from packer.batches import Sample
from packer.questions.beginnings import labels_of
from packer.source.decode import Refused
from packer.source.schema import read_row
from packer.store.cache import Cache

ASKED, SAID = "When is high water?", "At six."


def talk(asks: str, answers: str, number: int = 0) -> dict[str, Any]:
    said = [f"{asks}{ASKED}", f"{answers}Number {number}.", f"{asks}Really?", f"{answers}{SAID}"]
    roles = ("user", "assistant") * 2
    return {"messages": [{"role": role, "content": text} for role, text in zip(roles, said, strict=True)]}


def sample(row: dict[str, Any], **roles: str) -> Sample:
    return read_row(row, number=0, schema="messages", columns={}, roles=roles)


def labels_in(rows: Sequence[dict[str, Any]]) -> tuple[str | None, list[str]]:
    """The label that answers share, and those that name speakers."""
    found = [*labels_of(map(sample, rows))]
    return found[0].path if found else None, [name for each in found for name, _ in each.roles]


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
        assert f"its answers begin with `{answers.strip()}`, which is trained with them" in told
        return
    error = fields(*build, tmp_path / "asked", exit_code=3)["error"]
    assert f"`{answers.strip()}` (in 3 of 3 rows" in error["message"]
    off, kept = settings_in(error["hint"])
    for number, (setting, before) in enumerate(((off, ("", "")), (kept, (asks, answers)))):
        run(*build, tmp_path / f"cache{number}", "--set", setting)
        with Cache.open(tmp_path / f"cache{number}") as opened:
            (document,) = view_row(opened, "rows.jsonl", 0).documents
        assert f"{before[0]}{ASKED}" in "".join(each.text for each in document.runs)
        trained = [each.text for each in document.runs if each.message is not None]
        assert trained == [f"{before[1]}Number 0.<|im_end|>", f"{before[1]}{SAID}<|im_end|>"]


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
    assert labels_in([talk(asks, answers)] * 3) == (shared, [])


def test_nearly_all_texts_of_a_source_have_the_label() -> None:
    named, plain = talk("Q: ", "A: "), talk("", "")
    assert labels_in([*[named] * 9, plain]) == ("A:", ["A:", "Q:"])
    assert labels_in([*[named] * 8, plain]) == (None, [])
    assert labels_in([{"messages": named["messages"][:2]}]) == (None, []), "of one answer nobody knows"


def test_a_label_is_taken_off_texts_of_its_role_on_both_sides_of_a_pair_and_never_from_within_spans() -> None:
    roles = {"A:": "assistant", "Q:": "user"}
    mixed = sample(talk("A: ", " A:  "), **roles)
    assert [each.fields["content"] for each in mixed.messages] == [f"A: {ASKED}", "Number 0.", "A: Really?", SAID]
    sides = {side: [{"role": "assistant", "content": f"A: {side}."}] for side in ("chosen", "rejected")}
    row = {"prompt": [{"role": "user", "content": f"Q: {ASKED}"}], **sides}
    pair = read_row(row, number=0, schema="preference", columns={}, roles=roles)
    assert pair.preference is not None and pair.preference.rejected is not None
    said = [[each.fields["content"] for each in side.messages] for side in (pair, pair.preference.rejected)]
    assert said == [[ASKED, "chosen."], [ASKED, "rejected."]]
    row = talk("Q: ", "A: ")
    said = row["messages"][1]["content"]
    parts = [{"type": "text", "text": text, "train": bool(number)} for number, text in enumerate((said[:4], said[4:]))]
    row["messages"][1]["content"] = parts
    with pytest.raises(Refused, match="spans"):
        sample(row, **roles)


@given(
    st.from_regex(r"[^\W\d_]{1,12}( [^\W\d_]{1,12}){0,2}", fullmatch=True),
    st.sampled_from(["{}: ", "**{}:** ", "**{}**: ", "[{}]: ", "### {}:\n", "{}：", "<{}>: ", "{} : "]),
)
def test_a_name_is_found_and_taken_off_whatever_it_is(name: str, form: str) -> None:
    rows = [talk("Zq: ", form.format(name), number) for number in range(2)]
    label, names = labels_in(rows)
    if name != "Zq":
        assert label is not None and names == [label, "Zq:"]
        bare = sample(rows[0], **{label: "assistant"})
        assert [each.fields["content"] for each in bare.messages][1::2] == ["Number 0.", SAID]
