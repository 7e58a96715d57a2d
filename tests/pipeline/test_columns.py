"""Columns of a recipe in a build: from rows, and joined from files by doc_id without making a document again."""

import copy
import json
import shutil
from itertools import count

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from column_rows import COLUMNS, NAMES, rows_of, values_of
from command_line import fields, run
from export.readers import datasets_rows
from fingerprint_oracle import recomputed
from packed_caches import table

from packer.audit.diff import diff
from packer.audit.verify import verify
from packer.errors import InputError, RecipeError, UsageError
from packer.export.run import export
from packer.pipeline import columns
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache
from packer.store.manifest import read_manifest

LENGTHS = [7, 12, 30, 5, 9, 16, 3, 22]
PACK = {"block_len": 16, "overlong": "split"}


def of_files(path):
    """The columns of rows, from a file."""
    return {
        group: {name: {**rule, "file": path.as_posix()} for name, rule in rules.items()}
        for group, rules in COLUMNS.items()
    }


@pytest.fixture
def built(starter, tmp_path):
    """Build rows of tokens without columns, or with some, and return the result."""
    rows = of_columns(rows_of(LENGTHS), ("input_ids", "labels"))
    rows.append(rows[1])  # a document that is there twice

    def make(given=rows, **options):
        usual = {"tokenizer": starter / "tokenizer", "pack": PACK, "fail_above": 1, "jobs": 1, "progress": None}
        return build(given, tmp_path / "cache", **usual, **options)

    return make


def side_rows(cache, *, pieces=1, seed=0):
    """A row for each piece of each document that differs from others, in an order of its own."""
    documents = {row["doc_id"]: row for row in table(cache, "documents", "train")[::-1]}
    made = []
    for doc_id, document in documents.items():
        row, tokens = document["row"], np.array_split(np.arange(document["length"]), pieces)
        parts = [part.tolist() for part in tokens if len(part)]
        made += [{"doc_id": doc_id, "start": part[0], **values_of(row, part)} for part in parts]
        made[-1]["reward"] = row / 4
    np.random.default_rng(seed).shuffle(made)
    return made


def write_side(path, rows, **types):
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: pa.array([row.get(name) for row in rows], types.get(name)) for name in names}
    pq.write_table(pa.table(columns), path, row_group_size=5)


def of_columns(rows, names=NAMES):
    """What rows, or the documents of a cache, have in their columns."""
    return [{name: row[name] for name in names} for row in rows]


def columns_of(cache, names=NAMES):
    return of_columns(table(cache, "documents", "train"), names)


def proved(cache):
    """Whether a cache is whole, and its rows make it again."""
    return verify(cache, level="full", sources=["/"], reencode=True, threads=1).ok


def rejected(cache):
    return [json.loads(line) for line in (cache / "rejected.jsonl").read_text("utf-8").splitlines()]


def strays(folder):
    """Files of shards that the manifest does not name."""
    named = {file.path for file in read_manifest(folder).stored}
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.arrow")} - named


def test_a_file_gives_the_values_that_rows_would_and_no_document_is_made_again(built, tmp_path):
    before = built()
    ids = table(tmp_path / "cache", "documents", "train")
    blocks = table(tmp_path / "cache", "blocks", "train")
    write_side(tmp_path / "side.parquet", side_rows(tmp_path / "cache", pieces=3))
    declared = of_files(tmp_path / "side.parquet")
    with pytest.raises(UsageError, match=r"rules that change|another recipe"):
        built(**declared)
    after = built(**declared, force=True)
    assert (after.num_partitions_built, after.num_partitions_reused) == (0, 1)
    expected = [{**values_of(row, range(length)), "reward": row / 4} for row, length in enumerate(LENGTHS)]
    assert columns_of(tmp_path / "cache") == [*expected, expected[1]]
    assert table(tmp_path / "cache", "blocks", "train") == blocks
    kept = table(tmp_path / "cache", "documents", "train")
    same = [name for name in ids[0] if name != "digest"]
    assert [[row[name] for name in same] for row in kept] == [[row[name] for name in same] for row in ids]
    assert after.manifest.content_fingerprint != before.manifest.content_fingerprint
    assert after.fingerprint == recomputed(tmp_path / "cache")
    assert proved(tmp_path / "cache")
    assert not built(**declared).built
    (tmp_path / "side.parquet").rename(tmp_path / "moved.parquet")
    moved = built(**of_files(tmp_path / "moved.parquet"))
    assert moved.fingerprint == after.fingerprint
    without = built(force=True)
    assert without.num_partitions_built == 0
    assert without.fingerprint == before.fingerprint and without.manifest.shards == before.manifest.shards


