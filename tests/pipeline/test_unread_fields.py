"""A build asks about text that nothing reads before it begins, and each way on that it prints leads to the next build."""

import datetime as dt
import functools
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import twins
from command_line import fields, run
from hints import arguments_in
from search_effort import each_with_a_kind, one_in

import packer
from packer.audit.preview import preview
from packer.audit.view import view_row
from packer.display import Silent
from packer.errors import InputError
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache
from packer.store.manifest import read_manifest

GAELIC = "Always answer in Gaelic."
ROW = {"instruction": "When does the ferry leave?", "output": "It leaves at six."}
CHAT = {"messages": [{"role": "user", "content": ROW["instruction"]}, {"role": "assistant", "content": ROW["output"]}]}
TOOLS = [{"type": "function", "function": {"name": "tide", "description": "tells", "parameters": {"type": "object"}}}]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return twins.byte_level(tmp_path / "tokenizer", template=TEMPLATE)


TEMPLATE = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + twins.CHATML.replace(
    "(message.content or '')",
    "('<think>' ~ message.reasoning_content ~ '</think>' if message.reasoning_content else '')"
    " + (message.content or '')"
    " + ((message.tool_calls or []) | map(attribute='function') | map('tojson') | join)",
)


def written(path: Path, *rows: dict[str, Any]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([*rows]), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def ways(hint: str) -> list[list[str]]:
    """The options that a hint says can be pasted."""
    parts = [re.split(r" reads `| leaves ", way)[0] for way in hint.replace("\n", " ").split("; ")]
    return [shlex.split(part[part.index("--") :]) for part in parts]


def hint_of(*arguments: object) -> str:
    (error,) = [fields(*arguments, exit_code=3)["error"]]
    assert error["code"] == "input" and "text that nothing reads" in error["message"]
    hint: str = error["hint"]
    return hint


def said(cache: Path, name: str) -> str:
    with Cache.open(cache) as opened:
        return "".join(run.text for document in view_row(opened, name, 0).documents for run in document.runs)


QUESTIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "system": (ROW | {"system_prompt": GAELIC}, GAELIC, ""),
    "two places": (CHAT | {"persona": GAELIC, "license": "CC BY 4.0"}, GAELIC, ""),
    "tools in JSON": (CHAT | {"metadata": json.dumps({"tools": TOOLS})}, "tide", ""),
    "one readable, one not": (
        ROW | {"system_prompt": GAELIC, "passages": [["The ferry to Mull leaves at six."]]},
        GAELIC,
        "Mull",
    ),
    "strings": ({"prompt": ROW["instruction"], "completion": ROW["output"], "context": GAELIC}, GAELIC, ""),
    "an answer": ({"messages": CHAT["messages"][:1], "answer": GAELIC}, GAELIC, ""),
    "a name to quote": (ROW | {"it's a persona": GAELIC}, GAELIC, ""),
    "calls": ({"messages": [*CHAT["messages"][:1], CHAT["messages"][1] | {"apis": TOOLS}]}, "", "tide"),
}


@pytest.mark.parametrize(("name", "kind"), each_with_a_kind(QUESTIONS, ["jsonl", "parquet"]))
def test_each_way_that_a_question_prints_builds_and_reads_what_it_says(
    tokenizer: Path, tmp_path: Path, name: str, kind: str
) -> None:
    row, read, left_out = QUESTIONS[name]
    num_read = 3 if name == "a name to quote" else bool(read)  # which says none of three places
    path = written(tmp_path / f"rows.{kind}", row, row)
    asked = ("build", path, "--tokenizer", tokenizer, "-o")
    hint = hint_of(*asked, tmp_path / "asked")
    assert not (tmp_path / "asked" / "manifest.json").exists()
    assert hint == hint_of(*asked, tmp_path / "asked", "--dry-run")
    found = ways(hint)
    assert len(found) == 1 + num_read
    for number, way in enumerate(found):
        if name == "an answer" and number:  # without it there is nothing to train
            run(*asked, tmp_path / "none", *way, exit_code=3)
            continue
        run(*asked, tmp_path / f"cache{number}", *way)
        text = said(tmp_path / f"cache{number}", path.name)
        assert (bool(read) and read in text) == (number < num_read)
        assert not left_out or left_out not in text
        recipe = read_manifest(tmp_path / f"cache{number}").recipe
        assert ("ignore" in recipe["sources"][0]) == ("--ignore" in way)


def test_all_sources_are_asked_about_at_once(tokenizer: Path, tmp_path: Path) -> None:
    one, other = (
        written(tmp_path / name, row)
        for name, row in (("one.jsonl", ROW | {"sys": GAELIC}), ("other.jsonl", CHAT | {"notes": {"of": GAELIC}}))
    )
    right = written(tmp_path / "right.jsonl", CHAT)
    values: dict[str, Any] = {
        "sources": [{"path": str(path)} for path in (one, right, other)],
        "tokenizer": str(tokenizer),
    }
    with pytest.raises(InputError) as caught:
        packer.build(make_recipe(values), tmp_path / "cache", progress=False)
    assert "one.jsonl: a field has text that nothing reads: `sys`" in caught.value.message
    assert "other.jsonl: a field has text that nothing reads: `notes`" in caught.value.message
    assert caught.value.hint is not None
    *reads, ignores, _ = caught.value.hint.split("; ")
    assert [Path(way.partition(": ")[0]).name for way in reads] == ["one.jsonl", "other.jsonl"]
    for index, way in zip((0, 2), reads, strict=True):
        values["sources"][index]["columns"] = arguments_in(way)["columns"]
    packer.build(make_recipe(values), tmp_path / "read", progress=False)
    assert all(GAELIC in said(tmp_path / "read", name) for name in ("one.jsonl", "other.jsonl"))
    packer.build([one, right, other], tmp_path / "left", tokenizer=tokenizer, progress=False, **arguments_in(ignores))


