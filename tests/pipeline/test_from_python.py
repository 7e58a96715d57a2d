"""Building from Python: the same cache as from files, inputs that stay, and one error for what is something else."""

import functools
import json
import math
import random
import re
from collections import UserDict
from decimal import Decimal
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chats import chat
from command_line import run
from hypothesis import given
from hypothesis import strategies as st
from shorter_starter import shortened

import packer
from packer.audit.verify import verify
from packer.errors import InputError, NothingKeptError, RecipeError, UsageError
from packer.pipeline.from_python import SOURCE_KEYS, RecipeKeys
from packer.pipeline.from_python import build as build_recipe
from packer.pipeline.kept_rows import keep_rows, rows_folder
from packer.recipe.named_options import NAMED_OPTIONS
from packer.recipe.recipe import Recipe, Source, load_recipe, make_recipe, to_json

ROWS = [
    chat(f"What is {number} plus {number}? 𝄞", f"It is {2 * number}.", note={"of": [number, None, 0.5]})
    for number in range(23)
]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def options(starter: Path):
    """Arguments of a build."""
    return {"tokenizer": starter / "tokenizer", "pack": {"block_len": 128}, "progress": False, "jobs": 1}


@pytest.fixture(scope="module")
def of_file(starter: Path, tmp_path_factory: pytest.TempPathFactory):
    """The fingerprint of the content of rows that are built from a JSONL file."""

    @functools.cache
    def content_of(lines: str) -> str:
        folder = tmp_path_factory.mktemp("file")
        (folder / "rows.jsonl").write_text(lines, "utf-8")
        sources = [{"path": str(folder / "rows.jsonl")}]
        values = {"sources": sources, "tokenizer": str(starter / "tokenizer"), "pack": {"block_len": 128}}
        return content(build_recipe(make_recipe(values), folder / "cache", jobs=1))

    return lambda rows: content_of("".join(json.dumps(row) + "\n" for row in rows))


def content(result):
    return result.manifest.content_fingerprint


def files_of(cache: Path) -> list[Path]:
    folder = rows_folder(cache)
    return sorted(folder.iterdir()) if folder.exists() else []


def once(rows):
    yield from rows