def test_values_of_rows_are_stored_and_tell_documents_apart(built, tmp_path):
    rows = rows_of(LENGTHS)
    rows += [rows[0], {**rows[0], "reward": 7}]
    result = built(rows, **COLUMNS)
    stored = table(tmp_path / "cache", "documents", "train")
    assert columns_of(tmp_path / "cache") == of_columns(rows)
    assert stored[0]["doc_id"] == stored[-2]["doc_id"] != stored[-1]["doc_id"]
    assert stored[0]["input_ids"] == stored[-1]["input_ids"]
    assert proved(tmp_path / "cache")
    assert verify(tmp_path / "cache", sources=["/"], reencode=True, sample=3, threads=1).ok
    again = built(rows, **COLUMNS, partition_bytes=2000, force=True)
    assert len(again.manifest.document_shards) > 1
    assert again.manifest.content_fingerprint == result.manifest.content_fingerprint


def test_rules_about_rows_and_columns_read_their_own_fields(built, tmp_path):
    rules = {"filters": [{"name": "good", "field": "reward", "min": 0.5}], "deduplicate": {"exact": "bytes"}}
    rows = rows_of(LENGTHS)
    result = built([*rows, rows[-1]], **COLUMNS, **rules)
    lines = rejected(tmp_path / "cache")
    assert [(line["row"], line["code"]) for line in lines] == [(0, "filtered"), (1, "filtered"), (8, "duplicate")]
    assert columns_of(tmp_path / "cache")[7] == of_columns(rows)[7]
    assert proved(tmp_path / "cache")
    built([*rows, rows[-1]], **rules, force=True)
    write_side(tmp_path / "side.parquet", side_rows(tmp_path / "cache"))
    built([*rows, rows[-1]], **of_files(tmp_path / "side.parquet"), **rules, force=True)
    assert columns_of(tmp_path / "cache")[7] == of_columns(rows)[7]
    assert proved(tmp_path / "cache")
    assert result.fingerprint != recomputed(tmp_path / "cache")


def test_both_kinds_stand_beside_each_other(built, tmp_path):
    rows = rows_of(LENGTHS)
    built(rows, document_columns=COLUMNS["document_columns"])
    write_side(tmp_path / "side.parquet", side_rows(tmp_path / "cache"))
    joined = of_files(tmp_path / "side.parquet")["token_columns"]
    both = {"token_columns": joined, "document_columns": COLUMNS["document_columns"]}
    assert built(rows, **both, force=True).num_partitions_built == 0
    assert columns_of(tmp_path / "cache") == of_columns(rows)
    assert proved(tmp_path / "cache")
    (tmp_path / "cache" / "blocks").rename(tmp_path / "lost")
    assert verify(tmp_path / "cache", threads=1).ok is False
    recipe = read_manifest(tmp_path / "cache").recipe
    build(recipe, tmp_path / "cache", repair=True, fail_above=1, progress=None)
    assert verify(tmp_path / "cache", level="full", threads=1).ok


WRONG_FILES = {
    "unknown document": (lambda rows: rows[3].update(doc_id=12), "no document has the doc_id 12"),
    "unknown token": (lambda rows: rows[3].update(start=40), "from token 40 on, but document {doc_id} has"),
    "before the first": (lambda rows: rows[3].update(start=-1), "from token -1 on, but document {doc_id} has"),
    "beyond all": (lambda rows: rows[3].update(start=2**63 - 1), "from token 9223372036854775807 on, but document"),
    "twice": (lambda rows: rows.append(rows[3]), "a value of at is given twice"),
    "no list": (lambda rows: [row.update(logp=1.0) for row in rows], "logp is double; expected lists"),
    "wide": (lambda rows: [row.update(at=row["top"]) for row in rows], "at: "),
    "narrow": (lambda rows: rows[3]["top"].__setitem__(0, [1, 2]), "top: "),
    "not a number": (lambda rows: rows[3]["logp"].__setitem__(0, float("nan")), "logp: a value is NaN"),
    "flags": (lambda rows: [row.update(at=[True] * len(row["at"])) for row in rows], "expected numbers, found bool"),
    "infinite": (lambda rows: rows[3]["logp"].__setitem__(0, float("-inf")), "logp: a value is NaN or beyond float32"),
    "large": (lambda rows: rows[3]["at"].__setitem__(0, 2**31), "at: "),
    "no doc_id": (lambda rows: [row.pop("doc_id") for row in rows], "it has no column doc_id"),
    "null doc_id": (lambda rows: rows[3].update(doc_id=None), "doc_id: expected integers"),
    "no value": (lambda rows: [row.update(reward=None) for row in rows], "reward: it has no value for any document"),
    "no column": (lambda rows: [row.pop("logp") for row in rows], "it has no column logp"),
    "a null in a list": (lambda rows: rows[3]["top"].__setitem__(0, [1, None, 2]), "top: a value is null"),
}


