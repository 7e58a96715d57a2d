"""Filters on real rows against a plain loop, and a pattern that takes other engines for ever."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from search_effort import one_in

from packer.curate.trait_rules import TraitRules
from packer.curate.traits import TraitMaker
from packer.recipe.recipe import make_recipe
from packer.source.file_cuts import partition_file
from packer.source.row import FileRow
from packer.source.rows import read_batch, read_rows

CORPORA = (
    "hh_harmless_test_messages",
    "kdconv_zh_devtest",
    "multilingual_chat_a",
    "sgd_train_chat_1800",
    "taubench_airline_gpt4o",
)
FILTERS = [
    {"name": "short", "of": "answers", "chars": {"min": 4}},
    {"name": "refusal", "of": "answers", "not_matches": r"(?i)\b(sorry|cannot|can't|I don't)\b"},
    {"name": "asks", "of": "prompts", "matches": "[?？吗؟]"},
    {"name": "size", "of": "conversation", "chars": {"max": 900}},
    {"name": "turns", "messages": {"min": 3}},
]


def passes(rule, messages):
    if "messages" in rule:
        return len(messages) >= rule["messages"]["min"]
    said = {"answers": ["assistant"], "prompts": ["user"], "conversation": ["user", "assistant"]}[rule["of"]]
    texts = [m["content"] if isinstance(m["content"], str) else "" for m in messages if m["role"] in said]
    for text in ["\n".join(texts)] if rule["of"] == "conversation" else texts:
        limits = rule.get("chars", {})
        if not limits.get("min", 0) <= len(text) <= limits.get("max", len(text)):
            return False
        if "matches" in rule and not re.search(rule["matches"], text, re.ASCII):
            return False
        if "not_matches" in rule and re.search(rule["not_matches"], text, re.ASCII):
            return False
    return True


@pytest.mark.parametrize("corpus", one_in(3, CORPORA))
def test_filters_equal_a_plain_loop(real, corpus):
    path = real / "corpora" / f"{corpus}.jsonl"
    recipe = make_recipe({"sources": [{"path": str(path)}], "filters": FILTERS})
    maker = TraitMaker(TraitRules.of(recipe.row_rules, 0))
    cut = partition_file(path, format="jsonl", partition_bytes=2**20, limit=2000)
    failed, first, expected = [], 0, []
    for partition in cut.partitions:
        first = 0
        for batch in read_rows(partition, schema="messages", columns={}, max_row_bytes=2**26):
            failed.append(maker.make(batch, first).column("failed"))
            first += batch.num_rows
            known = {sample.row: [message.fields for message in sample.messages] for sample in batch.samples}
            rows = (known.get(row) for row in range(first - batch.num_rows, first))
            expected += [
                0 if row is None else sum((not passes(rule, row)) << i for i, rule in enumerate(FILTERS))
                for row in rows
            ]
    found = pa.chunked_array(failed).to_numpy()
    assert np.array_equal(found, np.array(expected, np.uint64))
    assert len(found) > 100 and len(np.unique(found)) > 2


def test_a_pattern_that_doubles_with_every_letter_elsewhere_ends():
    rule = [{"name": "a", "of": "answers", "not_matches": "(a+)+$"}]
    maker = TraitMaker(TraitRules.of(make_recipe({"sources": [{"path": "x"}], "filters": rule}).row_rules, 0))
    texts = ["a" * 2**20 + "b", "b" + "a" * 2**20]
    rows = [{"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]} for text in texts]
    files = [FileRow(json.dumps(row).encode(), None, 0) for row in rows]
    batch = read_batch(files, 0, first_line=0, schema="messages", columns={}, roles={})
    assert maker.make(batch, 0).column("failed").to_pylist() == [0, 1]