def test_what_is_ignored_is_recorded_and_changes_no_document(tokenizer: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", ROW)
    plain = packer.build(path, tmp_path / "plain", tokenizer=tokenizer, progress=False)
    ignoring = packer.build(path, tmp_path / "ignoring", tokenizer=tokenizer, ignore=["notes"], progress=False)
    assert ignoring.fingerprint == plain.fingerprint
    assert ignoring.manifest is not None
    assert plain.manifest is not None
    assert ignoring.manifest.recipe["sources"][0]["ignore"] == ["notes"]
    assert "ignore" not in plain.manifest.recipe["sources"][0]
    assert ignoring.manifest.recipe_fingerprint == plain.manifest.recipe_fingerprint
    assert ignoring.manifest.content_fingerprint == plain.manifest.content_fingerprint


def test_rows_from_python_are_asked_about(tokenizer: Path, tmp_path: Path) -> None:
    rows = [ROW | {"notes": GAELIC}]
    with pytest.raises(InputError, match="`notes`") as caught:
        packer.build(rows, tmp_path / "cache", tokenizer=tokenizer, progress=False)
    assert caught.value.hint is not None
    assert "ignore=['notes'] leaves it out" in caught.value.hint
    assert packer.build(rows, tmp_path / "cache", tokenizer=tokenizer, ignore=["notes"], progress=False).built


def test_fields_that_rules_and_columns_read_are_not_asked_about(tokenizer: Path, tmp_path: Path) -> None:
    row = ROW | {"notes": GAELIC, "meta": {"topic": "ferries of the west coast"}}
    path = written(tmp_path / "rows.jsonl", *(row | {"reward": float(number % 2)} for number in range(3)))
    source = {"path": str(path), "where": {"notes": {"in": [GAELIC]}}}
    split = {"group": "meta.topic", "shares": {"validation": 0.5}}
    packer.build(
        make_recipe(
            {
                "sources": [source],
                "tokenizer": str(tokenizer),
                "split": split,
                "document_columns": {"gain": {"kind": "float32", "field": "reward"}},
            }
        ),
        tmp_path / "cache",
        progress=False,
    )


@pytest.mark.parametrize("reads", ["{{ message.persona }}", "{{ '' + message['persona'] }}", "{{ message | tojson }}"])
def test_keys_of_messages_that_the_template_reads_are_not_asked_about(tmp_path: Path, reads: str) -> None:
    row = {"messages": [CHAT["messages"][0] | {"persona": GAELIC}, CHAT["messages"][1] | {"persona": GAELIC}]}
    path = written(tmp_path / "rows.jsonl", row)
    template = twins.CHATML.replace("{{", f"{{% if message.role == 'user' %}}{reads}{{% endif %}}{{{{", 1)
    twin = twins.byte_level(tmp_path / "reads", template=template)
    plain = twins.byte_level(tmp_path / "plain")
    assert "--ignore 'messages[].persona' leaves it out" in hint_of(
        "build", path, "--tokenizer", plain, "-o", tmp_path / "c"
    )
    if "tojson" not in reads:  # of which only the user's is written here
        run("build", path, "--tokenizer", twin, "-o", tmp_path / "cache")
        inner = written(tmp_path / "inner.jsonl", {"data": row})
        run("build", inner, "--tokenizer", twin, "--columns", "messages=data.messages", "-o", tmp_path / "inner")


def test_reasoning_under_a_key_that_only_the_template_knows_is_asked_about(tmp_path: Path) -> None:
    """Nothing would know that the answer is reasoned, and which mode it belongs to."""
    own = "('<plan>' + message.thoughts + '</plan>' if message.thoughts else '')"
    template = twins.CHATML.replace("(message.content", f"{own} + (message.content")
    twin = twins.byte_level(tmp_path / "reads", template=template)
    rows = [{"messages": [CHAT["messages"][0], CHAT["messages"][1] | {"thoughts": GAELIC}]}]
    with pytest.raises(InputError, match="thoughts") as caught:
        packer.build(rows, tmp_path / "cache", tokenizer=twin, progress=False)
    assert "reasoning_content" in str(caught.value.hint)
    moved = [{"messages": [CHAT["messages"][0], CHAT["messages"][1] | {"reasoning_content": GAELIC}]}]
    packer.build(moved, tmp_path / "cache", tokenizer=twin, progress=False)
    assert f"<plan>{GAELIC}</plan>" in run("inspect", tmp_path / "cache").stdout


def test_a_template_that_writes_all_keys_of_messages_reads_them(tmp_path: Path) -> None:
    template = twins.CHATML.replace("(message.content or '')", "(message | tojson)")
    assert template != twins.CHATML
    twin = twins.byte_level(tmp_path / "reads", template=template)
    path = written(
        tmp_path / "rows.jsonl", {"messages": [CHAT["messages"][0] | {"persona": GAELIC}, CHAT["messages"][1]]}
    )
    recipe = make_recipe({"sources": [{"path": str(path)}], "tokenizer": str(twin)})
    assert preview(recipe, progress=Silent()).hint is None


def test_flags_beside_other_answers_are_not_laid_over_the_messages(tokenizer: Path, tmp_path: Path) -> None:
    """Two answers were made for each question, and conversations of a question and its answer are as long."""
    answer, other = CHAT["messages"][1]["content"], "Nobody knows when it leaves, I fear."
    rows = [
        CHAT | {"generations": both, "is_right": [each == answer for each in both]}
        for both in ([answer, other], [other, answer])
    ]
    path = written(tmp_path / "rows.jsonl", *rows)
    asked = ("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache")
    error = fields(*asked, exit_code=3)["error"]
    assert "`is_right`" in error["message"] and "jq" not in error["hint"]
    run(*asked, *shlex.split(error["hint"].partition(" leaves")[0]))


DOCUMENTS = "{% for each in documents or [] %}{{ each | tojson }}\n{% endfor %}" + twins.CHATML


@pytest.mark.parametrize("documents", [[{"title": "Ferries", "text": "They leave at noon."}], ["They leave at noon."]])
def test_passages_are_given_to_a_template_that_has_a_place_for_them(tmp_path: Path, documents: list[Any]) -> None:
    path = written(tmp_path / "rows.jsonl", CHAT | {"documents": documents})
    for template, is_variable in ((DOCUMENTS, True), (twins.CHATML, False)):
        twin = twins.byte_level(tmp_path / "twin", template=template)
        asked = ("build", path, "--tokenizer", twin, "-o", tmp_path / f"cache-{is_variable}")
        error = fields(*asked, exit_code=3)["error"]
        way = "--columns chat_template_kwargs=documents"
        assert (f"{way} gives the template `documents`" in error["hint"]) == is_variable
        if is_variable:
            run(*asked, *way.split())
            assert json.dumps(documents[0]) in said(asked[-1], path.name)


STATES = "{{ 'depth ' ~ depth | default('usual') ~ '\\n' }}" + twins.CHATML


@pytest.mark.parametrize(
    ("row", "place"),
    [
        (CHAT | {"depth": "deep", "topic": "ferries"}, "depth"),
        (CHAT | {"depth": "deep", "chat_template_kwargs": {"date": "today"}}, "depth"),
        (CHAT | {"meta": {"depth": 3}}, "meta.depth"),
        (
            {"request": {"messages": CHAT["messages"][:1], "depth": "deep"}}
            | {"response": {"choices": [{"message": CHAT["messages"][1]}]}},
            "request.depth",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_field_with_the_name_of_a_variable_of_the_template_is_asked_about(
    tmp_path: Path, row: dict[str, Any], place: str, kind: str
) -> None:
    path = written(tmp_path / f"rows.{kind}", row, row)
    twin = twins.byte_level(tmp_path / "states", template=STATES)
    asked = ("build", path, "--tokenizer", twin, "-o")
    error = fields(*asked, tmp_path / "cache", exit_code=3)["error"]
    assert f"variables of the template are not read: `{place}` (in 2 of 2 rows: `" in error["message"]
    gives, leaves = error["hint"].split("; ")
    assert leaves.startswith(f"--ignore {place} ")
    for way, depth in ((gives.partition(" gives")[0], "(deep|3)"), (leaves.partition(" leaves")[0], "usual")):
        run(*asked, tmp_path / depth, *shlex.split(way))
        assert re.search(rf"depth {depth}\n", said(tmp_path / depth, path.name))


def test_words_are_not_given_to_a_template_that_tests_only_whether_a_variable_is_true(tmp_path: Path) -> None:
    twin = twins.byte_level(tmp_path / "tests", template="{{ 'deep\\n' if deep }}" + twins.CHATML)
    for words, is_read in ((("on", "off"), False), (("true", "false"), False), ((True, False), True)):
        path = written(tmp_path / "rows.jsonl", *(CHAT | {"deep": word} for word in words))
        error = fields("build", path, "--tokenizer", twin, "-o", tmp_path / "cache", exit_code=3)["error"]
        assert "`deep`" in error["message"]
        assert ("--columns chat_template_kwargs=deep" in error["hint"]) is is_read
        assert ("give rows true or false under `deep`" in error["hint"]) is not is_read


@pytest.mark.parametrize("test", ["deep", "deep is defined and deep is not false"])
def test_rows_give_a_template_what_it_takes_as_they_say_it(tmp_path: Path, test: str) -> None:
    twin = twins.byte_level(tmp_path / "tests", template=f"{{{{ 'deep\n' if {test} }}}}" + twins.CHATML)
    is_number_read = test == "deep"
    for words, is_read in (
        (("on", "off"), False),
        (("true", "false"), False),
        (("true", "yes"), True),
        ((1, 0), is_number_read),
        ((True, False), True),
    ):
        rows = [CHAT | {"chat_template_kwargs": {"deep": word, "other": "low"}} for word in words]
        path = written(tmp_path / "rows.jsonl", *rows)
        asked = ("build", path, "--tokenizer", twin, "-o", tmp_path / "cache", "--force", "--json")
        if is_read:
            assert "not as they are meant" not in run(*asked).stderr
            continue
        told = fields(*asked[:-1], exit_code=3)["error"]
        assert "`chat_template_kwargs.deep` (in 2 of 2 rows: " in told["message"], (words, told)
        assert told["hint"].startswith("give rows true or false under `chat_template_kwargs.deep`, in place of ")
        assert "--ignore" not in told["hint"]


def test_a_list_with_other_answers_of_a_server_is_no_part_of_the_question(tokenizer: Path, tmp_path: Path) -> None:
    other = {"message": {"role": "assistant", "content": "Nobody knows when it leaves, I fear."}}
    path = written(tmp_path / "rows.jsonl", CHAT | {"choices": [other]})
    hint = hint_of("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache")
    assert hint == "--ignore choices leaves it out"


def test_a_field_that_changes_no_prompt_of_the_template_is_a_label(tmp_path: Path) -> None:
    twin = twins.byte_level(tmp_path / "states", template=STATES)
    rows = [CHAT | {"depth": "usual"}, CHAT | {"depth": 3, "chat_template_kwargs": {"depth": 5}}]
    assert packer.build(rows, tmp_path / "cache", tokenizer=twin, progress=False).built
    other = packer.build([CHAT | {"depth": 3}], tmp_path / "other", template={"kwargs": {"depth": 4}}, tokenizer=twin)
    assert other.built


def test_a_preview_shows_the_question_and_go_on(tokenizer: Path, tmp_path: Path) -> None:
    labeled = [message | {"slots": {"port": "Oban"}, "mood": GAELIC} for message in CHAT["messages"]]
    path = written(tmp_path / "rows.jsonl", {"messages": labeled, "persona": GAELIC, "topic": "ferries"})
    told = run("preview", path, "--tokenizer", tokenizer)
    assert "keys of messages that are not read: `slots.port` (Oban)" in " ".join(told.stderr.split())
    assert "`packer build` would stop: " in " ".join(told.stderr.split())
    assert "fields of rows that are not read: `topic`" in " ".join(told.stderr.split())
    assert ROW["output"] in told.stdout
    assert "--ignore persona" in told.stderr
    ignored = ("--ignore", "persona", "--ignore", "messages[].mood")
    assert "would stop" not in run("preview", path, "--tokenizer", tokenizer, *ignored).stderr


def test_a_build_names_fields_that_nothing_reads_with_what_they_most_often_say(tokenizer: Path, tmp_path: Path) -> None:
    said = [{"verdict": "keep", "page": {"cells": 3}}, {"verdict": "drop"}, {"verdict": "keep", "by": "o" * 40}]
    tables = [{"table": [[f"c{number}", "4"]], "rank": number} for number in range(5)]
    rows = [CHAT | of_row | table for of_row in said for table in tables]
    path = written(tmp_path / "rows.jsonl", *rows)
    told = " ".join(run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache").stderr.split())
    shown = f"`by` ({'o' * 22} …), `page.cells` (3), `rank` (0, 1, 2, …), `table`, `verdict` (keep, drop)"
    assert f"note: {path}: fields of rows that are not read: {shown}" in told.replace("\n", " ")
    ignored = [word for name in ("by", "page", "rank", "table") for word in ("--ignore", name)]
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "other", *ignored).stderr
    assert "not read: `verdict` (keep, drop)" in " ".join(told.split())
    ignored += ["--ignore", "verdict"]
    assert "not read" not in run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "last", *ignored).stderr


def test_of_an_object_that_columns_read_a_build_names_what_they_leave(tokenizer: Path, tmp_path: Path) -> None:
    row = {"q": {"en": ROW["instruction"], "n": 3}, "a": {"text": [ROW["output"]]}}
    path = written(tmp_path / "rows.jsonl", row)
    columns = ("--columns", "instruction=q.en,output=a.text")
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", *columns).stderr
    assert [line for line in told.splitlines() if "not read" in line] == [
        f"note: {path}: fields of rows that are not read: `q.n` (3)"
    ]


def test_of_a_list_that_columns_read_a_build_names_the_keys_that_they_leave(tokenizer: Path, tmp_path: Path) -> None:
    said = [{"by": who, "at": 6, "text": ROW["output"]} for who in ("Ann", "Bo")]
    path = written(tmp_path / "rows.jsonl", ROW | {"said": said, "seen": said[:1]})
    columns = ("--columns", "input=said[].text", "--ignore", "seen")
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", *columns).stderr
    assert [line for line in told.splitlines() if "not read" in line] == [
        f"note: {path}: fields of rows that are not read: `said[].at` (6), `said[].by` (Bo, Ann)"
    ]


def test_names_of_those_who_speak_are_named_unless_the_template_writes_them(tokenizer: Path, tmp_path: Path) -> None:
    said = [{"role": "user", "name": "Ann", "content": "It is six."}, {"role": "assistant", "content": "So it is."}]
    path = written(tmp_path / "rows.jsonl", {"messages": said})
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache").stderr
    assert [line for line in told.splitlines() if "not read" in line] == [
        f"note: {path}: keys of messages that are not read: `name` (Ann)"
    ]
    (tmp_path / "named.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.name }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant \n{% endif %}"
    )
    options = ("--tokenizer", tokenizer, "--template", tmp_path / "named.jinja")
    assert "not read" not in run("build", path, *options, "-o", tmp_path / "other").stderr


def test_text_beside_values_that_json_does_not_have_is_found(tokenizer: Path, tmp_path: Path) -> None:
    meta = {"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "image": b"\x00", "notes": GAELIC}
    path = written(tmp_path / "rows.parquet", ROW | {"meta": meta})
    assert "--ignore meta" in hint_of("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache")


def test_a_source_of_several_files_is_asked_about_once(tokenizer: Path, tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", *[ROW] * 200)
    written(tmp_path / "b.jsonl", ROW | {"notes": GAELIC})
    written(tmp_path / "c.jsonl", ROW | {"notes": GAELIC, "more": {"deep": [GAELIC]}})
    hint = hint_of("build", tmp_path / "?.jsonl", "--tokenizer", tokenizer, "-o", tmp_path / "cache")
    assert ways(hint)[-1] == ["--ignore", "more", "--ignore", "notes"]


def test_two_fields_that_could_be_the_question_are_both_named(tokenizer: Path, tmp_path: Path) -> None:
    row = {
        "question": "A title of what is asked",
        "Question": "When does the ferry to Mull leave?",
        "Response": "At six.",
    }
    path = written(tmp_path / "rows.jsonl", row)
    error = fields("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", exit_code=3)["error"]
    found = error["hint"].partition(": ")[2].partition("; what")[0].split(" or ")
    assert len(found) == 2
    texts = []
    for number, way in enumerate(found):
        run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / f"c{number}", *shlex.split(way))
        texts.append(said(tmp_path / f"c{number}", path.name))
    assert [row["question"] in text for text in texts] != [row["Question"] in text for text in texts]


@pytest.mark.parametrize(("label", "is_shown"), [(1, True), ("1", True), (True, False)])
def test_a_label_that_is_not_read_as_a_rating_is_shown(
    tokenizer: Path, tmp_path: Path, label: Any, is_shown: bool
) -> None:
    path = written(tmp_path / "rows.jsonl", {"prompt": "well?", "completion": "yes", "label": label})
    assert ("not read: `label`" in " ".join(run("preview", path, "--tokenizer", tokenizer).stderr.split())) == is_shown


def test_text_in_few_rows_is_named_with_their_number_and_left_out(tokenizer: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", ROW | {"notes": GAELIC}, *[ROW] * 199)
    for command in (("build", path, "-o", tmp_path / "cache"), ("preview", path)):
        told = " ".join(run(*command, "--tokenizer", tokenizer).stderr.split())
        assert f"a field has text that nothing reads: `notes` (in 1 of 200 rows: `{GAELIC}`); too few to ask" in told
    silent = run("preview", path, "--tokenizer", tokenizer, "--ignore", "notes").stderr
    assert "nothing reads" not in silent


def commands_in(hint: str) -> list[str]:
    """The commands of a hint, each after its condition."""
    found = re.findall(r"if [^:]*: (.*?)(?=; if |; --ignore )", hint.replace("\n", " "))
    return [each.replace("python -c", f"{shlex.quote(sys.executable)} -c", 1) for each in found]


def flagged(*flags: Any) -> list[dict[str, Any]]:
    """Two exchanges: what the questions have, and what the answers have."""
    turns = [{"role": role, "content": f"{role} {number}"} for number in (1, 2) for role in ("user", "assistant")]
    return [turn | (flag or {}) for turn, flag in zip(turns, flags, strict=True)]


FLAGS: list[tuple[dict[str, Any], list[int], int]] = [
    ({"messages": flagged(None, {"learn": False}, None, {"learn": True})}, [2], 2),
    ({"messages": flagged({"mask": True}, {"mask": True}, {"mask": True}, {"mask": False})}, [1], 2),
    ({"messages": flagged(None, {"keep": "yes"}, None, None)}, [1], 2),
    ({"messages": flagged(None, {"keep": "No"}, None, None)}, [2], 2),
    ({"messages": flagged(None, {"meta": {"keep": 0}}, None, {"meta": {"keep": 1}})}, [2], 2),
    ({"messages": flagged(None, {"label": "ignore"}, None, {"label": "Train"})}, [1], 2),
    ({"messages": flagged(None, {"label": "No"}, None, {"label": "other"})}, [1], 2),
    ({"messages": flagged(None, {"keep": "Да"}, None, {"keep": "НЕТ"})}, [1], 2),
    ({"messages": flagged(None, {"keep": "👎"}, None, {"keep": "✔️"})}, [2], 2),
    ({"messages": flagged(None, {"loss_scale": 0.1}, None, {"loss_scale": 1.0})}, [1, 2], 1),
    ({"messages": flagged(None, {"votes": -3}, None, {"votes": 8})}, [2], 1),
]
"""Rows, the answers of which they say yes, and the number of ways to read them."""


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(("flag", "kind"), each_with_a_kind(one_in(2, FLAGS), ["jsonl", "json", "parquet"]))
def test_each_way_on_for_a_flag_trains_what_it_says(
    tokenizer: Path, tmp_path: Path, flag: tuple[dict[str, Any], list[int], int], kind: str
) -> None:
    row, yes, num_ways = flag
    path = tmp_path / f"rows.{kind}"
    written(path, row) if kind != "json" else path.write_text(json.dumps([row], indent=1), "utf-8")
    error = fields("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "asked", exit_code=3)["error"]
    assert "what may say which answers are trained is not read: `" in error["message"]
    commands = commands_in(error["hint"])
    assert len(commands) == num_ways
    for number, command in enumerate(commands):
        subprocess.run(["bash", "-euc", f"set -o pipefail; {command}"], check=True, cwd=tmp_path)
        run("build", tmp_path / "rows_lines.jsonl", "--tokenizer", tokenizer, "-o", tmp_path / f"cache{number}")
        with Cache.open(tmp_path / f"cache{number}") as opened:
            (document,) = view_row(opened, "rows_lines.jsonl", 0).documents
        trained = [run.text for run in document.runs if run.message is not None]
        expected = yes if number == 0 else sorted({1, 2}.difference(yes))
        assert trained == [f"assistant {each}<|im_end|>" for each in expected]
    ignored = shlex.split(error["hint"].replace("\n", " ").rpartition("; ")[2].partition(" leaves ")[0])
    run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "ignoring", "--dry-run", *ignored)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("of_messages", [False, True])
def test_media_that_nothing_reads_is_asked_about_and_each_way_on_trains_what_it_says(
    tokenizer: Path, tmp_path: Path, kind: str, of_messages: bool
) -> None:
    shown = {"attachments": [{"mime": "image/png", "name": "shot.png"}]}
    asked, answer = CHAT["messages"]
    row = {"messages": [asked | shown, answer]} if of_messages else CHAT | shown
    path = written(tmp_path / f"rows.{kind}", row, CHAT, CHAT)
    arguments = ("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache")
    error = fields(*arguments, exit_code=3)["error"]
    name = "messages[].attachments" if of_messages else "attachments"
    assert f"images, sound or films are named that nothing reads: `{name}` (in 1 of 3 rows:" in error["message"]
    rejecting, _, ignoring = error["hint"].replace("\n", " ").split("; ")
    for way, kept in ((rejecting.partition(" trains ")[0], 2), (ignoring.partition(" leaves ")[0], 3)):
        cache = tmp_path / f"cache{kept}"
        run(*arguments[:-1], cache, *shlex.split(way))
        assert read_manifest(cache).totals.kept == kept


def nested(value: Any, keys: Sequence[str]) -> Any:
    """The value in objects, under these keys."""
    return functools.reduce(lambda inner, key: {key: inner}, reversed(keys), value)


VERDICTS: list[tuple[str, list[Any], list[int]]] = [
    ("correct", [True, False], [0]),
    ("tests_passed", [0, 1, None, 0], [1]),
    ("isWrong", ["no", "Yes", "No"], [1]),
    ("is it valid", [False, True], [1]),
    ("eval.passed", [False, True], [1]),
    ("meta/eval/is_correct", [False, True], [1]),
    ("json/eval/thumb", [False, True], [1]),
    ("loss", [True, False, False], [0]),
    ("label", [0, 1, 0], [1]),
    ("reward", [1.0, -1.0, 1.0], [0, 2]),
    ("gain", [0.25, -3.5, 2.0], [0, 2]),
    ("meta/votes", [-7, 12, 3], [1, 2]),
    ("verdict", ["pass", "fail"], [0]),
    ("status", ["approved", "pending", "rejected", "Approved"], [0, 3]),
    ("meta/safety", ["unsafe", "safe"], [1]),
    ("keep", ["Y", "N", "N"], [1, 2]),
    ("meta/judgement", ["right", "wrong", "right"], [0, 2]),
    ("meta/vote", ["👍", "👎"], [0]),
    ("meta/quality", ["bad", "good"], [1]),
    ("feedback/thumbs", ["up", "down", "up"], [0, 2]),
]
"""A field, what rows have in it, and those of which it says yes."""


@pytest.mark.parametrize(("verdict", "kind"), each_with_a_kind(one_in(2, VERDICTS), ["jsonl", "parquet", "csv"]))
def test_a_verdict_on_rows_is_asked_about_and_each_way_on_trains_what_it_says(
    tokenizer: Path, tmp_path: Path, verdict: tuple[str, list[Any], list[int]], kind: str
) -> None:
    name, said, right = verdict
    field, *inner = name.split("/")
    name = ".".join([field, *inner])
    rows = [ROW | {"instruction": f"{number}?", field: nested(each, inner)} for number, each in enumerate(said)]
    path = tmp_path / f"rows.{kind}"
    if inner and (kind == "csv" or field == "json"):
        rows = [row | {field: json.dumps(row[field])} for row in rows]
    pacsv.write_csv(pa.Table.from_pylist(rows), path) if kind == "csv" else written(path, *rows)
    recipe, where = tmp_path / "recipe.yaml", "" if "." in name else "where: {output: {matches: six}}"
    recipe.write_text(f"tokenizer: {tokenizer}\nsources: [{{path: {path}, {where}}}]\n")
    error = fields("build", "--recipe", recipe, "-o", tmp_path / "asked", exit_code=3)["error"]
    assert f"what may say which answers are trained is not read: `{name}` (in " in error["message"]
    ways = [*map(shlex.split, re.findall(r"--[^;]*?(?= trains| leaves)", error["hint"].replace("\n", " ")))]
    wrong = [row for row, each in enumerate(said) if row not in right and each not in (None, "pending")]
    trains = right, wrong, [*range(len(rows))]
    for number, (way, trained) in enumerate(zip(ways, trains[:: 4 - len(ways)], strict=True)):
        run("build", "--recipe", recipe, "-o", tmp_path / f"cache{number}", *way)
        with Cache.open(tmp_path / f"cache{number}") as opened:
            assert [row for row in range(len(rows)) if not view_row(opened, path.name, row).rejected] == trained


def test_numbers_below_and_above_zero_can_be_carried_beside_the_ids(tokenizer: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", *(ROW | {"advantage": each} for each in (0.5, -1.25, 2)))
    asked = ["build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache"]
    hint = " ".join(fields(*asked, exit_code=3)["error"]["hint"].split())
    (way,) = re.findall(r"--set 'document_columns[^']*'", hint)
    run(*asked, *shlex.split(way))
    with Cache.open(tmp_path / "cache") as opened:
        assert opened.documents("train").stored("advantage", np.float32).tolist() == [0.5, -1.25, 2.0]
    path = written(tmp_path / "few.jsonl", *(ROW | {"advantage": each} for each in (0.5, -1.25, None)))
    asked = ["build", path, "--tokenizer", tokenizer, "-o", tmp_path / "few"]
    assert "document_columns" not in fields(*asked, exit_code=3)["error"]["hint"]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_scores_beside_one_answer_are_named_in_lines_and_in_tables(name, tokenizer, tmp_path) -> None:
    path = written(tmp_path / name, *(ROW | {"scores": [0.5, number + 0.25]} for number in range(3)))
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache").stderr
    assert "fields of rows that are not read: `scores`" in " ".join(told.split())


def test_a_yes_or_no_beside_numbers_in_a_table_is_asked_about(tokenizer: Path, tmp_path: Path) -> None:
    meta = [{"ok": number > 1, "number": number, "gain": number / 2} for number in range(4)]
    rows = [ROW | {"meta": each, "passed": [each["ok"], True], "steps": [0.5, each["gain"]]} for each in meta]
    path = written(tmp_path / "rows.parquet", *rows)
    error = fields("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", exit_code=3)["error"]
    said = "(in 4 of 4 rows: `false or true`)"
    assert error["message"].endswith(f"trained is not read: `meta.ok` {said}, `passed` {said}")


def test_a_flag_that_the_template_reads_is_not_asked_about(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", {"messages": flagged(None, {"brief": True}, None, {"brief": False})})
    template = twins.CHATML.replace("{{", "{% if message.brief %}!{% endif %}{{", 1)
    twin = twins.byte_level(tmp_path / "reads", template=template)
    recipe = make_recipe({"sources": [{"path": str(path)}], "tokenizer": str(twin)})
    assert preview(recipe, progress=Silent()).hint is None
    plain = make_recipe({"sources": [{"path": str(path)}], "tokenizer": str(twins.byte_level(tmp_path / "plain"))})
    assert "messages[].brief" in (preview(plain, progress=Silent()).hint or "")


KEYS: dict[str, tuple[dict[str, Any], list[list[str]]]] = {
    "tools": (
        {"messages": [{"role": "system", "content": "Be kind.", "tools": TOOLS}, *CHAT["messages"]]},
        [['"name": "tide"', "Be kind."]],
    ),
    "tools as text": (
        {"conversations": [{"from": "human", "value": "?", "tools": json.dumps(TOOLS)}, {"from": "gpt", "value": "!"}]},
        [['"name": "tide"', "user\n?"]],
    ),
    "a beginning": (
        {"messages": [CHAT["messages"][0], CHAT["messages"][1] | {"first": GAELIC}]},
        [[f"<think>{GAELIC}</think>{ROW['output']}"]],
    ),
    "reasoning": ({**CHAT, "reasoning": GAELIC}, [[f"<think>{GAELIC}</think>{ROW['output']}"]]),
    "turns": (
        {"conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "!", "plan": GAELIC}]},
        [[f"<think>{GAELIC}</think>!"]],
    ),
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(("name", "kind"), each_with_a_kind(KEYS, ["jsonl", "parquet"]))
def test_each_way_on_for_a_key_of_messages_reads_it_where_it_says(
    tokenizer: Path, tmp_path: Path, name: str, kind: str
) -> None:
    row, expected = KEYS[name]
    path = written(tmp_path / f"rows.{kind}", row)
    commands = commands_in(hint_of("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "asked"))
    assert len(commands) == len(expected)
    for number, (command, texts) in enumerate(zip(commands, expected, strict=True)):
        subprocess.run(["bash", "-euc", f"set -o pipefail; {command}"], check=True, cwd=tmp_path)
        cache = tmp_path / f"cache{number}"
        run("build", tmp_path / "rows_lines.jsonl", "--tokenizer", tokenizer, "-o", cache)
        text = said(cache, "rows_lines.jsonl")
        assert all(each in text for each in texts), text


SWITCHED = (
    TEMPLATE + "{% if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% endif %}"
)
"""Asks for no reasoning where it is told so."""


def test_variables_that_a_template_does_not_read_are_named(tokenizer: Path, tmp_path: Path) -> None:
    rows = [CHAT | {"chat_template_kwargs": {"language": word, "budget": 0}} for word in ("French", "Dutch")]
    path = written(tmp_path / "rows.jsonl", *rows)
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache").stderr
    assert [line for line in told.splitlines() if "not read" in line] == [
        f"note: {path}: variables that the template does not read: `budget` (0), `language` (French, Dutch)"
    ]


@pytest.mark.parametrize(
    ("is_asked", "reasoning", "is_told"), [(True, "", True), (True, "So.", False), (False, "", False)]
)
def test_rows_that_ask_for_reasoning_and_have_none_are_counted(
    is_asked: bool, reasoning: str, is_told: bool, tmp_path: Path
) -> None:
    user, answer = CHAT["messages"]
    said = [user, answer | ({"reasoning_content": reasoning} if reasoning else {})]
    path = written(
        tmp_path / "rows.jsonl", *[{"messages": said, "chat_template_kwargs": {"enable_thinking": is_asked}}] * 3
    )
    tokenizer = twins.byte_level(tmp_path / "thinking", template=SWITCHED)
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", "--fail-above", "1").stderr
    says = f"note: {path}: 3 of its first rows ask for reasoning (enable_thinking: true) that their answers do not have"
    assert (says in told.splitlines()) is is_told, told


@pytest.mark.parametrize("odd", [{"a": 1}, 7, "hello", ["hello"], []])
def test_a_row_with_anything_as_messages_ends_no_question(tokenizer: Path, tmp_path: Path, odd: Any) -> None:
    rows = [
        *[{**CHAT, "reasoning": f"I think it is {number}, as I was told."} for number in range(4)],
        {"messages": odd},
    ]
    path = written(tmp_path / "rows.jsonl", *rows)
    error = fields("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", exit_code=3)["error"]
    assert "`reasoning`" in error["message"] and "--ignore reasoning" in error["hint"]


def test_a_field_is_written_into_the_question_whatever_the_user_is_called(tokenizer: Path, tmp_path: Path) -> None:
    asked, answer = (each["content"] for each in CHAT["messages"])
    messages = [{"role": "Kim", "content": asked}, {"role": "assistant", "content": answer}]
    passages = [
        {"title": "Ferries of Mull", "text": GAELIC},
        {"title": "Ferries of Iona", "text": "It rains each day."},
    ]
    path = written(tmp_path / "rows.jsonl", {"messages": messages, "passages": passages})
    built = ("build", "--tokenizer", tokenizer, "--roles", "Kim=user", "-o")
    (command, *_) = commands_in(hint_of(*built, tmp_path / "asked", path))
    subprocess.run(["bash", "-euc", command], check=True, cwd=tmp_path)
    run(*built, tmp_path / "cache", tmp_path / "rows_lines.jsonl")
    written_out = json.dumps(passages, separators=(",", ":"))
    assert f"{asked}\n\npassages: {written_out}" in said(tmp_path / "cache", "rows_lines.jsonl")


def test_a_verdict_beside_columns_of_another_schema_is_named(tokenizer: Path, tmp_path: Path) -> None:
    rows = [{"prompt": ROW["instruction"], "response": f"At {k}.", "winner": "ab"[k % 2]} for k in range(4)]
    path = written(tmp_path / "rows.jsonl", *rows)
    columns = ("--columns", "instruction=prompt,output=response")
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", *columns).stderr
    assert "fields of rows that are not read: `winner` (a, b)" in told.replace("\n", " ")


def test_what_stands_beside_an_ignored_key_is_named(tokenizer: Path, tmp_path: Path) -> None:
    rows = [
        {"question": ROW["instruction"], "answers": {"text": f"At {k}.", "rank": 3 + k % 2, "ok": bool(k % 3)}}
        for k in range(6)
    ]
    path = written(tmp_path / "rows.jsonl", *rows)
    options = ("--columns", "instruction=question,output=answers.text", "--ignore", "answers.ok")
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", *options).stderr
    assert "fields of rows that are not read: `answers.rank` (3, 4)" in told.replace("\n", " ")


def test_a_list_beside_a_text_that_columns_read_is_named(tokenizer: Path, tmp_path: Path) -> None:
    rows = [{"question": ROW["instruction"], "answers": {"text": f"At {k}.", "score": [3, 4 + k]}} for k in range(6)]
    path = written(tmp_path / "rows.jsonl", *rows)
    options = ("--columns", "instruction=question,output=answers.text")
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", *options).stderr
    assert "fields of rows that are not read: `answers.score[]`" in told.replace("\n", " ")