def test_a_file_that_is_wrong_is_refused_by_name_and_nothing_is_lost(built, tmp_path):
    before = built()
    whole = side_rows(tmp_path / "cache")
    for change, said in WRONG_FILES.values():
        rows = copy.deepcopy(whole)
        change(rows)
        write_side(tmp_path / "side.parquet", rows)
        with pytest.raises(InputError) as caught:
            built(**of_files(tmp_path / "side.parquet"), force=True)
        expected = said.format(doc_id=whole[3]["doc_id"])
        assert "side.parquet" in caught.value.message and expected in caught.value.message
        with Cache.open(tmp_path / "cache") as cache:
            assert cache.fingerprint == before.fingerprint
    assert verify(tmp_path / "cache", threads=1).ok and not built().built


def test_documents_that_were_made_before_a_file_was_refused_are_kept(built, starter, tmp_path):
    built()
    rows = side_rows(tmp_path / "cache")
    write_side(tmp_path / "side.parquet", [*rows, {**rows[0], "doc_id": 12}])
    source, other = next((tmp_path / "cache.rows").glob("*.jsonl")), tmp_path / "other"
    options = {"tokenizer": starter / "tokenizer", "pack": PACK, "fail_above": 1, "progress": None}
    with pytest.raises(InputError, match="no document has the doc_id 12"):
        build(source, other, **options, **of_files(tmp_path / "side.parquet"))
    assert not (other / "manifest.json").exists() and not [path for path in other.iterdir() if path.is_file()]
    write_side(tmp_path / "side.parquet", rows)
    assert build(source, other, **options, **of_files(tmp_path / "side.parquet")).num_partitions_built == 0
    assert columns_of(other)[2] == {**values_of(2, range(LENGTHS[2])), "reward": 0.5}


def test_without_start_a_row_has_all_tokens_of_its_document(built, tmp_path):
    built()
    rows = side_rows(tmp_path / "cache")
    for row in rows:
        del row["start"]
    rows[2]["logp"] = rows[2]["logp"][:-1]
    write_side(tmp_path / "side.parquet", rows)
    with pytest.raises(InputError, match=f"values of logp from token 0 on, but document {rows[2]['doc_id']} has"):
        built(**of_files(tmp_path / "side.parquet"), force=True)


@pytest.mark.parametrize("lacking", ["document", "token", "null", "number"])
def test_what_has_no_value_gets_what_is_declared_or_is_refused(built, tmp_path, lacking):
    built()
    rows = side_rows(tmp_path / "cache")
    doc_id, length = rows[2]["doc_id"], len(rows[2]["at"])
    if lacking == "document":
        del rows[2]
    elif lacking == "token":
        rows[2] |= {name: rows[2][name][:-1] for name in ("at", "logp", "top")}
    elif lacking == "null":
        rows[2] |= dict.fromkeys(("at", "logp", "top", "reward"))
    else:
        rows[2]["logp"] = [*rows[2]["logp"][:-1], None]
    write_side(tmp_path / "side.parquet", rows)
    declared = of_files(tmp_path / "side.parquet")
    built(**declared, force=True)
    (own,) = [row for row in table(tmp_path / "cache", "documents", "train") if row["doc_id"] == doc_id][:1]
    assert own["logp"][-1] == -9 and len(own["logp"]) == length
    assert own["logp"][0] == (-9 if lacking in ("document", "null") else rows[2]["logp"][0])
    assert (own["reward"] == -5) == (lacking in ("document", "null"))
    del declared["token_columns"]["logp"]["missing"]
    with pytest.raises(InputError, match=f"document {doc_id} has no logp|logp: a value is null"):
        built(**declared, force=True)


