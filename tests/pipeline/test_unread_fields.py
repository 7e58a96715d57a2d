"""A build asks about text that nothing reads before it begins, and each way on that it prints leads to the next build."""

import datetime as dt
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import twins
from asked_rows import CHAT, GAELIC, ROW, TEMPLATE, said, written
from command_line import fields, run
from hints import arguments_in
from search_effort import each_with_a_kind, one_in

import packer
from packer.audit.preview import preview
from packer.display import Silent
from packer.errors import InputError
from packer.recipe.recipe import make_recipe
from packer.store.manifest import read_manifest

TOOLS = [{"type": "function", "function": {"name": "tide", "description": "tells", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return twins.byte_level(tmp_path_factory.mktemp("model") / "tokenizer", template=TEMPLATE)


def ways(hint: str) -> list[list[str]]:
    """The options that a hint says can be pasted; those in which a name is to be filled in are not."""
    parts = [re.split(r" reads | leaves ", way)[0] for way in hint.replace("\n", " ").split("; ") if "--" in way]
    return [shlex.split(part[part.index("--") :]) for part in parts if "FIELD" not in part]


def hint_of(*arguments: object) -> str:
    (error,) = [fields(*arguments, exit_code=3)["error"]]
    assert error["code"] == "input" and "text that nothing reads" in error["message"]
    hint: str = error["hint"]
    return hint


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


@pytest.mark.parametrize(("name", "kind"), each_with_a_kind(one_in(3, [*QUESTIONS]), ["jsonl", "parquet"]))
def test_each_way_that_a_question_prints_builds_and_reads_what_it_says(
    tokenizer: Path, tmp_path: Path, name: str, kind: str
) -> None:
    row, read, left_out = QUESTIONS[name]
    num_read = bool(read) and name not in ("a name to quote", "two places")  # which say no place
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


@pytest.mark.parametrize("place", ["system", "reasoning", "input"])
def test_a_field_whose_name_says_no_place_is_read_where_it_is_filled_in(
    tokenizer: Path, tmp_path: Path, place: str
) -> None:
    path = written(tmp_path / "rows.jsonl", ROW | {"it's a persona": GAELIC})
    hint = hint_of("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache")
    assert hint.startswith("--columns system=FIELD reads a field as what the system says (")
    assert f"{place}=FIELD" in hint
    columns = hint.split()[1].replace("system=FIELD", f"{place}=it's a persona")
    run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", "--columns", columns)
    assert GAELIC in said(tmp_path / "cache", path.name)


def test_all_sources_are_asked_about_at_once(tokenizer: Path, tmp_path: Path) -> None:
    one = written(tmp_path / "one.jsonl", ROW | {"sys": GAELIC})
    other = written(tmp_path / "other.jsonl", CHAT | {"notes": {"of": GAELIC}})
    right = written(tmp_path / "right.jsonl", CHAT)
    values: dict[str, Any] = {
        "sources": [{"path": str(path)} for path in (one, right, other)],
        "tokenizer": str(tokenizer),
    }
    with pytest.raises(InputError) as caught:
        packer.build(make_recipe(values), tmp_path / "cache", progress=False)
    assert "one.jsonl: a field has text that nothing reads: `sys`" in caught.value.message
    assert "other.jsonl: a field has text that nothing reads: `notes`" in caught.value.message
    ways = (caught.value.hint or "").split("; ")
    for index, name in ((0, "one.jsonl"), (2, "other.jsonl")):
        (way,) = (each for each in ways if f"{name}: columns=" in each)
        values["sources"][index]["columns"] = arguments_in(way.replace("'FIELD'", "'notes.of'"))["columns"]
    packer.build(make_recipe(values), tmp_path / "read", progress=False)
    assert all(GAELIC in said(tmp_path / "read", name) for name in ("one.jsonl", "other.jsonl"))
    (ignores,) = (each for each in ways if each.endswith(" leaves them out"))
    packer.build([one, right, other], tmp_path / "left", tokenizer=tokenizer, progress=False, **arguments_in(ignores))


def test_what_a_judge_says_is_offered_nowhere_by_its_name(tokenizer: Path, tmp_path: Path) -> None:
    judged = {"reasoning": GAELIC, "response": "It is right.", "context": GAELIC}
    path = written(tmp_path / "rows.jsonl", ROW | {"evaluation": judged})
    hint = hint_of("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache")
    assert "evaluation." not in hint and hint.endswith("--ignore evaluation leaves it out")


def test_a_verdict_in_an_object_with_a_text_is_asked_about_beside_it(tokenizer: Path, tmp_path: Path) -> None:
    """Whoever read of the text alone ignored the object, and rows that were not right were trained without a word."""
    rows = [CHAT | {"metadata": {"note": GAELIC, "resolved": number % 2 == 0}} for number in range(4)]
    path = written(tmp_path / "rows.jsonl", *rows)
    error = fields("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", exit_code=3)["error"]
    assert "`metadata.resolved` (in 4 of 4 rows: `false or true`)" in error["message"]
    assert "--ignore metadata --ignore metadata.resolved leaves them out" in error["hint"]


def test_keys_of_calls_that_nothing_reads_are_named(tokenizer: Path, tmp_path: Path) -> None:
    call = {"id": "a1", "function": {"name": "tide", "arguments": {}}, "result": {"at": 6}, "status": "done"}
    messages = [CHAT["messages"][0], CHAT["messages"][1] | {"tool_calls": [call]}]
    path = written(tmp_path / "rows.jsonl", {"messages": messages})
    told = run("preview", path, "--tokenizer", tokenizer).stderr.replace("\n", " ")
    assert "keys of messages that are not read: `result.at` (6), `status` (done)" in told


def test_what_is_ignored_is_recorded_and_changes_no_document(tokenizer: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", ROW)
    plain = packer.build(path, tmp_path / "plain", tokenizer=tokenizer, progress=False)
    ignoring = packer.build(path, tmp_path / "ignoring", tokenizer=tokenizer, ignore=["notes"], progress=False)
    assert ignoring.fingerprint == plain.fingerprint
    assert ignoring.manifest is not None and plain.manifest is not None
    assert ignoring.manifest.recipe["sources"][0]["ignore"] == ["notes"]
    assert "ignore" not in plain.manifest.recipe["sources"][0]
    assert ignoring.manifest.recipe_fingerprint == plain.manifest.recipe_fingerprint
    assert ignoring.manifest.content_fingerprint == plain.manifest.content_fingerprint


def test_fields_that_rules_and_columns_read_are_not_asked_about(tokenizer: Path, tmp_path: Path) -> None:
    row = ROW | {"notes": GAELIC, "meta": {"topic": "ferries of the west coast"}}
    path = written(tmp_path / "rows.jsonl", *(row | {"reward": float(number % 2)} for number in range(3)))
    rules: dict[str, Any] = {
        "where": {"notes": {"in": [GAELIC]}},
        "split": {"group": "meta.topic", "shares": {"validation": 0.5}},
        "document_columns": {"gain": {"kind": "float32", "field": "reward"}},
    }
    packer.build(path, tmp_path / "cache", tokenizer=tokenizer, progress=False, **rules)


@pytest.mark.parametrize("reads", ["{{ message.persona }}", "{{ '' + message['persona'] }}"])
def test_keys_of_messages_that_the_template_reads_are_not_asked_about(tmp_path: Path, reads: str) -> None:
    row = {"messages": [CHAT["messages"][0] | {"persona": GAELIC}, CHAT["messages"][1] | {"persona": GAELIC}]}
    path = written(tmp_path / "rows.jsonl", row)
    template = twins.CHATML.replace("{{", f"{{% if message.role == 'user' %}}{reads}{{% endif %}}{{{{", 1)
    twin = twins.byte_level(tmp_path / "reads", template=template)
    asked = ("build", path, "--tokenizer", twins.byte_level(tmp_path / "plain"), "-o", tmp_path / "asked")
    assert "--ignore 'messages[].persona' leaves it out" in hint_of(*asked)
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
    asked, answer = CHAT["messages"]
    path = written(tmp_path / "rows.jsonl", {"messages": [asked | {"persona": GAELIC}, answer]})
    recipe = make_recipe({"sources": [{"path": str(path)}], "tokenizer": str(twin)})
    assert preview(recipe, progress=Silent()).hint is None


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


LOG = {
    "request": {"messages": CHAT["messages"][:1], "depth": "deep"},
    "response": {"choices": [{"message": CHAT["messages"][1]}]},
}


DEPTHS: list[tuple[dict[str, Any], str]] = [
    (CHAT | {"depth": "deep", "topic": "ferries"}, "depth"),
    (CHAT | {"depth": "deep", "chat_template_kwargs": {"date": "today"}}, "depth"),
    (CHAT | {"meta": {"depth": 3}}, "meta.depth"),
    (LOG, "request.depth"),
]


@pytest.mark.parametrize(("case", "kind"), each_with_a_kind(DEPTHS, ["jsonl", "parquet"]))
def test_a_field_with_the_name_of_a_variable_of_the_template_is_asked_about(
    tmp_path: Path, case: tuple[dict[str, Any], str], kind: str
) -> None:
    row, place = case
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


def test_a_list_with_other_answers_of_a_server_is_asked_about(tokenizer: Path, tmp_path: Path) -> None:
    other = {"message": {"role": "assistant", "content": "Nobody knows when it leaves, I fear."}}
    path = written(tmp_path / "rows.jsonl", CHAT | {"choices": [other]})
    hint = hint_of("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache")
    assert "--columns" not in hint and hint.endswith("--ignore choices leaves it out")


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


SAID = [{"by": who, "at": 6, "text": ROW["output"]} for who in ("Ann", "Bo")]


PAIR = {
    "messages": CHAT["messages"][:1],
    "chosen": CHAT["messages"][1],
    "rejected": {"role": "assistant", "content": "No."},
}
SPOKEN = {"messages": [CHAT["messages"][0] | {"name": "Ann"}, CHAT["messages"][1]]}


LEFT: dict[str, tuple[list[dict[str, Any]], tuple[str, ...], str]] = {
    "an object that columns read": (
        [{"q": {"en": ROW["instruction"], "n": 3}, "a": {"text": [ROW["output"]]}}],
        ("--columns", "instruction=q.en,output=a.text"),
        "fields of rows that are not read: `q.n` (3)",
    ),
    "a list that columns read": (
        [ROW | {"said": SAID, "seen": SAID[:1]}],
        ("--columns", "input=said[].text", "--ignore", "seen"),
        "fields of rows that are not read: `said[].at` (6), `said[].by` (Bo, Ann)",
    ),
    "a list beside a text that columns read": (
        [{"q": ROW["instruction"], "a": {"text": f"At {k}.", "score": [3, 4 + k]}} for k in range(6)],
        ("--columns", "instruction=q,output=a.text"),
        "fields of rows that are not read: `a.score[]`",
    ),
    "a verdict beside columns of another schema": (
        [{"prompt": ROW["instruction"], "response": f"At {k}.", "winner": "ab"[k % 2]} for k in range(4)],
        ("--columns", "instruction=prompt,output=response"),
        "fields of rows that are not read: `winner` (a, b)",
    ),
    "beside an ignored key": (
        [{"q": ROW["instruction"], "a": {"text": f"At {k}.", "rank": 3 + k % 2, "ok": k > 3}} for k in range(6)],
        ("--columns", "instruction=q,output=a.text", "--ignore", "a.ok"),
        "fields of rows that are not read: `a.rank` (3, 4)",
    ),
    "scores beside one answer": (
        [ROW | {"scores": [0.5, number + 0.25]} for number in range(3)],
        (),
        "fields of rows that are not read: `scores`",
    ),
    "numbers that a pair is checked by, and no column carries": (
        [PAIR | {"margin": number, "score_chosen": 8.5, "score_rejected": 7} for number in range(3)],
        ("--set", "document_columns.score_chosen.kind=float32"),
        "fields of rows that are not read: `margin`, `score_rejected`",
    ),
    "names of those who speak": ([SPOKEN], (), "keys of messages that are not read: `name` (Ann)"),
    "variables that the template does not read": (
        [CHAT | {"chat_template_kwargs": {"language": word, "budget": 0}} for word in ("French", "Dutch")],
        (),
        "variables that the template does not read: `budget` (0), `language` (French, Dutch)",
    ),
}


@pytest.mark.parametrize(("left", "kind"), each_with_a_kind(LEFT, ["jsonl", "parquet"]))
def test_what_a_build_leaves_of_rows_is_named(tokenizer: Path, tmp_path: Path, left: str, kind: str) -> None:
    rows, options, says = LEFT[left]
    path = written(tmp_path / f"rows.{kind}", *rows)
    told = run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", *options).stderr
    assert [line for line in told.splitlines() if "not read" in line] == [f"note: {path}: {says}"]


def test_names_of_those_who_speak_are_not_named_where_the_template_writes_them(tmp_path: Path) -> None:
    template = twins.CHATML.replace("message.role ", "message.role + (message.name or '')", 1)
    assert template != twins.CHATML
    twin = twins.byte_level(tmp_path / "named", template=template)
    path = written(tmp_path / "rows.jsonl", SPOKEN)
    assert "not read" not in run("build", path, "--tokenizer", twin, "-o", tmp_path / "cache").stderr


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


def test_of_two_fields_that_could_be_the_question_none_is_chosen(tokenizer: Path, tmp_path: Path) -> None:
    asked = {"question": "A title of what is asked", "Question": "When does the ferry to Mull leave?"}
    path = written(tmp_path / "rows.jsonl", asked | {"Response": "At six."})
    error = fields("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", exit_code=3)["error"]
    assert error["hint"].startswith("say which field is which: --columns instruction=FIELD,output=Response for ")
    assert all(f"`{name}` (`{text}`)" in error["hint"].replace("At si", "") for name, text in [*asked.items()][:1])


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


KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "tools": (
        {"messages": [{"role": "system", "content": "Be kind.", "tools": TOOLS}, *CHAT["messages"]]},
        "`messages[].tools` has tools, give them to the row as `tools`",
    ),
    "tools as text": (
        {"conversations": [{"from": "human", "value": "?", "tools": json.dumps(TOOLS)}, {"from": "gpt", "value": "!"}]},
        "`conversations[].tools` has tools",
    ),
    "a beginning": (
        {"messages": [CHAT["messages"][0], CHAT["messages"][1] | {"first": GAELIC}]},
        "`messages[].first` belongs to what a message says",
    ),
    "reasoning": ({**CHAT, "reasoning": GAELIC}, "`reasoning` is reasoning, give it to its answer as"),
    "turns": (
        {"conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "!", "thoughts": GAELIC}]},
        "`conversations[].thoughts` is reasoning",
    ),
    "a passage": ({**CHAT, "passages": [{"title": "x", "text": GAELIC}]}, "`passages` belongs to what a message says"),
}


@pytest.mark.parametrize(("name", "kind"), each_with_a_kind([*KEYS], ["jsonl", "parquet"]))
def test_text_beside_messages_is_asked_about_with_where_it_is_read_and_the_page(
    tokenizer: Path, tmp_path: Path, name: str, kind: str
) -> None:
    row, says = KEYS[name]
    path = written(tmp_path / f"rows.{kind}", row)
    hint = hint_of("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "asked").replace("\n", " ")
    assert f"if {says}" in hint and "exports.md#beside-messages" in hint
    run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", *ways(hint.rpartition("; ")[2])[-1])


SWITCHED = (
    TEMPLATE + "{% if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% endif %}"
)
"""Asks for no reasoning where it is told so."""


def test_rows_that_ask_for_reasoning_and_have_none_are_counted(tmp_path: Path) -> None:
    tokenizer = twins.byte_level(tmp_path / "thinking", template=SWITCHED)
    user, answer = CHAT["messages"]
    for is_asked, own, is_told in ((True, {}, True), (True, {"reasoning_content": "So."}, False), (False, {}, False)):
        row = {"messages": [user, answer | own], "chat_template_kwargs": {"enable_thinking": is_asked}}
        path = written(tmp_path / "rows.jsonl", *[row] * 3)
        told = run("preview", path, "--tokenizer", tokenizer).stderr.replace("\n", " ")
        says = "3 of its first rows ask for reasoning (enable_thinking: true) that their answers do not have"
        assert (says in told) is is_told, told


@pytest.mark.parametrize("odd", [{"a": 1}, 7, "hello", ["hello"], []])
def test_a_row_with_anything_as_messages_ends_no_question(tokenizer: Path, tmp_path: Path, odd: Any) -> None:
    rows = [CHAT | {"reasoning": f"I think it is {number}, as I was told."} for number in range(4)]
    path = written(tmp_path / "rows.jsonl", *rows, {"messages": odd})
    error = fields("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "cache", exit_code=3)["error"]
    assert "`reasoning`" in error["message"] and "--ignore reasoning" in error["hint"]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_page_shows_how_to_write_a_field_into_the_question(tmp_path: Path) -> None:
    written(tmp_path / "rows.jsonl", {"question": "Which?", "A": "an owl", "B": "a curlew", "answer": "B"})
    written(tmp_path / "chat.jsonl", CHAT | {"persona": GAELIC})
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/inputs.md").read_text("utf-8")
    commands = re.findall(r"^jq -c '.*", page, re.MULTILINE)
    subprocess.run(["bash", "-euc", "\n".join(commands)], check=True, cwd=tmp_path)
    options = json.loads((tmp_path / "with_options.jsonl").read_text())
    assert options == {"question": "Which?\n\nA. an owl\nB. a curlew", "answer": "B"}
    (chat,) = map(json.loads, (tmp_path / "with_persona.jsonl").read_text().splitlines())
    assert chat["messages"][0]["content"].endswith(f"\n\n{GAELIC}") and "persona" not in chat
