"""`check`: which rows a cache has, against literal counts over its input files."""

import re
from functools import partial

import pytest
import row_likeness
import twins
from compared_rows import chat, counts, levels, prompt, some_rows, with_copies
from followed_steps import write

from packer.audit import check as checks
from packer.pipeline.from_python import build
from packer.pipeline.messages.build_result import row_report
from packer.recipe.recipe import make_recipe
from packer.store.manifest import read_manifest

check = partial(checks.check, sources=["/"])


class Caches:
    """Builds caches of files of rows in a folder."""

    def __init__(self, folder):
        self.folder = folder
        twins.byte_level(folder / "tokenizer", template=twins.CHATML)

    def write(self, name, rows):
        return write(self.folder / f"{name}.jsonl", rows)

    def build(self, *, partition_bytes=2**20, rules=(), force=False, **splits):
        sources = [{"path": str(self.write(split, rows)), "split": split} for split, rows in splits.items()]
        recipe = {"sources": sources, "tokenizer": str(self.folder / "tokenizer"), "engine": "reference"}
        recipe |= {"pack": {"mode": "none"}, "partition_bytes": partition_bytes, **dict(rules)}
        build(make_recipe(recipe), self.folder / "cache", jobs=1, force=force)
        return self.folder / "cache"


@pytest.fixture
def caches(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "FEW_ROWS", 20)  # with fewer rows than a real check asks for, builds are quick
    return Caches(tmp_path)


def test_counts_are_those_of_a_literal_comparison(caches):
    rows = with_copies(some_rows(130))
    held, learned = rows[:50], rows[50:]
    found = check(caches.build(partition_bytes=2**15, train=learned, validation=held), near=True)
    grams = [row_likeness.shingles(prompt(row), 3) for row in learned]
    talks = [row_likeness.shingles(f"{prompt(row)} {row['messages'][1]['content']}", 3) for row in learned]
    asked = {" ".join(prompt(row).lower().split()) for row in learned}
    expected = {
        "copies_between_splits": sum(row in learned for row in held),
        "prompts_between_splits": sum(" ".join(prompt(row).lower().split()) in asked for row in held),
        "near_between_splits": sum(
            any(row_likeness.jaccard(row_likeness.shingles(prompt(row), 3), each) >= 0.8 for each in grams)
            for row in held
        ),
        "copies_within_splits": sum(row in part[:i] for part in (held, learned) for i, row in enumerate(part)),
        "near_within_splits": sum(
            any(row_likeness.jaccard(talks[i], talks[j]) >= 0.8 for j in range(i)) for i in range(len(learned))
        ),
    }
    assert {code: counts(found)[code] for code in expected} == expected
    assert 0 < expected["copies_between_splits"] < expected["prompts_between_splits"] < expected["near_between_splits"]
    assert all(expected.values()) and not found.ok


def test_rows_that_share_nothing_pass(caches):
    rows = some_rows(60)
    report = check(caches.build(train=rows[:35], validation=rows[35:]), near=True)
    assert report.ok and set(levels(report).values()) == {"ok"}


def test_a_few_copies_are_noted_and_not_called_fine(caches):
    rows = some_rows(150)
    report = check(caches.build(train=[*rows, rows[7]]), near=True)
    assert report.ok and levels(report)["copies_within_splits"] == levels(report)["near_within_splits"] == "note"


def test_one_copy_in_a_held_out_split_fails(caches):
    rows = some_rows(220)
    report = check(caches.build(train=rows[:100], validation=[*rows[100:], rows[7]]))
    (copies,) = [each for each in report.findings if each.code == "copies_between_splits"]
    assert copies.level == "error" and copies.message == "1 of 121 rows of validation: also in train"
    places = [(each.label.split()[0], each.label.rpartition(":")[2]) for each in copies.examples]
    assert places == [("validation", "120"), ("train", "7")]
    assert {each.text for each in copies.examples} == {"\n".join(each["content"] for each in rows[7]["messages"])}
    assert levels(report)["prompts_between_splits"] == "warning"  # 1 of 121 is no measurable share


def test_held_out_splits_are_compared_with_what_is_learned_alone(caches):
    rows = some_rows(99)
    held = {"validation": [*rows[:33], rows[45]], "test": [*rows[66:], rows[3], rows[48], rows[51]]}
    report = check(caches.build(train=rows[33:66], **held))
    (found,) = [each.message for each in report.findings if each.code == "copies_between_splits"]
    expected = "1 of 34 rows of validation: also in train; 2 of 36 rows of test: also in train"
    assert found == expected