def test_documents_of_no_split_need_no_value_until_a_rule_lets_them_in(built, tmp_path):
    rows, rules = rows_of(LENGTHS), {"filters": [{"name": "good", "field": "reward", "min": 0.5}]}
    built(rows, **rules)
    good = [row for row in side_rows(tmp_path / "cache") if row["reward"] >= 0.5]
    write_side(tmp_path / "side.parquet", good, doc_id=pa.int64())
    declared = {"token_columns": {"at": {"kind": "int32", "file": (tmp_path / "side.parquet").as_posix()}}}
    built(rows, **rules, **declared, force=True)
    export(tmp_path / "cache", tmp_path / "out", to="datasets", unit="documents")
    assert [row["at"] for row in datasets_rows(tmp_path / "out")] == [row["at"] for row in rows[2:]]
    with pytest.raises(InputError, match=r"document -?\d+ has no at, or not one for each of its tokens"):
        built(rows, **declared, force=True)
    assert verify(tmp_path / "cache", threads=1).ok
    assert not built(rows, **rules, **declared).built
    assert not strays(tmp_path / "cache")


def test_an_unsigned_doc_id_names_the_document_of_the_same_bits(built, tmp_path):
    built()
    rows = side_rows(tmp_path / "cache")
    assert min(row["doc_id"] for row in rows) < 0
    unsigned = [{**row, "doc_id": row["doc_id"] % 2**64} for row in rows]
    write_side(tmp_path / "side.parquet", unsigned, doc_id=pa.uint64())
    built(**of_files(tmp_path / "side.parquet"), force=True)
    assert [row["reward"] for row in columns_of(tmp_path / "cache")[:-1]] == [row / 4 for row in range(len(LENGTHS))]


def test_caches_that_differ_in_a_file_of_values_have_other_columns_not_other_blocks(built, tmp_path):
    built()
    for name, seed in (("old", 0), ("new", 1)):
        write_side(tmp_path / "side.parquet", side_rows(tmp_path / "cache", seed=seed))
        built(**of_files(tmp_path / "side.parquet"), force=True)
        shutil.copytree(tmp_path / "cache", tmp_path / name)
    found = diff(tmp_path / "cache", tmp_path / "old")
    assert found.same_bytes is False and found.content_fingerprint[0] == found.content_fingerprint[1]
    rows = side_rows(tmp_path / "cache")
    rows[3]["reward"] = 99.0
    write_side(tmp_path / "side.parquet", rows)
    built(**of_files(tmp_path / "side.parquet"), force=True)
    found = diff(tmp_path / "old", tmp_path / "cache")
    assert found.meaning == "the same documents with other columns: different rules"


def test_a_build_that_was_stopped_while_it_joined_leaves_the_cache_and_goes_on(built, tmp_path, monkeypatch):
    built(partition_bytes=2000)
    write_side(tmp_path / "side.parquet", side_rows(tmp_path / "cache"))
    declared, real, number = of_files(tmp_path / "side.parquet"), columns.rewrite_documents, count()

    def stops(*args, **options):
        if next(number) == 1:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(columns, "rewrite_documents", stops)
    with pytest.raises(KeyboardInterrupt):
        built(**declared, partition_bytes=2000, force=True)
    assert verify(tmp_path / "cache", threads=1).ok
    assert built(**declared, partition_bytes=2000, force=True).num_partitions_built == 0
    assert proved(tmp_path / "cache") and not strays(tmp_path / "cache")


def test_a_file_whose_digest_is_another_is_refused(built, tmp_path):
    built()
    write_side(tmp_path / "side.parquet", side_rows(tmp_path / "cache"))
    declared = of_files(tmp_path / "side.parquet")
    built(**declared, force=True)
    write_side(tmp_path / "side.parquet", side_rows(tmp_path / "cache", seed=1))
    with pytest.raises(UsageError, match=r"token_columns\.at\.sha256"):
        built(**declared)
    declared["token_columns"]["at"]["sha256"] = "0" * 64
    with pytest.raises(InputError, match=r"side\.parquet: expected sha256 0000"):
        built(**declared, force=True)
    (tmp_path / "side.parquet").write_bytes(b"{}")
    del declared["token_columns"]["at"]["sha256"]
    with pytest.raises(InputError, match="read from Parquet or Arrow"):
        built(**declared, force=True)


