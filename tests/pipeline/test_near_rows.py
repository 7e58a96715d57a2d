"""Builds that leave out near duplicates, benchmark questions and what leaks from held-out rows."""

import json
import random

import pytest
import row_likeness
import twins
from chats import chat
from packed_again import packed_again

from packer.audit.check import check
from packer.audit.verify import verify
from packer.errors import InputError
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache

WORDS = [f"word{i}" for i in range(500)]
SPLIT = {"shares": {"validation": 0.3}, "leakage": {"near": 0.7}}


def said(row):
    return [message["content"] for message in row["messages"]]


def some_rows():
    """Chats; some again with another word, some with nearly the same prompt, some with a question of the benchmark."""
    chance, rows = random.Random(11), []
    for _ in range(120):
        question, answer = ([*chance.choices(WORDS, k=20)] for _ in range(2))
        rows.append(chat(" ".join(question), " ".join(answer)))
        kind = chance.randrange(5)
        if kind == 0:
            rows.append(chat(" ".join([*question[:-1], "else"]).upper(), " ".join(answer)))
        elif kind == 1:
            rows.append(chat(" ".join(["else", *question[1:]]), " ".join(chance.choices(WORDS, k=20))))
    chance.shuffle(rows)
    return rows


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with rows, a benchmark of which six questions are among them, and a cache by the rules."""
    folder = tmp_path_factory.mktemp("near")
    twins.byte_level(folder / "tokenizer", template=twins.CHATML)
    rows = some_rows()
    questions = [f"Well, {said(row)[0]}" for row in rows[:6]] + ["Short?", " ".join(WORDS[:12])]
    (folder / "bench.jsonl").write_text("".join(json.dumps({"question": each}) + "\n" for each in questions), "utf-8")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    build(recipe_of(folder), folder / "cache", jobs=1)
    return folder


def recipe_of(folder, *overrides, **keys):
    values = {"sources": [{"path": str(folder / "rows.jsonl")}], "tokenizer": str(folder / "tokenizer")}
    values |= {"engine": "reference", "partition_bytes": 2**16, "pack": {"block_len": 2048}}
    against = [{"path": str(folder / "bench.jsonl"), "name": "bench"}]
    rules = {"deduplicate": {"near": {"jaccard": 0.8}}, "decontaminate": {"against": against}, "split": SPLIT}
    return make_recipe({**values, **rules, **keys}, overrides)


def left_out(cache):
    lines = [json.loads(line) for line in (cache / "rejected.jsonl").read_text("utf-8").splitlines()]
    return {line["row"]: (line["code"], line["reason"]) for line in lines}


def splits(cache):
    with Cache.open(cache) as opened:
        return {name: set(opened.documents(name).file_rows().tolist()) for name in opened.splits("documents")}


def test_rows_are_left_out_as_literal_rules_say(built):
    rows = [json.loads(line) for line in (built / "rows.jsonl").read_text("utf-8").splitlines()]
    questions = [json.loads(line)["question"] for line in (built / "bench.jsonl").read_text("utf-8").splitlines()]
    found, split = left_out(built / "cache"), splits(built / "cache")
    codes = {code: {row for row, (own, _) in found.items() if own == code} for code, _ in found.values()}
    held = row_likeness.hits(questions, [said(row) for row in rows], 8, 5, 0.5)
    assert codes["contaminated"] == set(held) and len(held) >= 6
    assert all(f"question {max(held[row], key=held[row].get)} of bench" in found[row][1] for row in held)
    rest = [number for number in range(len(rows)) if number not in held]
    near = row_likeness.dropped([" ".join(said(rows[number])) for number in rest], 3, 0.8)
    assert codes["near_duplicate"] == {rest[row] for row in near} and len(near) > 5
    for row, (kept, jaccard) in near.items():
        assert f"rows.jsonl row {rest[kept]}, {jaccard:.3f} alike" in found[rest[row]][1]
    grams = [row_likeness.shingles(said(row)[0], 3) for row in rows]
    held_out = [grams[row] for row in split["validation"]]
    rest = split["train"] | codes["leaks"]
    leaking = {row for row in rest if any(row_likeness.jaccard(grams[row], each) >= 0.7 for each in held_out)}
    assert codes["leaks"] == leaking and leaking


def test_a_cache_with_a_split_and_its_leaks_left_out_passes_and_verifies(built):
    report = check(built / "cache", sources=["/"], near=True)
    assert report.ok, [each for each in report.findings if each.level == "error"]
    assert verify(built / "cache", level="full").ok


def test_rows_divided_at_random_fail(built, tmp_path):
    rows = (built / "rows.jsonl").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "train.jsonl").write_text("".join(rows[40:]), "utf-8")
    (tmp_path / "validation.jsonl").write_text("".join(rows[:40]), "utf-8")
    sources = [{"path": str(tmp_path / f"{name}.jsonl"), "split": name} for name in ("train", "validation")]
    plain = {"decontaminate": None, "deduplicate": None, "split": None}
    build(recipe_of(built, sources=sources, **plain), tmp_path / "cache", jobs=1)
    report = check(tmp_path / "cache", sources=["/"], near=True)
    assert {each.code for each in report.findings if each.level == "error"} == {"near_between_splits"}
    build(recipe_of(built, sources=sources, **plain | {"split": {"leakage": {}}}), tmp_path / "other", jobs=1)
    # A validation file of one's own keeps train free of its copies.
    assert check(tmp_path / "other", sources=["/"], near=True).ok


def test_another_threshold_needs_no_reading(built, tmp_path):
    packed_again(built / "cache", tmp_path / "packed", {}, ["deduplicate.near.jaccard=0.95"])
    build(recipe_of(built, "deduplicate.near.jaccard=0.95"), tmp_path / "built", jobs=1)
    assert left_out(tmp_path / "packed") == left_out(tmp_path / "built") != left_out(built / "cache")


def test_a_changed_benchmark_makes_another_cache_and_an_unchanged_one_makes_none(built, tmp_path):
    assert not build(recipe_of(built), built / "cache", jobs=1).built
    (tmp_path / "bench.jsonl").write_text('{"question": "Is anything here at all?"}\n', "utf-8")
    other = {"against": [{"path": str(tmp_path / "bench.jsonl")}]}
    build(recipe_of(built, decontaminate=other), tmp_path / "cache", jobs=1)
    assert "contaminated" not in {code for code, _ in left_out(tmp_path / "cache").values()}
    pinned = {"against": [{"path": str(tmp_path / "bench.jsonl"), "sha256": "0" * 64}]}
    with pytest.raises(InputError, match="expected sha256 0000"):
        build(recipe_of(built, decontaminate=pinned), tmp_path / "third", jobs=1)


@pytest.mark.parametrize(
    ("lines", "columns", "said", "hint"),
    [
        ('{"qestion": "1?", "answer": "2"}\n', {"question": "question"}, "no column 'question'", "qestion"),
        ('{"qestion": "1?", "answer": "2"}\n', {}, "none of the columns `question`", "qestion"),
        ('{"question": "1?"}\n{"question": 7}\n', {}, "row 1: expected a text", ""),
    ],
)
def test_a_benchmark_without_its_column_stops_the_build_before_it_begins(lines, columns, said, hint, built, tmp_path):
    (tmp_path / "bench.jsonl").write_text(lines, "utf-8")
    wrong = {"against": [{"path": str(tmp_path / "bench.jsonl"), "columns": columns}]}
    with pytest.raises(InputError, match=said) as caught:
        build(recipe_of(built, decontaminate=wrong), tmp_path / "cache", jobs=1)
    assert hint in str(caught.value.hint)
    assert not (tmp_path / "cache" / "documents").exists()
