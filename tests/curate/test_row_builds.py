"""Builds whose recipe says which rows: what is in the cache, what is made again, what is found."""

import hashlib
import json
import random
import shutil
from collections import Counter
from itertools import pairwise

import compared_rows
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compared_rows import prompt, rows_of_split, some_rows, with_copies
from flipped_bits import flip
from packed_again import packed_again
from packed_caches import table
from single_documents import read_document
from watched_builds import Notes, digests
from xxhash import xxh3_128_hexdigest

import packer
from packer.audit.preview import preview
from packer.audit.stats import stats
from packer.audit.verify import verify
from packer.audit.view import view_row
from packer.curate import near
from packer.errors import CheckError, InputError, NothingKeptError, RecipeError
from packer.export.run import export
from packer.pipeline import documents, run, selecting
from packer.pipeline.from_python import build
from packer.pipeline.workers import executor
from packer.recipe.recipe import make_recipe, to_json
from packer.source import detect
from packer.store.cache import Cache
from packer.store.manifest import read_manifest, write_manifest

RULES = {
    "filters": [
        {"name": "short", "of": "answers", "chars": {"min": 3}},
        {"name": "long", "tokens": {"max": 60}},
    ],
    "deduplicate": {"exact": "normalized"},
    "split": {"group": "meta.user", "shares": {"validation": 0.3, "test": 0.2}},
}


def chat(i, *, question=None, answer=None, **fields):
    messages = [
        {"role": "user", "content": question or f"What is {i % 30} and {i % 4}?"},
        {"role": "assistant", "content": answer or f"It is {i % 30}{i % 4}."},
    ]
    return {"messages": messages, "meta": {"user": i % 12}, "score": i / 100, **fields}


@pytest.fixture(scope="module")
def rows():
    made = [chat(i) for i in range(90)]
    made[3] = chat(3, answer="no")
    made[5] = chat(5, answer="word " * 80)
    made[7] = {"messages": [{"role": "user", "content": "and?"}]}
    return made