FORMS = {
    "a list": lambda rows: rows,
    "an iterator": once,
    "other mappings": lambda rows: [UserDict(row) for row in rows],
    "a table": pa.Table.from_pylist,
    "batches that can be read once": lambda rows: pa.Table.from_pylist(rows).to_reader(max_chunksize=3),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_memory_give_the_cache_of_the_same_rows_in_a_file_and_nothing_is_done_twice(
    form, options, cache, of_file
):
    first = packer.build(FORMS[form](ROWS), cache, **options)
    assert first.built
    assert content(first) == of_file(ROWS)
    (kept,) = files_of(cache)
    assert [entry.path for entry in first.manifest.inputs] == [kept.as_posix()]
    second = packer.build(FORMS[form](ROWS), cache, **options)
    assert not second.built
    assert second.fingerprint == first.fingerprint
    assert files_of(cache) == [kept]
    # What the cache names is there, and is what it was built from.
    report = verify(cache, sources=["/"], reencode=True, threads=1)
    assert not report.findings


@pytest.mark.parametrize("kind", ["Dataset", "select", "IterableDataset", "DatasetDict", "DataFrame"])
def test_other_libraries_rows_are_taken_as_what_they_give(kind, options, cache, of_file):
    pytest.importorskip("pandas" if kind == "DataFrame" else "datasets", reason="DATASETS MISSING: not built from")
    rows, parts = [{"messages": row["messages"]} for row in ROWS], {}
    if kind == "DataFrame":
        import pandas as pd

        data = pd.DataFrame(rows)
    else:
        import datasets

        data = datasets.Dataset.from_list(rows)
        if kind == "select":
            data = data.add_column("twice", [2 * number for number in range(len(rows))]).select([5, 3, 3, 8])
            rows = [rows[number] for number in (5, 3, 3, 8)]
        elif kind == "IterableDataset":
            data = data.to_iterable_dataset()
        elif kind == "DatasetDict":
            parts = {"train": rows[:20], "held.out": rows[20:]}
            data = datasets.DatasetDict({name: datasets.Dataset.from_list(part) for name, part in parts.items()})
    result = packer.build(data, cache, **options)
    assert result.built
    for name, part in parts.items():
        assert sum(shard.num_input_rows for shard in result.manifest.shards if shard.split == name) == len(part)
    assert len(files_of(cache)) == max(len(parts), 1)
    if not parts:
        assert content(result) == of_file(rows)
    assert not packer.build(data, cache, **options).built


def test_a_null_in_a_struct_of_a_table_is_a_key_that_is_missing(options, cache, of_file):
    """Arrow gives every struct every key: the tools of one row would get the parameters of the other's."""
    schemas = [{"a": {"type": "string"}}, {"b": {"type": "number"}}]
    # Keys in alphabetical order: where a type is inferred, older versions of pyarrow sort a struct's fields.
    rows = [
        {**row, "tools": [{"function": {"name": "f", "parameters": {"properties": schema}}, "type": "function"}]}
        for row, schema in zip(ROWS, schemas, strict=False)
    ]
    result = packer.build(pa.Table.from_pylist(rows), cache, **options)
    assert result.manifest.totals.kept == 2
    assert content(result) == of_file(rows)


def test_splits_and_options_of_sources_are_those_of_a_recipe(options, cache, tmp_path, starter):
    rows = [{"question": row["messages"][0]["content"], "reply": row["messages"][1]["content"]} for row in ROWS]
    columns = {"instruction": "question", "output": "reply"}
    splits = {"train": rows[:20], "eval": once(rows[20:])}
    result = packer.build(splits, cache, schema="alpaca", columns=columns, **options)
    assert {shard.split for shard in result.manifest.shards} == {"train", "eval"}
    read = {(entry.schema, tuple(entry.columns)) for entry in result.manifest.inputs}
    assert read == {("alpaca", ("instruction", "output"))}
    paths = [starter / "data" / "chat.jsonl", str(starter / "data" / "tools.jsonl")]
    held_out = packer.build(paths, tmp_path / "files", split="eval", limit=9, fail_above=1, **options)
    assert {shard.split for shard in held_out.manifest.shards} == {"eval"}
    assert [entry.path for entry in held_out.manifest.inputs] == list(map(str, paths))
    assert files_of(tmp_path / "files") == []


def test_a_split_may_be_called_as_a_key_of_recipes(options, tmp_path):
    rows = [{"text": f"row {number}"} for number in range(4)]
    for data in ({"train": rows, "rows": rows[:1]}, {"pack": iter(rows), "read": rows[:2]}):
        names = list(data)
        made = packer.build(data, tmp_path / "_".join(names), **options)
        assert [entry.split for entry in made.manifest.inputs] == names


def test_rows_are_held_out_by_name_or_by_the_rule_of_the_recipe(options, tmp_path):
    by_rule = packer.build(ROWS, tmp_path / "rule", split={"shares": {"validation": 0.3}}, **options)
    splits = {shard.split for shard in by_rule.manifest.shards}
    assert splits == {"train", "validation"} and by_rule.manifest.totals.kept == len(ROWS)
    taken = packer.build(ROWS, tmp_path / "taken", take={"rows": 5}, split="eval", **options)
    assert taken.manifest.totals.packed == 5
    assert {shard.split for shard in taken.manifest.shards} == {"eval"}


def test_a_limit_ends_the_reading_of_rows_that_have_no_end(options, cache, of_file):
    def endless():
        while True:
            yield from ROWS

    result = packer.build(endless(), cache, limit=30, **options)
    assert content(result) == of_file([*ROWS, *ROWS][:30])


def test_a_recipe_is_built_as_by_the_command_and_options_take_precedence(starter, tmp_path):
    path = shortened(starter, tmp_path / "starter", 2) / "recipe.yaml"
    recipe = load_recipe(path)
    values = {**to_json(recipe), "tokenizer": Path(recipe.tokenizer)}
    expected = build_recipe(recipe, tmp_path / "expected", jobs=1)
    for number, data in enumerate([str(path), recipe, values]):
        result = packer.build(data, tmp_path / f"{number}", jobs=1, progress=False)
        assert result.fingerprint == expected.fingerprint
    longer = packer.build(path, tmp_path / "longer", pack={"block_len": 1024}, jobs=1, progress=False)
    assert longer.manifest.recipe["pack"] == {**expected.manifest.recipe["pack"], "block_len": 1024}
    assert longer.manifest.recipe | {"pack": None} == expected.manifest.recipe | {"pack": None}
    few = packer.build(path, tmp_path / "few", limit=1, jobs=1, progress=False)
    assert [each["limit"] for each in few.manifest.recipe["sources"]] == [1] * len(recipe.sources)


# What a cache names stays


def test_other_rows_ask_and_the_rows_that_a_cache_names_stay_until_another_has_taken_its_place(options, cache):
    packer.build(ROWS, cache, **options)
    (kept,) = files_of(cache)
    with pytest.raises(UsageError, match="would lose inputs") as caught:
        packer.build(ROWS[:5], cache, **options)
    assert str(caught.value).endswith("\nhint: force=True replaces it; another `out` keeps both")
    assert files_of(cache) == [kept]
    assert not verify(cache, sources=["/"], threads=1).findings
    replaced = packer.build(ROWS[:5], cache, force=True, **options)
    (now,) = files_of(cache)
    assert now != kept
    assert [entry.path for entry in replaced.manifest.inputs] == [now.as_posix()]
    assert not verify(cache, sources=["/"], threads=1).findings


def test_a_dry_run_leaves_nothing(options, cache, tmp_path):
    result = packer.build(ROWS, cache, dry_run=True, **options)
    assert not result.built and result.num_partitions_built == 1
    assert list(tmp_path.iterdir()) == []
    packer.build(ROWS, cache, **options)
    before = files_of(cache)
    packer.build(ROWS[:5], cache, force=True, dry_run=True, **options)
    assert files_of(cache) == before


def test_rows_of_a_refused_build_stay_only_if_its_error_names_them(options, cache, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        packer.build(ROWS, cache, **options | {"tokenizer": tmp_path / "nowhere"})
    assert not rows_folder(cache).exists()
    with pytest.raises(InputError, match="nothing reads") as caught:
        packer.build([{**row, "persona": "A fisherman from the isle of Mull"} for row in ROWS], cache, **options)
    (kept,) = files_of(cache)
    assert kept.as_posix() in str(caught.value)


def test_rows_that_fail_half_way_leave_nothing(options, cache, tmp_path):
    def failing():
        yield ROWS[0]
        raise OSError("gone")

    for rows in (failing(), {"train": ROWS, "eval": failing()}):
        with pytest.raises(OSError, match="gone"):
            packer.build(rows, cache, **options)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [".", "cache/", "a/../cache", "c[1]*"])
def test_rows_lie_beside_the_cache_whatever_its_name(place, options, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / ("here" if place == "." else "."))
    result = packer.build(ROWS, place, **options)
    (entry,) = result.manifest.inputs
    assert Path(entry.path).is_file()
    assert Path(entry.path).resolve().parent.parent == tmp_path
    assert packer.build(ROWS, place, **options).built is False


# Rows as JSON

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def without_nan(value):
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


@given(rows=st.lists(st.dictionaries(st.text(), JSON, max_size=2), min_size=1, max_size=3))
def test_every_row_is_read_back_as_it_was_with_a_nan_as_null(rows, tmp_path_factory):
    path = keep_rows(rows, tmp_path_factory.mktemp("rows"), split="train", limit=None, note=print)
    read = [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
    assert read == without_nan(rows)
    assert keep_rows(once(rows), path.parent, split="train", limit=None, note=print) == path


def test_numbers_and_arrays_of_libraries_are_numbers_and_lists_and_half_of_a_surrogate_pair_is_an_escape(tmp_path):
    row = {"ids": np.arange(3, dtype=np.int32), "n": np.int64(7), "x": np.array([math.nan, 1.0]), "a": "\ud800"}
    path = keep_rows([row], tmp_path, split="train", limit=None, note=print)
    assert path.read_bytes() == b'{"ids": [0, 1, 2], "n": 7, "x": [null, 1.0], "a": "\\ud800"}\n'


CIRCULAR: dict[str, object] = {}
CIRCULAR["a"] = CIRCULAR


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("text", "row 1 is 'text'; expected a dict"),
        (3, "row 1 is 3; expected a dict"),
        ({"a": {"b": [b"x"]}}, "row 1: bytes b'x' is not"),
        ({"a": [Decimal(1)]}, "row 1: Decimal"),
        ({"a": object()}, "row 1: object"),
        ({"a": math.inf}, "row 1: Infinity is not"),
        ({("a",): 1}, "row 1: keys must be str"),
        ({"a": functools.reduce(lambda inner, _: [inner], range(10**5), [])}, "row 1 is nested too deeply"),
        (CIRCULAR, "row 1: Circular reference"),
    ],
)
def test_what_is_no_row_is_named_and_nothing_is_kept(row, said, tmp_path):
    with pytest.raises(TypeError) as caught:
        keep_rows([{}, row], tmp_path, split="train", limit=None, note=print)
    assert said in str(caught.value)
    assert caught.value.__notes__[0].startswith("hint: rows are dicts")
    assert list(tmp_path.iterdir()) == []


