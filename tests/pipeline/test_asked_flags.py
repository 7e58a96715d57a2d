"""Flags of answers and verdicts on rows that nothing reads are asked about, and each way on trains what it says."""

import functools
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
import twins
from asked_rows import CHAT, ROW, TEMPLATE, written
from command_line import fields, run
from search_effort import each_with_a_kind, one_in

from packer.audit.preview import preview
from packer.audit.view import view_row
from packer.display import Silent
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache
from packer.store.manifest import read_manifest


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return twins.byte_level(tmp_path_factory.mktemp("model") / "tokenizer", template=TEMPLATE)


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
    run(*asked, *shlex.split(error["hint"].rpartition("; ")[2].partition(" leaves")[0]))


def flagged(*flags: Any) -> list[dict[str, Any]]:
    """Two exchanges: what the questions have, and what the answers have."""
    turns = [{"role": role, "content": f"{role} {number}"} for number in (1, 2) for role in ("user", "assistant")]
    return [turn | (flag or {}) for turn, flag in zip(turns, flags, strict=True)]


FLAGS: list[list[dict[str, Any]]] = [
    flagged(None, {"learn": False}, None, {"learn": True}),
    flagged({"mask": True}, {"mask": True}, {"mask": True}, {"mask": False}),
    flagged(None, {"keep": "yes"}, None, None),
    flagged(None, {"keep": "No"}, None, None),
    flagged(None, {"meta": {"keep": 0}}, None, {"meta": {"keep": 1}}),
    flagged(None, {"label": "ignore"}, None, {"label": "Train"}),
    flagged(None, {"keep": "Да"}, None, {"keep": "НЕТ"}),
    flagged(None, {"keep": "👎"}, None, {"keep": "✔️"}),
    flagged(None, {"loss_scale": 0.1}, None, {"loss_scale": 1.0}),
    flagged(None, {"votes": -3}, None, {"votes": 8}),
]


@pytest.mark.parametrize(("messages", "kind"), each_with_a_kind(one_in(3, FLAGS), ["jsonl", "json", "parquet"]))
def test_a_flag_of_answers_is_asked_about_with_the_keys_that_are_read(
    tokenizer: Path, tmp_path: Path, messages: list[dict[str, Any]], kind: str
) -> None:
    path, row = tmp_path / f"rows.{kind}", {"messages": messages}
    written(path, row) if kind != "json" else path.write_text(json.dumps([row], indent=1), "utf-8")
    error = fields("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "asked", exit_code=3)["error"]
    assert "what may say which answers are trained is not read: `messages[]." in error["message"]
    hint = error["hint"].replace("\n", " ")
    assert hint.startswith("if it says which answers are trained, give messages `train`")
    ignored = shlex.split(hint.rpartition("; ")[2].partition(" leaves ")[0])
    run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "ignoring", *ignored)


@pytest.mark.parametrize(("of_messages", "kind"), each_with_a_kind([False, True], ["jsonl", "parquet"]))
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


@pytest.mark.parametrize(("verdict", "kind"), each_with_a_kind(one_in(4, VERDICTS), ["jsonl", "parquet", "csv"]))
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