@pytest.fixture(scope="module")
def asked(rows, starter, tmp_path_factory):
    """Plain values of a recipe with rules, of a file in several partitions."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "a.jsonl").write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    sources = [{"path": str(folder / "a.jsonl"), "where": {"score": {"min": 0.02}}}]
    return {
        "sources": sources,
        "tokenizer": str(starter / "tokenizer"),
        "partition_bytes": 24000,
        "pack": {"block_len": 128},
        **RULES,
    }


@pytest.fixture(scope="module")
def cache(asked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "cache"
    build(make_recipe(asked), folder, jobs=1)
    return folder


def without_rules(values):
    plain = {key: value for key, value in values.items() if key not in RULES}
    return plain | {"sources": [{"path": source["path"]} for source in values["sources"]]}


def test_each_row_is_in_a_split_or_listed_with_its_rule(cache, rows):
    """Read by Arrow and JSON alone: what is left of a row is what the rules say of it."""
    lines = [json.loads(line) for line in (cache / "rejected.jsonl").read_text("utf-8").splitlines()]
    codes = {line["row"]: line["code"] for line in lines}
    reasons = {line["row"]: line["reason"] for line in lines}
    manifest = read_manifest(cache)
    in_blocks = {split: set() for split in manifest.selection.splits}
    texts = {row["doc_id"]: row["row"] for row in table(cache, "documents", "train")}
    assert len(texts) < len(rows), "some rows are copies"
    for split, found in in_blocks.items():
        found.update(doc for block in table(cache, "blocks", split) for doc in block["doc_ids"])
    listed = {split: rows_of_split(cache, split) for split in in_blocks}
    own = {split: [row for numbers in found.values() for row in numbers] for split, found in listed.items()}
    assert sorted([*codes, *(row for numbers in own.values() for row in numbers)]) == list(range(len(rows)))
    assert codes[0] == codes[1] == "filtered" and "where.score" in reasons[1]
    assert codes[3] == "filtered" and "filter short" in reasons[3]
    assert codes[5] == "filtered" and "filter long" in reasons[5]
    assert codes[7] == "nothing_trained"
    assert codes[62] == "duplicate" and "row 2" in reasons[62]
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not in_blocks[one] & in_blocks[other]
        assert not {rows[row]["meta"]["user"] for row in own[one]} & {rows[row]["meta"]["user"] for row in own[other]}
    counts = Counter(codes.values())
    totals = manifest.totals
    assert {code: cut.documents for code, cut in totals.cut.items()} == {
        code: counts[code] for code in ("filtered", "duplicate")
    }
    assert totals.kept == len(rows) - 1 and totals.packed == sum(map(len, own.values()))


@pytest.fixture(scope="module")
def alike(asked, tmp_path_factory):
    """A recipe whose rows have copies, near copies and a template in common, in several partitions."""
    free = with_copies(some_rows(45))
    frame = " ".join(prompt(row) for row in free[:3])
    rows = [*free, *(compared_rows.chat(f"{frame} and number {i}?", prompt(free[i])) for i in range(9))]
    path = tmp_path_factory.mktemp("alike") / "alike.jsonl"
    path.write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    rules = {
        "deduplicate": {"exact": "normalized", "near": {"jaccard": 0.7, "of": "prompt"}},
        "split": {"shares": {"validation": 0.3, "test": 0.2}, "leakage": {"near": 0.5, "of": "conversation"}},
    }
    return {key: value for key, value in asked.items() if key not in RULES} | rules | {"sources": [{"path": str(path)}]}


def test_a_text_of_nothing_is_no_group(starter, tmp_path):
    """All rows whose exporter wrote "" for a missing user would be one user, and on one side of every split."""
    rows = [chat(i, meta={"user": ["ann", "", " ", "bob"][i % 4]}) for i in range(20)]
    split = {"group": "meta.user", "shares": {"validation": 0.5}}
    packer.build(rows, tmp_path / "cache", tokenizer=str(starter / "tokenizer"), split=split)
    lines = (tmp_path / "cache" / "rejected.jsonl").read_text("utf-8").splitlines()
    assert Counter(json.loads(line)["code"] for line in lines) == {"no_group": 10}


@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_workers_and_the_order_of_partitions_change_no_byte(num_workers, alike, tmp_path, monkeypatch):
    run_tasks = executor.run_tasks

    def shuffled(make, tasks, *, jobs):
        tasks = list(tasks)
        numbers = random.Random(3).sample(range(len(tasks)), len(tasks))
        for place, result in run_tasks(make, [tasks[number] for number in numbers], jobs=jobs):
            yield numbers[place], result

    build(make_recipe(alike), tmp_path / "one", jobs=1)
    codes = {json.loads(line)["code"] for line in (tmp_path / "one" / "rejected.jsonl").read_text().splitlines()}
    assert {"near_duplicate", "duplicate"} <= codes and len(read_manifest(tmp_path / "one").selection.traits) > 2
    monkeypatch.setattr(executor, "run_tasks", shuffled)
    build(make_recipe(alike), tmp_path / "shuffled", jobs=num_workers)
    assert digests(tmp_path / "one") == digests(tmp_path / "shuffled")


def test_verify_and_readers_follow_the_selection(cache, tmp_path):
    assert verify(cache, level="full", sources=["/"], reencode=True, threads=1).findings == ()
    found = stats(cache)
    by_split = {split.split: split for split in found.splits}
    with Cache.open(cache) as opened:
        for name, split in by_split.items():
            documents = opened.documents(name)
            assert len(documents) == split.documents > 0
            every = [read_document(documents, i) for i in range(len(documents))]
            assert [each.doc_id for each in every] == documents.doc_ids().tolist()
            assert [each.length for each in every] == documents.lengths().tolist()
            assert [each.num_trained for each in every] == documents.num_trained().tolist()
            first_row = {shard.path: shard.first_row for shard in documents.shards}
            assert [first_row[each.path] + each.row for each in every] == documents.origins()[1].tolist()
            columns = documents.columns()
            for i, each in enumerate(every):
                start = columns.start[i]
                ids = columns.input_ids[columns.chunk[i]][start : start + columns.length[i]]
                assert np.array_equal(ids, each.input_ids)
                assert documents.find(each.doc_id) == i
            offsets, starts, ends = documents.runs()
            assert [(starts[a:b].tolist(), ends[a:b].tolist()) for a, b in pairwise(offsets)] == [
                (each.span_start.tolist(), each.span_end.tolist()) for each in every
            ]
            with pytest.raises(IndexError):
                documents.locate(np.array([-1]))
            with pytest.raises(IndexError):
                documents.locate(np.array([len(documents)]))
        row = view_row(opened, "a.jsonl", 62)
        assert {document.split for document in row.documents} == {""} and row.rejected[0].code == "duplicate"
    exported = export(cache, tmp_path / "out", to="datasets")
    assert {each.split: each.num_rows for each in exported.splits} == {s: by_split[s].documents for s in by_split}


def test_nothing_asked_names_no_rule(asked, tmp_path):
    build(make_recipe(without_rules(asked)), tmp_path / "plain", jobs=1)
    text = (tmp_path / "plain" / "manifest.json").read_text("utf-8")
    assert not (tmp_path / "plain" / "rows").exists()
    for word in ("filters", "deduplicate", "selection", "where", "take", '"part"'):
        assert word not in text
    assert "split" not in to_json(make_recipe(without_rules(asked)))


def test_another_rule_tokenizes_nothing_and_another_tokenizer_makes_no_traits(asked, starter, tmp_path, monkeypatch):
    build(make_recipe(without_rules(asked)), tmp_path / "cache", jobs=1)
    first = build(make_recipe(asked), tmp_path / "cache", jobs=1, force=True)
    assert first.num_partitions_built == 0 and first.built
    before = [each.key for each in first.manifest.selection.traits]
    other = asked | {"filters": [{"name": "short", "of": "answers", "chars": {"min": 6}}]}
    second = build(make_recipe(other), tmp_path / "cache", jobs=1, force=True)
    assert second.num_partitions_built == 0
    assert [each.key for each in second.manifest.selection.traits] != before

    shutil.copytree(starter / "tokenizer", tmp_path / "tokenizer")
    template = (tmp_path / "tokenizer" / "chat_template.jinja").read_text("utf-8")
    (tmp_path / "tokenizer" / "chat_template.jinja").write_text("{# other #}" + template, "utf-8")

    def no_traits(*_):
        raise AssertionError("traits are made again")

    monkeypatch.setattr("packer.curate.traits.TraitMaker.make", no_traits)
    third = build(
        make_recipe(other | {"tokenizer": str(tmp_path / "tokenizer")}), tmp_path / "cache", jobs=1, force=True
    )
    assert third.num_partitions_built == len(before)
    assert third.manifest.selection.traits == second.manifest.selection.traits


@pytest.mark.parametrize("names_versions", [True, False])
def test_traits_by_another_version_are_made_again(names_versions, asked, tmp_path, monkeypatch):
    """The tables of Unicode, for example; caches built before versions were recorded have traits of an unknown one."""
    values = asked | {"deduplicate": {"near": {}}}
    before = build(make_recipe(values), tmp_path / "cache", jobs=1).manifest
    assert not build(make_recipe(values), tmp_path / "cache", jobs=1).built
    if names_versions:
        monkeypatch.setattr("unicodedata.unidata_version", "99")
    else:
        versions = {name: version for name, version in before.versions.items() if name != "packer_traits"}
        write_manifest(tmp_path / "cache", msgspec.structs.replace(before, versions=versions))
    assert any(
        "versions of traits" in note
        for note in verify(tmp_path / "cache", sources=["/"], reencode=True, threads=1).notes
    )
    after = build(make_recipe(values), tmp_path / "cache", jobs=1)
    assert after.built and after.num_partitions_built == 0
    keys = [[each.key for each in manifest.selection.traits] for manifest in (before, after.manifest)]
    assert (keys[0] != keys[1]) == names_versions
    assert not build(make_recipe(values), tmp_path / "cache", jobs=1).built


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(["split.seed=1"], marks=pytest.mark.slow),
        pytest.param(["split.shares.validation=0.6", "split.shares.test=0"], marks=pytest.mark.slow),
        ["deduplicate.exact=bytes", "sources.take={rows: 20}"],
        ["deduplicate=null", "pack.block_len=64"],
        ["filters=[]", "deduplicate=null", "split=null", "sources.where={}"],
    ],
)
def test_other_rules_in_a_cache_give_the_bytes_of_a_new_build(cache, asked, overrides, tmp_path):
    packed_again(cache, tmp_path / "again", {}, overrides)
    build(make_recipe(asked, overrides), tmp_path / "built", jobs=1)
    assert digests(tmp_path / "again") == digests(tmp_path / "built")
    assert digests(cache) != digests(tmp_path / "built")


def rows_of(folder, split):
    return [row for rows in rows_of_split(folder, split).values() for row in rows]


def replaced(folder, stored, content):
    """Another table in the place of a stored one, with its digests; `content` may be bytes that are none."""
    path = folder / stored.path
    if isinstance(content, pa.Table):
        with pa.ipc.new_file(path, content.schema) as writer:
            writer.write_table(content)
    else:
        path.write_bytes(content)
    raw = path.read_bytes()
    digests = {"xxh3": xxh3_128_hexdigest(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    return msgspec.structs.replace(stored, num_bytes=len(raw), **digests)


def forged(cache, folder, content, *, num_rows=None):
    """A copy of a cache with another selection and every digest mended."""
    shutil.copytree(cache, folder)
    manifest = read_manifest(cache)
    table = replaced(folder, manifest.selection.table, content)
    if num_rows is not None:
        table = msgspec.structs.replace(table, num_rows=num_rows)
    selection = msgspec.structs.replace(manifest.selection, table=table)
    write_manifest(folder, msgspec.structs.replace(manifest, selection=selection))
    return folder


def compressed(content):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, content.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(content)
    return sink.getvalue().to_pybytes()


def with_split(content, row, split):
    column = content.column("split").to_numpy().copy()
    column[row] = split
    return content.set_column(0, "split", pa.array(column))


def test_a_changed_selection_is_found(cache, tmp_path):
    """Whoever changes a row's split and mends every digest still has to say why."""
    content = pa.ipc.open_file(cache / read_manifest(cache).selection.table.path).read_all()
    row = content.column("split").to_pylist().index(0)
    findings = verify(forged(cache, tmp_path / "forged", with_split(content, row, 1))).findings
    assert any(finding.what == "selected rows" and "split" in finding.found for finding in findings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: b"no table", "is damaged"),
        (lambda content: content.slice(1), "expected 90 rows, found 89"),
        (lambda content: content.drop_columns(["kept"]), "is damaged: expected the columns split, reason, kept"),
        (
            lambda content: content.set_column(0, "split", pa.nulls(len(content), pa.int32())),
            "is damaged: it has nulls",
        ),
        (compressed, "is damaged: it is compressed"),
        (lambda content: with_split(content, 0, 3), "is not a selection"),
        (lambda content: with_split(content, 0, -2), "is not a selection"),
    ],
)
def test_a_selection_that_is_none_is_refused(cache, change, words, tmp_path):
    content = pa.ipc.open_file(cache / read_manifest(cache).selection.table.path).read_all()
    folder = forged(cache, tmp_path / "forged", change(content))
    with pytest.raises(CheckError, match=words):
        Cache.open(folder).documents("train")
    assert any("selection" in finding.path for finding in verify(folder).findings)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.drop_columns(["prompt"]),
        lambda content: content.set_column(2, "prompt", pa.array([0.5] * len(content))),
        lambda content: content.set_column(2, "prompt", pa.array([[1]] * len(content))),
        lambda content: content.set_column(2, "prompt", pa.nulls(len(content), pa.uint64())),
        compressed,
    ],
)
def test_traits_that_the_rules_do_not_make_are_refused(asked, cache, change, tmp_path):
    """Also by a build that would decide by them which rows it keeps."""
    folder = shutil.copytree(cache, tmp_path / "forged")
    manifest = read_manifest(cache)
    stored, *others = manifest.selection.traits
    table = change(pa.ipc.open_file(cache / stored.path).read_all())
    mended = (replaced(folder, stored, table), *others)
    selection = msgspec.structs.replace(manifest.selection, traits=mended)
    write_manifest(folder, msgspec.structs.replace(manifest, selection=selection))
    with pytest.raises(CheckError, match=r"is damaged: (expected the columns|it has nulls|it is compressed)"):
        build(make_recipe(asked, ["split.seed=7"]), folder, jobs=1, force=True)
    assert any(selection.table.path == each.path for each in verify(folder).findings)


