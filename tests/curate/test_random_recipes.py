"""Builds by random rules about rows: every row is in one place, and says why."""

import json

import numpy as np
import pytest
import twins
from compared_rows import rows_of_split, some_rows, with_copies
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.audit.verify import verify
from packer.errors import NothingKeptError
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.rejections import ROW_REASONS
from packer.store.manifest import check_conservation, read_manifest
from packer.store.row_tables import read_selection

FILTERS = [
    {"name": "answers", "of": "answers", "chars": {"min": 60}},
    {"name": "prompts", "of": "prompts", "not_matches": "word1[0-5]\\b"},
    {"name": "tokens", "tokens": {"max": 170}},
    {"name": "messages", "messages": {"min": 2}},
    {"name": "score", "field": "meta.score", "min": 0.2, "max": 9},
    {"name": "kind", "field": "kind", "in": ["a", "b", 7]},
]
NEAR = st.fixed_dictionaries(
    {"jaccard": st.sampled_from([0.5, 0.8])}, optional={"of": st.just("prompt"), "ngram": st.sampled_from([1, 2])}
)
LEAKAGE = st.fixed_dictionaries({"near": st.sampled_from([0.5, 0.8])}, optional={"of": st.just("conversation")})
BY_HASH = st.fixed_dictionaries(
    {"shares": st.fixed_dictionaries({"validation": st.sampled_from([0.1, 0.6])}, optional={"test": st.just(0.2)})},
    optional={"group": st.just("meta.user"), "seed": st.integers(0, 9), "leakage": LEAKAGE},
)
BY_TIME = st.fixed_dictionaries(
    {"time": st.just("at"), "unit": st.just("s"), "cutoffs": st.just({"validation": "1970-01-01T00:02:00Z"})},
    optional={"group": st.just("meta.user"), "leakage": LEAKAGE},
)
SOURCE = st.fixed_dictionaries(
    {},
    optional={
        "where": st.just({"kind": {"not_in": ["c"]}}),
        "take": st.fixed_dictionaries({"rows": st.integers(1, 60), "order": st.sampled_from(["hash", "first"])}),
        "split": st.just("validation"),
    },
)
RULES = st.fixed_dictionaries(
    {"sources": st.tuples(SOURCE, SOURCE)},
    optional={
        "filters": st.lists(st.sampled_from(FILTERS), max_size=3, unique_by=lambda each: each["name"]),
        "decontaminate": st.fixed_dictionaries({}, optional={"cover": st.just(0.2), "ngram": st.sampled_from([3, 8])}),
        "deduplicate": st.fixed_dictionaries(
            {"exact": st.sampled_from(["bytes", "normalized"])}, optional={"near": NEAR}
        ),
        "split": BY_HASH | BY_TIME,
        "pack": st.sampled_from([{"mode": "none"}, {"block_len": 256}, {"block_len": 64, "overlong": "split"}]),
    },
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two files of rows of every kind, a benchmark, a tokenizer."""
    folder = tmp_path_factory.mktemp("random")
    twins.byte_level(folder / "tokenizer", template=twins.CHATML)
    rows = with_copies(some_rows(70))
    for i, row in enumerate(rows):
        row |= {
            "meta": {"user": [i % 9, str(i % 9), None, " "[i % 2 :]][i % 4], "score": i / 50},
            "kind": "abc7"[i % 4],
            "at": i * 2,
        }
    rows[11] = {"messages": []}
    rows[12].pop("meta")
    rows[13]["at"] = "then"
    for name, own in (("one", rows[:50]), ("two", rows[50:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own), "utf-8")
    asked = [row["messages"][0]["content"] for row in rows[20:23]]
    (folder / "bench.jsonl").write_text("".join(json.dumps({"question": text}) + "\n" for text in asked), "utf-8")
    return folder


@pytest.mark.slow
@settings(max_examples=80)
@given(rules=RULES)
def test_whatever_the_rules_are_every_row_is_in_a_split_or_listed_with_its_reason(place, rules):
    values = {"tokenizer": str(place / "tokenizer"), "engine": "reference", "partition_bytes": 8192, **rules}
    values["sources"] = [
        {"path": str(place / f"{name}.jsonl"), **own}
        for name, own in zip(("one", "two"), rules["sources"], strict=True)
    ]
    if "decontaminate" in rules:
        values["decontaminate"] = rules["decontaminate"] | {"against": [{"path": str(place / "bench.jsonl")}]}
    try:
        build(make_recipe(values), place / "cache", jobs=1, force=True, fail_above=1)
    except NothingKeptError:
        return
    manifest = read_manifest(place / "cache")
    check_conservation(manifest)
    lines = [json.loads(line) for line in (place / "cache" / "rejected.jsonl").read_text("utf-8").splitlines()]
    found = [(line["source"], line["row"]) for line in lines if "document" not in line or line["code"] in ROW_REASONS]
    splits = {shard.split for shard in manifest.shards} if manifest.selection is None else manifest.selection.splits
    for split in splits:
        found += [(path, row) for path, own in rows_of_split(place / "cache", split).items() for row in own]
    assert sorted(found) == [(entry.path, row) for entry in manifest.inputs for row in range(entry.num_rows)]
    assert verify(place / "cache", threads=1).findings == ()
    if manifest.selection is not None:
        rows = read_selection(place / "cache", manifest.selection)
        lost = np.flatnonzero((rows.kept >= 0) & (rows.reason != 1 + ROW_REASONS.index("contaminated")))
        winner = rows.reason[rows.kept[lost]]
        assert ((winner == 0) | (winner > rows.reason[lost])).all(), "a row loses to one that is left at that step"
