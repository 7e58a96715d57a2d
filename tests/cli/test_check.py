"""`packer check` as people see it."""

import random

import pytest
import twins
from chats import chat
from command_line import fields, run
from followed_steps import write

from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe

WORDS = [f"word{i}" for i in range(300)]


@pytest.fixture(scope="module")
def leaking(tmp_path_factory):
    """A cache of 200 rows, a twentieth of which is held out at random, and every other row has a copy."""
    folder = tmp_path_factory.mktemp("leaking")
    twins.byte_level(folder / "tokenizer", template=twins.CHATML)
    chance = random.Random(5)
    rows = []
    for number in range(100):
        rows += [chat(*(" ".join(chance.choices(WORDS, k=20)) for _ in range(2)))] * (1 + number % 2)
    chance.shuffle(rows)
    splits = {"train": rows[10:], "validation": rows[:10]}
    sources = [{"path": str(write(folder / f"{name}.jsonl", own)), "split": name} for name, own in splits.items()]
    recipe = {"sources": sources, "tokenizer": str(folder / "tokenizer"), "engine": "reference"}
    build(make_recipe({**recipe, "pack": {"block_len": 512}}), folder / "cache", jobs=1)
    return folder


def test_a_random_split_of_rows_with_copies_fails(leaking, terminal):
    told = run("check", leaking / "cache", "--sources", "/", "--near", exit_code=1)
    assert "rows of validation: also in train" in " ".join(told.stdout.split())
    assert "copies_between_splits, prompts_between_splits, near_between_splits" in " ".join(told.stderr.split())
    assert all(len(line) <= 80 for line in told.stdout.splitlines() if "/" not in line)
    assert told.stdout.splitlines()[-1].startswith("  fingerprint  ")


def test_json_has_what_is_printed(leaking):
    found = fields("check", leaking / "cache", "--sources", "/", "--near", exit_code=1)
    assert found["command"] == "check" and not found["ok"] and found["error"]["code"] == "check_failed"
    levels = {each["code"]: each["level"] for each in found["findings"]}
    assert levels["copies_between_splits"] == "error" and levels["copies_within_splits"] == "warning"
    assert found["counts"]["error"] == sum(level == "error" for level in levels.values())


def test_inputs_that_are_not_compared_are_listed_once_with_the_reason(leaking):
    told = run("check", leaking / "cache", "--sources", leaking / "validation.jsonl").stdout
    assert f"1 of 2 inputs cannot be compared: {leaking}/train.jsonl: not read: below no --sources" in told
    assert "\nwarning[inputs]\n  hint: " in told


def test_quiet_prints_what_is_wrong_alone(leaking):
    told = run("check", leaking / "cache", "--sources", "/", "-q", exit_code=1)
    assert "copies between splits" in told.stdout and "tokenizer" not in told.stdout