def test_documents_of_rows_that_no_selection_has_are_refused(cache, tmp_path):
    content = pa.ipc.open_file(cache / read_manifest(cache).selection.table.path).read_all()
    folder = forged(cache, tmp_path / "forged", content.slice(0, 40), num_rows=40)
    with pytest.raises(CheckError, match="do not have a row for each row of the partitions"):
        Cache.open(folder).documents("train")


def test_blocks_of_a_damaged_document_shard_are_not_compared(cache, tmp_path):
    """Its documents may be in any split: what is said is which file is damaged."""
    shutil.copytree(cache, tmp_path / "cache")
    path = next((tmp_path / "cache" / "documents").iterdir())
    flip(path)
    assert {finding.path for finding in verify(tmp_path / "cache", level="full").findings} == {f"documents/{path.name}"}


def test_blocks_are_not_counted_where_the_selection_is_damaged(cache, tmp_path):
    packed_again(cache, tmp_path / "cache", {"block_len": 16, "overlong": "split"})
    manifest = read_manifest(tmp_path / "cache")
    assert manifest.totals.piece_starts > 0
    flip(tmp_path / "cache" / manifest.selection.table.path)
    found = {finding.path for finding in verify(tmp_path / "cache", level="full").findings}
    assert found == {manifest.selection.table.path}


