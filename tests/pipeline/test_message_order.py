"""Messages in another order than they say: each way on that a build names leads to rows that are trained in theirs."""

import datetime as dt
import json
import random
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import twins
from command_line import fields, run
from followed_steps import write
from search_effort import each_with_a_kind

from packer.audit.view import view_row
from packer.store.cache import Cache

START = dt.datetime(2025, 3, 1, 10, tzinfo=dt.UTC)
NUM_SAID = 4


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return twins.byte_level(tmp_path / "tokenizer", template=twins.CHATML)


def talk(row: int, *keys: dict[str, Any]) -> list[dict[str, Any]]:
    """Questions and answers in turn, each with what it says of its order."""
    roles = ("user", "assistant")
    return [{"role": roles[k % 2], "content": f"said {row}.{k}"} | each for k, each in enumerate(keys)]


def at(k: int) -> dt.datetime:
    return START + dt.timedelta(seconds=9 * k)


ORDERS: dict[str, list[dict[str, Any]]] = {
    "at": [{"at": at(k).isoformat()} for k in range(NUM_SAID)],
    "seq": [{"seq": k} for k in range(NUM_SAID)],
    "second": [{"second": 1_700_000_000 + k // 2} for k in range(NUM_SAID)],
    "parent": [{"id": f"m{k}", "parent": f"m{k - 1}" if k else None} for k in range(NUM_SAID)],
}


def written(path: Path, rows: Sequence[list[dict[str, Any]]]) -> Path:
    cell: Any = json.dumps if path.suffix == ".csv" else list
    return write(path, [{"messages": cell(each)} for each in rows])


def questions(path: Path, tokenizer: Path, cache: Path) -> dict[str, Any]:
    error: dict[str, Any] = fields("build", path, "--tokenizer", tokenizer, "-o", cache, exit_code=3)["error"]
    assert "messages do not stand in the order that they say: `" in error["message"]
    return error


def said(path: Path) -> list[list[str]]:
    rows = [json.loads(line)["messages"] for line in path.read_text("utf-8").splitlines()]
    return [[each["content"] for each in row] for row in rows]


@pytest.mark.parametrize(("name", "kind"), each_with_a_kind(ORDERS, ["jsonl", "csv", "parquet"]))
def test_an_order_that_rows_do_not_keep_is_asked_about_and_one_that_they_keep_is_not(
    tokenizer: Path, tmp_path: Path, name: str, kind: str
) -> None:
    in_order = [talk(row, *ORDERS[name]) for row in range(3)]
    path = written(tmp_path / f"rows.{kind}", [in_order[0], in_order[1][::-1], in_order[2]])
    error = questions(path, tokenizer, tmp_path / "asked")
    assert f"`messages[].{name}` (in 1 of 3 rows" in error["message"]
    assert f"write the messages of each row in the order of `messages[].{name}`" in error["hint"].replace("\n", " ")
    run("build", written(path, in_order), "--tokenizer", tokenizer, "-o", tmp_path / "cache")
    written(path, [in_order[0], in_order[1][::-1], in_order[2]])
    ignored = shlex.split(error["hint"].replace("\n", " ").rpartition("; ")[2].partition(" leaves ")[0])
    run("build", path, "--tokenizer", tokenizer, "-o", tmp_path / "ignoring", *ignored)


def test_times_in_a_table_are_asked_about_as_those_in_json_are(tokenizer: Path, tmp_path: Path) -> None:
    rows = [talk(row, *({"at": at(k)} for k in range(NUM_SAID)))[::-1] for row in range(2)]
    path = written(tmp_path / "rows.parquet", rows)
    error = questions(path, tokenizer, tmp_path / "asked")
    assert "`messages[].at` (in 2 of 2 rows" in error["message"]


def test_branches_within_a_row_are_asked_about(tokenizer: Path, tmp_path: Path) -> None:
    ids = [("q", None), ("a", "q"), ("edited", None), ("b", "edited"), ("more", "b"), ("c", "more")]
    row = talk(0, *({"id": own, "parentId": parent} for own, parent in ids))
    straight = talk(1, *({"id": f"m{k}", "parentId": f"m{k - 1}" if k else None} for k in range(4)))
    other = talk(2, {}, {})
    error = questions(written(tmp_path / "rows.jsonl", [row, straight, other]), tokenizer, tmp_path / "asked")
    assert "`messages[].parentId` (in 1 of 3 rows: `nothing after a`)" in error["message"]


def test_a_template_that_writes_the_times_of_messages_changes_nothing(tmp_path: Path) -> None:
    template = twins.CHATML.replace("(message.content or '')", "(message.at or '') + (message.content or '')")
    tokenizer = twins.byte_level(tmp_path / "tokenizer", template=template)
    path = written(tmp_path / "rows.jsonl", [talk(0, *ORDERS["at"])[::-1]])
    assert "`messages[].at`" in questions(path, tokenizer, tmp_path / "cache")["message"]


def test_results_before_their_calls_are_asked_about_as_an_order(tokenizer: Path, tmp_path: Path) -> None:
    """Without it, such rows would be refused for calls without results."""
    call = {"id": "c", "type": "function", "function": {"name": "tide", "arguments": {}}}
    row = talk(0, {}, {"content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c"}, {})
    timed = [each | {"at": at(k).isoformat()} for k, each in enumerate(row)]
    error = questions(written(tmp_path / "rows.jsonl", [timed[::-1]]), tokenizer, tmp_path / "asked")
    assert "`messages[].at`" in error["message"]


def answers(cache: Path, name: str, num_rows: int) -> list[list[str]]:
    with Cache.open(cache) as opened:
        documents = [document for row in range(num_rows) for document in view_row(opened, name, row).documents]
    return [[part.text.partition("<")[0] for part in each.runs if part.message is not None] for each in documents]


def test_rows_that_begin_another_row_are_noted_and_the_setting_trains_each_answer_once(
    tokenizer: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [talk(0, *[{}] * end) for end in (2, 4, 6)]
    random.Random(0).shuffle(rows)
    path = written(tmp_path / "rows.jsonl", rows)
    build = ("build", path, "--tokenizer", tokenizer, "-o")
    noted = run(*build, tmp_path / "cache").stderr.replace("\n", " ")
    assert "2 of its first 3 rows begin another row" in noted
    ((setting, value),) = re.findall(r"(--set) (\S+) trains", noted)
    again = run(*build, tmp_path / "last", setting, value).stderr
    assert "begin another row" not in again
    trained = answers(tmp_path / "last", path.name, 3)
    assert sorted(text for each in trained for text in each) == ["said 0.1", "said 0.3", "said 0.5"]
    assert sum(map(len, answers(tmp_path / "cache", path.name, 3))) == 6