WRONG_ROWS = [
    ({"at": [1, 2]}, "at: expected a list of 7 values as of tokens, found 2 of them"),
    ({"at": "long"}, "at: expected a list of 7 values as of tokens, found none"),
    ({"at": [0.5] * 7}, "at: "),
    ({"at": [2**31] * 7}, "at: "),
    ({"top": [[1, 2]] * 7}, "top: "),
    ({"top": [[1, 2, None]] * 7}, "top: a value is null"),
    ({"logp": [{}] * 7}, "logp: "),
    ({"logp": ["a"] * 7}, "logp: "),
    ({"reward": [1]}, "reward: "),
    ({"logp": ["a", *[1] * 6]}, "logp: "),
    ({"at": [1, True, *[1] * 5]}, "at: "),
    ({"at": [2**63] * 7}, "at: "),
    ({"at": [True] * 7}, "at: expected numbers, found bool"),
    ({"reward": {}}, "reward: "),
    ({"reward": "high"}, "reward: "),
    ({"reward": 1e39}, "reward: a value is NaN or beyond float32"),
]


def test_a_row_whose_value_is_wrong_is_rejected_and_says_why(built, tmp_path):
    rows = rows_of(LENGTHS)
    built([*rows, *({**rows[0], **wrong} for wrong, _ in WRONG_ROWS)], **COLUMNS)
    lines = rejected(tmp_path / "cache")
    for line, (wrong, said) in zip(lines, WRONG_ROWS, strict=True):
        assert line["code"] == "bad_column" and line["reason"].startswith(said), wrong
    assert len(table(tmp_path / "cache", "documents", "train")) == len(rows)


def test_a_row_without_a_value_is_rejected_only_if_nothing_stands_for_it(built, tmp_path):
    rows = rows_of(LENGTHS)
    (bare,) = of_columns(rows[:1], ("input_ids", "labels"))
    built([*rows[1:], bare], **COLUMNS)
    assert columns_of(tmp_path / "cache")[-1] == {"at": [-1] * 7, "logp": [-9] * 7, "top": [[-2] * 3] * 7, "reward": -5}
    built([*rows[1:], bare], **COLUMNS | {"document_columns": {"reward": {"kind": "float32"}}}, force=True)
    assert len(table(tmp_path / "cache", "documents", "train")) == len(rows) - 1


def test_a_cell_of_csv_is_the_number_it_says(built, tmp_path):
    (tmp_path / "rows.csv").write_text("prompt,completion,reward\nhello,there,0.5\nhi,you,\nho,ho,-25e-2\n")
    built(tmp_path / "rows.csv", document_columns=COLUMNS["document_columns"])
    assert columns_of(tmp_path / "cache", ["reward"]) == [{"reward": 0.5}, {"reward": -5}, {"reward": -0.25}]


def test_nan_in_a_table_is_a_null_as_in_every_column(built, tmp_path):
    rows = rows_of(LENGTHS)
    rows[1]["logp"][3] = rows[2]["reward"] = float("nan")
    built(pa.Table.from_pylist(rows), **COLUMNS)
    stored = columns_of(tmp_path / "cache")
    assert stored[1]["logp"][2:5] == [rows[1]["logp"][2], -9, rows[1]["logp"][4]]
    assert [each["reward"] for each in stored[:4]] == [0, 0.25, -5, 0.75]


def test_padding_of_a_row_takes_its_values_along_and_chats_have_none_of_tokens(built, tmp_path):
    row = rows_of([7])[0]
    padded = {name: [0, 0, *row[name], 0] for name in ("input_ids", "at", "logp")}
    padded |= {"labels": [-100, -100, *row["labels"], -100], "attention_mask": [0, 0, *[1] * 7, 0], "reward": 3}
    padded["top"] = [[0] * 3] * 2 + row["top"] + [[0] * 3]
    built([padded], **COLUMNS)
    assert columns_of(tmp_path / "cache") == [{**{name: row[name] for name in ("at", "logp", "top")}, "reward": 3}]
    chat = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "reward": 2}
    built([chat], document_columns=COLUMNS["document_columns"], force=True)
    assert columns_of(tmp_path / "cache", ["reward"]) == [{"reward": 2}]
    with pytest.raises(InputError, match="only rows that are tokenized already have values of tokens"):
        built([{**chat, "at": [1], "logp": [1], "top": [1]}], **COLUMNS, force=True)