def test_a_flipped_bit_of_a_table_is_found_and_repaired(asked, cache, tmp_path):
    shutil.copytree(cache, tmp_path / "cache")
    manifest = read_manifest(cache)
    for stored in manifest.tables:
        flip(tmp_path / "cache" / stored.path, mask=4)
    findings = verify(tmp_path / "cache").findings
    assert {finding.path for finding in findings} >= {stored.path for stored in manifest.tables} != set()
    with pytest.raises(CheckError, match="damaged"):
        Cache.open(tmp_path / "cache").documents("train")
    build(make_recipe(asked), tmp_path / "cache", jobs=1, repair=True)
    assert digests(tmp_path / "cache") == digests(cache)


def test_fields_are_the_same_in_every_format(rows, starter, tmp_path):
    """Of Parquet, the columns that rules ask about are read besides; times of a table are ISO texts."""
    import datetime as dt

    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    values = [row | {"at": start + dt.timedelta(days=i)} for i, row in enumerate(rows) if len(row["messages"]) > 1]
    pq.write_table(pa.Table.from_pylist(values), tmp_path / "rows.parquet")
    lines = [msgspec.json.encode(row | {"at": row["at"].isoformat()}) for row in values]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines))
    found = []
    for name in ("rows.parquet", "rows.jsonl"):
        recipe = {
            "sources": [{"path": str(tmp_path / name), "where": {"score": {"max": 0.7}}}],
            "tokenizer": str(starter / "tokenizer"),
            "split": {"time": "at", "cutoffs": {"validation": "2026-02-01T00:00:00Z"}, "group": "meta.user"},
        }
        build(make_recipe(recipe), tmp_path / f"{name}.cache", jobs=1)
        lines = (tmp_path / f"{name}.cache" / "rejected.jsonl").read_text("utf-8").splitlines()
        codes = [(line["row"], line["code"]) for line in map(json.loads, lines)]
        found.append((codes, read_manifest(tmp_path / f"{name}.cache").content_fingerprint))
    assert found[0] == found[1]
    assert {code for _, code in found[0][0]} == {"filtered", "straddles"}