# Wrong turns


class Tokenizer:
    name_or_path = "org/model"


@pytest.mark.parametrize(
    ("data", "asked", "error", "said", "hint"),
    [
        (ROWS[0], {}, TypeError, "the fields of a row: messages", "[row]"),
        (None, {}, TypeError, "expected rows, files or a recipe", "list of dicts"),
        ({"train": "rows.jsonl"}, {}, TypeError, "expected rows", "list of dicts"),
        ([1, 2], {}, TypeError, "row 0 is 1", "rows are dicts"),
        (["a.jsonl", 3], {}, TypeError, "data is 3", "pathlib"),
        ([], {}, InputError, "no rows for split 'train'", "has been read"),
        (ROWS, {"tokenizer": Tokenizer()}, TypeError, "tokenizer is <", "tokenizer='org/model'"),
        (ROWS, {"tokenizer": None}, RecipeError, "no tokenizer", "tokenizer="),
        (ROWS, {"pak": {}}, RecipeError, "unknown key 'pak'", "did you mean 'pack'"),
        (ROWS, {"pack": {"blok_len": 1}}, RecipeError, "unknown key 'pack.blok_len'", "did you mean 'block_len'"),
        (ROWS, {"pack": 2048}, RecipeError, "pack: expected", "its keys are mode, block_len"),
        (ROWS, {"schema": "alpca"}, RecipeError, "schema: expected", "packer explain recipe"),
        (ROWS, {"split": "a/b"}, RecipeError, "split: expected the name of a split", "packer explain recipe"),
        ({"train": ROWS}, {"split": "x"}, RecipeError, "already given by split", "leave it out"),
        ("nowhere.jsonl", {}, InputError, "nowhere.jsonl: no such file", "looked in"),
    ],
)
def test_what_cannot_be_built_is_one_error_with_a_hint_and_leaves_nothing(
    data, asked, error, said, hint, options, cache, tmp_path
):
    with pytest.raises(error) as caught:
        packer.build(data, cache, **options | asked)
    assert said in str(caught.value)
    assert hint is None or hint in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        (None, "a template is a file, or one of packer's: chatml, "),
        (b"\xff", "a chat template is a Jinja file in UTF-8"),
        (b"{% if %}", "it has to be one for Hugging Face's apply_chat_template; template='FILE' gives another"),
    ],
)
def test_a_template_that_is_none_is_told_what_one_is_in_words_of_python(template, hint, options, cache, tmp_path):
    path = tmp_path / "template.jinja"
    if template is not None:
        path.write_bytes(template)
    with pytest.raises(packer.PackerError) as caught:
        packer.build(ROWS, cache, **options, template=path)
    assert caught.value.hint is not None and caught.value.hint.startswith(hint)