@pytest.mark.parametrize("group", COLUMNS)
def test_a_column_of_a_field_that_no_row_has_is_refused_though_something_stands_for_none(built, group):
    absent = {name: {**rule, "field": "nope.x"} for name, rule in COLUMNS[group].items()}
    with pytest.raises(InputError, match=r"column '\w+': no row has a field 'nope\.x'"):
        built(rows_of(LENGTHS), **COLUMNS | {group: absent})


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"token_columns": {"labels": {"kind": "int32"}}}, "token_columns.labels: the name is taken"),
        ({group: {"a": {"kind": "int32"}} for group in COLUMNS}, "the name is taken"),
        ({"document_columns": {"a": {"kind": "int32", "width": 2}}}, "a width is for tokens"),
        ({"token_columns": {"a": {"kind": "int32", "missing": 0.5}}}, "expected a whole number of 32 bits"),
        ({"token_columns": {"a": {"kind": "float32", "missing": float("inf")}}}, "expected a finite number"),
        ({"token_columns": {"a": {"kind": "int32", "sha256": "0"}}}, "sha256 is of a file"),
        ({"token_columns": {"a": {"kind": "int64"}}}, "expected int32 | float32"),
        ({"media": {"images": "read"}, "token_columns": {"a": {"kind": "int32"}}}, "columns beside images"),
    ],
)
def test_a_column_that_cannot_be_is_refused(columns, said):
    with pytest.raises(RecipeError) as caught:
        make_recipe(columns)
    assert said in caught.value.message


def test_exports_have_the_columns(built, tmp_path):
    built(rows_of(LENGTHS), **COLUMNS)
    for unit in ("documents", "blocks"):
        export(tmp_path / "cache", tmp_path / unit, to="datasets", unit=unit)
    exported = export(tmp_path / "cache", tmp_path / "skyrl", to="skyrl")
    assert "left out: the columns at, logp, reward, top, which only --to datasets writes" in exported.notes
    documents, blocks = (datasets_rows(tmp_path / unit) for unit in ("documents", "blocks"))
    assert of_columns(documents) == columns_of(tmp_path / "cache")
    seen = 0
    for block in blocks:
        for t, at in enumerate(block["at"]):
            row, token = divmod(at, 1000)
            if at >= 0:
                own = values_of(row, [token])
                assert rows_of(LENGTHS)[row]["input_ids"][token] == block["input_ids"][t]
                assert [block["logp"][t], block["top"][t]] == [own["logp"][0], own["top"][0]]
                assert block["reward"][t] == row / 4
            seen += at >= 0
    assert seen == sum(LENGTHS)


def test_a_cache_without_columns_says_nothing_of_them(built, tmp_path):
    manifest = built().manifest
    assert '"joined"' not in (tmp_path / "cache" / "manifest.json").read_text("utf-8")
    assert msgspec.to_builtins(manifest)["recipe"].keys().isdisjoint({"token_columns", "document_columns"})


def test_a_document_is_shown_with_its_columns(built, tmp_path):
    built(rows_of(LENGTHS), **COLUMNS)
    document = table(tmp_path / "cache", "documents", "train")[1]
    shown = ["inspect", tmp_path / "cache", "--doc", document["doc_id"]]
    assert "\n   reward 0.25 · at of 12 tokens · logp of 12 tokens · top of 12 tokens\n" in run(*shown).stdout
    found = fields(*shown)["document"]
    assert (found["values"], found["token_columns"]) == ({"reward": 0.25}, ["at", "logp", "top"])
    built(force=True)
    found = fields("inspect", tmp_path / "cache", "--block", 0)["block"]["documents"]
    assert found and not any(each["values"] or each["token_columns"] for each in found)


def test_a_shard_without_documents_stays_as_it_is_and_has_no_column(built, tmp_path):
    rows = of_columns(rows_of(LENGTHS), ("input_ids", "labels"))
    untrained = {"input_ids": [1, 2], "labels": [-100, -100]}
    for name, own in (("rows", rows), ("untrained", [untrained])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    given = [tmp_path / "rows.jsonl", tmp_path / "untrained.jsonl"]
    before = built(given)
    write_side(tmp_path / "side.parquet", side_rows(tmp_path / "cache", pieces=1))
    after = built(given, **of_files(tmp_path / "side.parquet"), force=True)
    assert [shard.joined for shard in after.manifest.document_shards] == [True, False]
    assert after.manifest.document_shards[1] == before.manifest.document_shards[1]
    assert proved(tmp_path / "cache")