def test_rules_read_the_fields_of_a_struct_beside_values_that_json_does_not_have(starter, tmp_path):
    """Times in it are ISO texts too, and decimals are numbers."""
    import datetime as dt
    from decimal import Decimal

    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    told = [{"user": i, "at": start + dt.timedelta(days=i), "raw": b"\xff", "cost": Decimal(i) / 2} for i in range(9)]
    told = [meta | {"seen": [meta["at"]] * meta["user"]} for meta in told]
    zoned = pa.timestamp("ns", "America/New_York")
    kind = pa.struct(
        [
            ("user", pa.int64()),
            ("at", zoned),
            ("raw", pa.binary()),
            ("cost", pa.decimal128(9, 1)),
            ("seen", pa.list_(zoned)),
        ]
    )
    messages = pa.array([chat(i)["messages"] for i in range(9)])
    content = pa.table({"messages": messages, "meta": pa.array(told, kind), "cost": pa.array([Decimal(7)] * 9)})
    pq.write_table(content, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", content.schema) as writer:
        writer.write_table(content)
    for name in ("a.parquet", "a.arrow"):
        source = {"path": str(tmp_path / name), "where": {"meta.user": {"min": 2}, "meta.cost": {"in": [1, 1.5, 4]}}}
        recipe = {
            "sources": [source | {"where": source["where"] | {"cost": {"in": [7]}}}],
            "tokenizer": str(starter / "tokenizer"),
            "split": {"time": "meta.at", "cutoffs": {"validation": "2026-01-05T00:00:00Z"}},
        }
        build(make_recipe(recipe), tmp_path / f"{name}.cache", jobs=1)
        assert [rows_of(tmp_path / f"{name}.cache", split) for split in ("train", "validation")] == [[2, 3], [8]]


@pytest.mark.parametrize(
    ("overrides", "error", "words"),
    [
        (["filters=[{name: a, field: nope, min: 1}]"], InputError, "filter 'a': no row has a field 'nope'"),
        (["split.group=meta.nope"], InputError, "split.group: no row has a field 'meta.nope'"),
        (["split={time: meta.user, cutoffs: {test: 2026-01-01T00:00:00Z}}"], NothingKeptError, "× no_time"),
        (["split={time: messages, unit: s, cutoffs: {test: 2026-01-01}}"], NothingKeptError, "× no_time"),
        (["filters=[{name: a, of: answers, matches: '(?=x)'}]"], RecipeError, "RE2"),
        (["filters=[{name: a, of: answers, chars: {min: 1000}}]"], NothingKeptError, "89 × filtered; filter a 87"),
        (["split.shares.validation=0.8", "split.shares.test=0.2"], RecipeError, "leave nothing to train on"),
        (["split.shares.validation=1.5"], RecipeError, "expected `float` < 1.0"),
        (["split={time: at}"], RecipeError, "no cutoff"),
        (["split={time: at, cutoffs: {test: May}}"], RecipeError, "split.cutoffs.test"),
        (
            ["split={time: at, zone: CET, cutoffs: {test: 2026-01-01}}"],
            RecipeError,
            "unknown key 'split.zone'",
        ),
        (["filters=[{name: a, of: answers, field: b, min: 1}]"], RecipeError, "found field and of"),
        (["filters=[{name: a, of: answers}]"], RecipeError, "no condition"),
        (["filters=[{name: a, field: b, min: 2, max: 1}]"], RecipeError, "min 2 is more than max 1"),
        (["deduplicate={}"], RecipeError, "is empty"),
        (["split.sharez=1"], RecipeError, "did you mean 'shares'"),
        (["filters=[{name: a, field: score, in: ['0.5']}]"], NothingKeptError, "the number 1 are two values"),
        (["decontaminate.against=[{path: .}]"], InputError, "no such file a benchmark is one file"),
    ],
)
def test_rules_that_cannot_be_are_refused_by_name(asked, overrides, error, words, tmp_path):
    with pytest.raises(error) as raised:
        build(make_recipe(asked, overrides), tmp_path / "cache", jobs=1)
    assert words in f"{raised.value.message} {raised.value.hint}"


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_field_that_only_late_rows_have_is_found(name, asked, tmp_path, monkeypatch):
    """Of two sets in one file, the second may have a field that the first has not."""
    monkeypatch.setattr(detect, "_SAMPLED_BYTES", 2000)
    rows = [chat(i) for i in range(60)]
    rows[50:] = [row | {"late": {"n": i}} for i, row in enumerate(rows[50:])]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / name).write_text("\n".join(lines) if name == "a.jsonl" else f"[{','.join(lines)}]", "utf-8")
    values = without_rules(asked) | {"sources": [{"path": str(tmp_path / name), "where": {"late.n": {"min": 2}}}]}
    notes = Notes()
    build(make_recipe(values | {"split": {"group": "late.n", "shares": {"test": 0.3}}}), tmp_path / "c", progress=notes)
    assert sorted(row for split in ("train", "test") for row in rows_of(tmp_path / "c", split)) == [*range(52, 60)]
    assert notes.notes.count("the first rows have no field 'late.n': looking for it in all rows") == 1
    with pytest.raises(InputError, match=r"no row has a field 'late\.n'"):
        build(make_recipe(values | {"sources": [values["sources"][0] | {"limit": 50}]}), tmp_path / "d", jobs=1)


