"""`check` of real rows: what is divided by prompt passes, and what is divided row by row does not."""

import random

import pytest

from packer.audit import check
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe

pytestmark = pytest.mark.real

SETS = (
    "alpaca_en_52k.jsonl",
    "hh_harmless_test_messages.jsonl",
    "kdconv_zh_devtest.jsonl",
    "llamafactory/alpaca_zh_demo.json",
    "multilingual_chat_a.jsonl",
    "sgd_train_chat_1800.jsonl",
)
BETWEEN = ("copies_between_splits", "prompts_between_splits", "near_between_splits")


def built(real, folder, **rules):
    recipe = {
        "tokenizer": str(real / "tokenizers" / "minimind"),
        "pack": {"mode": "none"},
        "rows": {"empty_user": "keep"},
        "supervision": {"history_rewrite": "as_rendered"},
        **rules,
    }
    build(make_recipe(recipe), folder)
    return check(folder, sources=["/"], near=True)


@pytest.mark.slow
@pytest.mark.parametrize("corpus", SETS)
def test_rows_divided_by_prompt_without_leaks_pass(real, corpus, tmp_path):
    split = {"shares": {"validation": 0.05}, "leakage": {"near": 0.8}}
    report = built(real, tmp_path / "cache", sources=[{"path": str(real / "corpora" / corpus)}], split=split)
    found = {each.code: each for each in report.checks}
    assert report.ok
    assert [(found[code].level, found[code].count) for code in BETWEEN] == [("ok", 0)] * 3


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["hh_harmless_test_messages", "multilingual_chat_a", "sgd_train_chat_1800"])
def test_rows_divided_at_random_fail(real, corpus, tmp_path):
    lines = (real / "corpora" / f"{corpus}.jsonl").read_text("utf-8").splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    held = len(lines) // 20
    for name, own in (("train", lines[held:]), ("validation", lines[:held])):
        (tmp_path / f"{name}.jsonl").write_text("".join(own), "utf-8")
    sources = [{"path": str(tmp_path / f"{name}.jsonl"), "split": name} for name in ("train", "validation")]
    report = built(real, tmp_path / "cache", sources=sources)
    failed = {each.code for each in report.checks if each.level == "failure"}
    assert {"prompts_between_splits", "near_between_splits"} <= failed