def test_a_split_to_train_on_by_another_name_is_told_to_be_no_train_to_the_rules(caches):
    """Rules take it for held out, so that neither its leaks nor its copies would go."""
    rows = some_rows(30)
    splits = {"train_sft": rows, "test_sft": rows[:5]}
    report = check(caches.build(**splits))
    (found,) = [each for each in report.findings if each.code == "copies_between_splits"]
    assert found.count == 5 and "sources.split: train" in found.hint
    rules = {"split": {"leakage": {}}}
    cache = caches.build(rules=rules, force=True, **splits)
    assert any("split.leakage" in warning for warning in row_report(cache, read_manifest(cache)).warnings)
    cache = caches.build(rules=rules, force=True, train=rows, test=rows[:5])
    assert row_report(cache, read_manifest(cache)).warnings == () and check(cache).ok


def test_a_prompt_of_two_words_is_no_leak(caches):
    rows = some_rows(90)
    greetings = [chat("Hello there", prompt(row)) for row in rows[:4]]
    cache = caches.build(train=[*rows[4:45], *greetings[:2]], validation=[*rows[45:], *greetings[2:]])
    report = check(cache, near=True)
    assert levels(report)["prompts_between_splits"] == levels(report)["near_between_splits"] == "ok"


def test_the_largest_split_is_learned_where_none_is_called_train(caches):
    rows = some_rows(99)
    report = check(caches.build(dev=rows[:33], main=[*rows[33:], rows[3]]))
    assert "1 of 33 rows of dev: also in main" in [each.message for each in report.findings]


def test_rejected_rows_are_no_rows(caches):
    rows = some_rows(70)
    empty = chat(prompt(rows[3]), "")
    report = check(caches.build(train=rows[:35], validation=[*rows[35:], empty]))
    assert counts(report)["prompts_between_splits"] == 0


def test_rows_of_ids_have_no_words_to_compare(caches):
    rows = [{"input_ids": [5, 6, 7 + i], "labels": [-100, 6, 7 + i]} for i in range(120)]
    report = check(caches.build(train=[*rows[:60], rows[3]], validation=[*rows[60:], rows[5]]), near=True)
    assert levels(report)["near_copies"] == "skipped"
    assert counts(report)["copies_between_splits"] == counts(report)["copies_within_splits"] == 1


def test_rows_are_read_with_the_roles_and_columns_of_their_source(caches):
    rows = some_rows(40)
    for row in rows:
        row["messages"][0]["role"] = "asker"
    renamed = [{"talk": row["messages"]} for row in rows]
    source = {"path": str(caches.folder / "train.jsonl"), "roles": {"asker": "user"}, "columns": {"messages": "talk"}}
    cache = caches.build(rules={"sources": [source]}, train=[*renamed, renamed[4]])
    assert counts(check(cache))["copies_within_splits"] == 1


def test_without_an_input_the_rest_is_checked_and_the_loss_is_named(caches):
    rows = some_rows(99)
    cache = caches.build(train=rows[:33], validation=rows[33:66], test=[*rows[66:], rows[15]])
    (caches.folder / "validation.jsonl").write_text("{}\n", "utf-8")
    report = check(cache)
    assert levels(report)["inputs"] == "warning" and counts(report)["copies_between_splits"] == 1
    (caches.folder / "train.jsonl").unlink()
    report = check(cache, near=True)
    assert levels(report)["copies_between_splits"] == levels(report)["near_between_splits"] == "skipped"
    (caches.folder / "test.jsonl").unlink()
    report = check(cache)
    assert levels(report)["inputs"] == "skipped" and "copies_between_splits" not in levels(report)
    assert report.ok


def test_a_source_written_from_templates_is_named(caches):
    rows = some_rows(60)
    frame = " ".join(map(prompt, rows[:3]))
    made = [chat(f"{frame} and number {i}?", prompt(rows[3])) for i in range(40)]
    paths = [caches.write("free", rows), caches.write("made", made)]
    report = check(caches.build(rules={"sources": [{"path": str(path)} for path in paths]}), near=True)
    (found,) = [each for each in report.findings if each.code == "near_within_splits"]
    assert found.level == "warning" and re.search("39 of 40 rows of .*made.jsonl:", found.message)


def test_without_sources_no_input_is_read_and_nothing_is_said_of_it(caches):
    rows = some_rows(99)
    cache = caches.build(train=rows[:50], validation=[*rows[50:], rows[3]])
    report = checks.check(cache, near=True)
    assert [each.level for each in report.findings if each.code == "inputs"] == ["skipped"]
    assert "copies_between_splits" not in levels(report)