def test_a_field_of_rows_too_long_to_sample_is_found(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(detect, "_LONGEST_SAMPLED_BYTES", 1000)
    rows = [chat(0), chat(1) | {"late": "x" * 2000}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    values = without_rules(asked) | {
        "sources": [{"path": str(tmp_path / "a.jsonl"), "where": {"late": {"matches": "x"}}}]
    }
    build(make_recipe(values), tmp_path / "c", jobs=1)
    assert rows_of(tmp_path / "c", "train") == [1]


def test_a_filter_that_leaves_out_no_row_is_warned_about(asked, tmp_path):
    overrides = ["filters=[{name: dead, of: answers, not_matches: qqq}, {name: greedy, field: score, max: 0.3}]"]
    result = build(make_recipe(asked, overrides), tmp_path / "cache", jobs=1)
    assert result.rows.warnings == ("filter dead leaves out no row",)


def test_near_copies_that_were_not_all_compared_are_told(alike, tmp_path, monkeypatch):
    monkeypatch.setattr(near, "MOST_COMPARED", 2)
    made = build(make_recipe(alike), tmp_path / "cache", jobs=1)
    told = [warning for warning in made.rows.warnings if "share a template" in warning]
    assert len(told) == 1 and read_manifest(tmp_path / "cache").selection.num_capped > 0
    assert told[0] in stats(tmp_path / "cache").summary.rows.warnings
    assert verify(tmp_path / "cache").findings == ()


def test_a_benchmark_may_have_more_questions_than_there_are_rows(asked, rows, tmp_path):
    texts = [f"question {i}?" for i in range(2 * len(rows))] + [rows[20]["messages"][0]["content"]] + ["?!"]
    bench = tmp_path / "bench.csv"
    bench.write_text("question,answer\n" + "".join(f'"{text}",1\n' for text in texts), "utf-8")
    told = Notes()
    recipe = make_recipe(without_rules(asked) | {"decontaminate": {"against": [{"path": str(bench)}]}})
    build(recipe, tmp_path / "cache", jobs=1, progress=told)
    left_out = [json.loads(line) for line in (tmp_path / "cache" / "rejected.jsonl").read_text("utf-8").splitlines()]
    found = {line["row"]: line["reason"] for line in left_out if line["code"] == "contaminated"}
    assert [row for row in range(len(rows)) if row in found] == [20, 80] and "question 180 of bench" in found[20]
    assert len(rows_of(tmp_path / "cache", "train")) == len(rows) - len(left_out)
    assert verify(tmp_path / "cache").findings == ()
    assert [note for note in told.notes if "1 of 182 questions of bench are not searched for" in note]


def test_a_row_that_one_of_two_sources_keeps_is_in_the_cache(asked, tmp_path):
    path = asked["sources"][0]["path"]
    wheres = {"train": {"score": {"max": 0.5}}, "validation": {"score": {"min": 0.51}}}
    sources = [{"path": path, "split": split, "where": where} for split, where in wheres.items()]
    build(make_recipe(without_rules(asked) | {"sources": sources}), tmp_path / "cache", jobs=1)
    with Cache.open(tmp_path / "cache") as opened:
        views = [view_row(opened, "a.jsonl", row) for row in (50, 51, 7)]
    assert [{document.split for document in view.documents} for view in views] == [{"train"}, {"validation"}, set()]
    assert "nothing_trained" in [line.code for line in views[2].rejected]


def test_a_build_that_dies_after_the_traits_does_not_make_them_again(asked, cache, tmp_path, monkeypatch):
    def dies(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "select", dies)
        with pytest.raises(KeyboardInterrupt):
            build(make_recipe(asked), tmp_path / "cache", jobs=1)
        patch.setattr(run, "select", selecting.select)
        patch.setattr(documents, "partition_worker", lambda *_, **__: dies)
        assert build(make_recipe(asked), tmp_path / "cache", jobs=1).num_partitions_built == 0
    assert digests(tmp_path / "cache") == digests(cache)


def test_rows_that_are_appended_move_no_row_and_tokenize_no_finished_partition_again(asked, tmp_path):
    """Twice more rows; the last cache is the one that a single build of all makes."""
    path = tmp_path / "growing.jsonl"
    values = asked | {"sources": [{"path": str(path)}], "split": {"shares": {"validation": 0.2, "test": 0.1}}}
    made = [chat(i, question=f"What is {i} and {i % 7}?") for i in range(110)]
    places: dict[int, str] = {}
    for num_rows in range(90, 111, 10):
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in made[:num_rows]))
        result = build(make_recipe(values), tmp_path / "cache", jobs=1)
        assert not places or result.num_partitions_built <= 2, "the last partition, and one that begins after it"
        manifest = read_manifest(tmp_path / "cache")
        now = {
            row: split
            for split in manifest.selection.splits
            for rows in rows_of_split(tmp_path / "cache", split).values()
            for row in rows
        }
        assert now.items() >= places.items()
        assert len(now) > len(places)
        places = now
    assert set(places.values()) == {"train", "validation", "test"}
    build(make_recipe(values), tmp_path / "whole", jobs=1)
    assert digests(tmp_path / "cache") == digests(tmp_path / "whole")