def test_a_folder_of_other_things_is_refused_before_any_row_is_read(options, tmp_path):
    (tmp_path / "file").write_text("mine", "utf-8")
    with pytest.raises(UsageError, match="is not a cache"):
        packer.build(once(iter(lambda: pytest.fail("read"), 0)), tmp_path, **options)


def test_rows_that_are_all_rejected_stay_to_be_looked_at_and_go_with_the_next_build(options, cache):
    rows = [{"messages": [{"role": "user", "content": str(number)}]} for number in range(3)]
    with pytest.raises(NothingKeptError):
        packer.build(rows, cache, **options)
    assert len(files_of(cache)) == 1
    packer.build(ROWS, cache, **options)
    assert len(files_of(cache)) == 1


# What is shown


def test_options_are_the_keys_of_recipes_and_sources():
    keys = {*Recipe.__struct_fields__, *Source.__struct_fields__} - {"version", "sources", "path"}
    assert set(get_type_hints(RecipeKeys)) == keys | {*NAMED_OPTIONS}
    assert set(SOURCE_KEYS) == {*Source.__struct_fields__} - {"path"}


def test_a_result_prints_what_the_command_prints(starter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    shortened(starter, Path("first"), 24)
    results, printed = [], []
    for folder in ("one", "one", "two"):  # built, nothing to do, and what a dry run says
        dry = folder == "two"
        results.append(str(packer.build("first/recipe.yaml", folder, dry_run=dry, jobs=1, progress=False)))
        command = ["build", "-c", "first/recipe.yaml", "-o", f"c/{folder}", "-j1", *["--dry-run"] * dry]
        printed.append(run(*command).stdout.replace("c/", ""))
    timeless = [re.sub(r"(in|,) [\d.]+k?( s| tokens/s)", "", text).strip() for text in [*results, *printed]]
    assert timeless[:3] == timeless[3:]
    assert "rows       120  119 kept, 1 rejected" in results[0] and "is up to date" in results[1]
    assert "nothing was written" in results[2]
    assert re.search(r"built one in [\d.]+ s, [\d.]+k? tokens/s", results[0])


def test_notes_of_a_build_reach_whoever_called_it(options, cache, capsys):
    result = packer.build(ROWS, cache, **options | {"progress": True})
    (kept,) = files_of(cache)
    shown = capsys.readouterr()
    assert f"note: 23 rows kept in {kept}" in shown.err
    assert shown.out == ""
    assert result.cache.fingerprint == result.fingerprint


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 2500])
def test_tables_are_cut_into_batches_and_nothing_is_lost(size, tmp_path):
    table = pa.table({"text": [str(number) for number in range(size)]})
    cuts = sorted(random.Random(size).sample(range(size), min(size, 3)))
    pieces = [table.slice(start, stop - start) for start, stop in zip([0, *cuts], [*cuts, size], strict=True)]
    path = keep_rows(pa.concat_tables(pieces), tmp_path, split="a", limit=None, note=print)
    with pa.ipc.open_stream(path) as reader:
        batches = list(reader)
    assert max(batch.num_rows for batch in batches) <= 1000
    assert pa.Table.from_batches(batches).to_pylist() == table.to_pylist()
    pq.write_table(table, tmp_path / "same.parquet")
    limited = keep_rows(pq.read_table(tmp_path / "same.parquet"), tmp_path, split="a", limit=7, note=print)
    with pa.ipc.open_stream(limited) as reader:
        assert reader.read_all().to_pylist() == table.to_pylist()[:7]