def test_fields_that_rules_ask_about_are_not_called_unread(asked, tmp_path):
    told, plain = Notes(), Notes()
    preview(make_recipe(asked), progress=told)
    assert not any("not read" in note for note in told.notes), told.notes
    preview(make_recipe(without_rules(asked)), progress=plain)
    (note,) = (note for note in plain.notes if "fields of rows that are not read" in note)
    assert "`meta.user` (" in note and "`score` (" in note


@pytest.mark.parametrize(("exact", "kept"), [("bytes", [0, 1]), ("normalized", [0])])
def test_rows_that_differ_in_white_space_and_case_are_duplicates_only_if_asked(exact, kept, starter, tmp_path):
    lines = [
        json.dumps({"prompt": "Say:", "completion": said}) for said in (" It is so.", " it  is\nso.", " It is so.")
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    values = {"sources": [{"path": str(tmp_path / "rows.jsonl")}], "tokenizer": str(starter / "tokenizer")}
    build(make_recipe(values | {"deduplicate": {"exact": exact}}), tmp_path / "cache", jobs=1)
    assert rows_of(tmp_path / "cache", "train") == kept


def test_the_first_question_of_a_benchmark_counts_as_every_other(starter, tmp_path):
    said = [
        "What is the tallest mountain of all the earth?",
        "Who found the way to India by the sea?",
        "Neither of them.",
    ]
    rows = [{"prompt": text, "completion": "I know."} for text in said]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "bench.jsonl").write_text("\n".join(json.dumps({"question": text}) for text in said[:2]))
    values = {"sources": [{"path": str(tmp_path / "rows.jsonl")}], "tokenizer": str(starter / "tokenizer")}
    rule = {"decontaminate": {"against": [{"path": str(tmp_path / "bench.jsonl"), "name": "bench"}]}}
    build(make_recipe(values | rule), tmp_path / "cache", jobs=1, fail_above=1)
    assert rows_of(tmp_path / "cache", "train") == [2]
    lines = (tmp_path / "cache" / "rejected.jsonl").read_text("utf-8").splitlines()
    assert ["question 0 of bench" in lines[0], "question 1 of bench" in lines[1]] == [True, True]
