"""Building from Python: the same cache as from files, inputs that stay, and one error for what is something else."""

import datetime as dt
import functools
import json
import math
import random
import re
import shutil
from collections import UserDict
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command_line import run
from hints import settings_in
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer.audit.verify import verify
from packer.audit.view import view_row
from packer.errors import InputError, NothingKeptError, RecipeError, UsageError
from packer.pipeline.from_python import SOURCE_KEYS, RecipeKeys
from packer.pipeline.from_python import build as build_recipe
from packer.pipeline.kept_rows import keep_rows, rows_folder
from packer.recipe.named_options import NAMED_OPTIONS
from packer.recipe.recipe import Recipe, Source, load_recipe, make_recipe, to_json
from packer.store.cache import Cache

ROWS = [
    {
        "messages": [
            {"role": "user", "content": f"What is {number} plus {number}? 𝄞"},
            {"role": "assistant", "content": f"It is {2 * number}."},
        ],
        "note": {"of": [number, None, 0.5]},
    }
    for number in range(23)
]


@pytest.fixture
def tokenizer(starter: Path) -> Path:
    return starter / "tokenizer"


@pytest.fixture
def of_files(tokenizer: Path, tmp_path: Path):
    """The result of a build of rows from a JSONL file."""

    def build(rows, name="of_files", **options):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        values = {"sources": [{"path": str(path)}], "tokenizer": str(tokenizer), "pack": {"block_len": 128}}
        return build_recipe(make_recipe(values | options), tmp_path / name, jobs=1)

    return build


def options_of(tokenizer: Path):
    return {"tokenizer": tokenizer, "pack": {"block_len": 128}, "progress": False, "jobs": 1}


def content(result):
    return result.manifest.content_fingerprint


def files_of(cache: Path) -> list[Path]:
    folder = rows_folder(cache)
    return sorted(folder.iterdir()) if folder.exists() else []


def once(rows):
    yield from rows


FORMS = {
    "a list": lambda rows: rows,
    "a tuple": tuple,
    "an iterator": once,
    "other mappings": lambda rows: [UserDict(row) for row in rows],
    "a table": pa.Table.from_pylist,
    "batches that can be read once": lambda rows: pa.Table.from_pylist(rows).to_reader(max_chunksize=3),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_memory_give_the_cache_of_the_same_rows_in_a_file_and_nothing_is_done_twice(
    form, tokenizer, of_files, tmp_path
):
    cache = tmp_path / "cache"
    first = packer.build(FORMS[form](ROWS), cache, **options_of(tokenizer))
    assert first.built
    assert content(first) == content(of_files(ROWS))
    (kept,) = files_of(cache)
    assert [entry.path for entry in first.manifest.inputs] == [kept.as_posix()]
    second = packer.build(FORMS[form](ROWS), cache, **options_of(tokenizer))
    assert not second.built
    assert second.fingerprint == first.fingerprint
    assert files_of(cache) == [kept]
    # What the cache names is there, and is what it was built from.
    report = verify(cache, sources=["/"], reencode=True, threads=1)
    assert not report.findings


@pytest.mark.parametrize("kind", ["Dataset", "select", "IterableDataset", "DatasetDict", "DataFrame"])
def test_other_libraries_rows_are_taken_as_what_they_give(kind, tokenizer, of_files, tmp_path):
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
    result = packer.build(data, tmp_path / "cache", **options_of(tokenizer))
    assert result.built
    for name, part in parts.items():
        assert sum(shard.num_input_rows for shard in result.manifest.shards if shard.split == name) == len(part)
    assert len(files_of(tmp_path / "cache")) == max(len(parts), 1)
    if not parts:
        assert content(result) == content(of_files(rows))
    assert not packer.build(data, tmp_path / "cache", **options_of(tokenizer)).built


def test_a_null_in_a_struct_of_a_table_is_a_key_that_is_missing(tokenizer, tmp_path, of_files):
    """Arrow gives every struct every key: the tools of one row would get the parameters of the other's."""
    schemas = [{"a": {"type": "string"}}, {"b": {"type": "number"}}]
    # Keys in alphabetical order: where a type is inferred, older versions of pyarrow sort a struct's fields.
    rows = [
        {**row, "tools": [{"function": {"name": "f", "parameters": {"properties": schema}}, "type": "function"}]}
        for row, schema in zip(ROWS, schemas, strict=False)
    ]
    result = packer.build(pa.Table.from_pylist(rows), tmp_path / "cache", **options_of(tokenizer))
    assert result.manifest.totals.kept == 2
    assert content(result) == content(of_files(rows))


def test_splits_and_options_of_sources_are_those_of_a_recipe(tokenizer, tmp_path, starter):
    rows = [{"question": row["messages"][0]["content"], "reply": row["messages"][1]["content"]} for row in ROWS]
    columns = {"instruction": "question", "output": "reply"}
    result = packer.build(
        {"train": rows[:20], "eval": once(rows[20:])},
        tmp_path / "cache",
        schema="alpaca",
        columns=columns,
        **options_of(tokenizer),
    )
    assert {shard.split for shard in result.manifest.shards} == {"train", "eval"}
    assert {(entry.schema, tuple(entry.columns)) for entry in result.manifest.inputs} == {
        ("alpaca", ("instruction", "output"))
    }
    paths = [starter / "data" / "chat.jsonl", str(starter / "data" / "tools.jsonl")]
    held_out = packer.build(paths, tmp_path / "files", split="eval", fail_above=1, **options_of(tokenizer))
    assert {shard.split for shard in held_out.manifest.shards} == {"eval"}
    assert [entry.path for entry in held_out.manifest.inputs] == list(map(str, paths))
    assert files_of(tmp_path / "files") == []


def test_a_split_may_be_called_as_a_key_of_recipes(tokenizer, tmp_path):
    rows = [{"text": f"row {number}"} for number in range(4)]
    for data in ({"train": rows, "rows": rows[:1]}, {"pack": iter(rows), "read": rows[:2]}):
        names = list(data)
        made = packer.build(data, tmp_path / "_".join(names), **options_of(tokenizer))
        assert [entry.split for entry in made.manifest.inputs] == names


def test_rows_are_held_out_by_name_or_by_the_rule_of_the_recipe(tokenizer, tmp_path):
    by_rule = packer.build(ROWS, tmp_path / "rule", split={"shares": {"validation": 0.3}}, **options_of(tokenizer))
    splits = {shard.split for shard in by_rule.manifest.shards}
    assert splits == {"train", "validation"} and by_rule.manifest.totals.kept == len(ROWS)
    taken = packer.build(ROWS, tmp_path / "taken", take={"rows": 5}, split="eval", **options_of(tokenizer))
    assert taken.manifest.totals.packed == 5
    assert {shard.split for shard in taken.manifest.shards} == {"eval"}


def test_a_limit_ends_the_reading_of_rows_that_have_no_end(tokenizer, tmp_path, of_files):
    def endless():
        while True:
            yield from ROWS

    result = packer.build(endless(), tmp_path / "cache", limit=30, **options_of(tokenizer))
    assert content(result) == content(of_files([*ROWS, *ROWS][:30]))


def test_a_recipe_is_built_as_by_the_command_and_options_take_precedence(starter, tmp_path):
    path = Path(shutil.copytree(starter, tmp_path / "starter")) / "recipe.yaml"
    for rows in (path.parent / "data").iterdir():
        rows.write_bytes(b"".join(rows.read_bytes().splitlines(keepends=True)[:2]))
    recipe = load_recipe(path)
    values = {**to_json(recipe), "tokenizer": Path(recipe.tokenizer)}
    expected = build_recipe(recipe, tmp_path / "expected", jobs=1)
    for number, data in enumerate([path, str(path), recipe, values]):
        result = packer.build(data, tmp_path / f"{number}", jobs=1, progress=False)
        assert result.fingerprint == expected.fingerprint
    longer = packer.build(path, tmp_path / "longer", pack={"block_len": 1024}, jobs=1, progress=False)
    assert longer.manifest.recipe["pack"] == {**expected.manifest.recipe["pack"], "block_len": 1024}
    assert longer.manifest.recipe | {"pack": None} == expected.manifest.recipe | {"pack": None}
    few = packer.build(path, tmp_path / "few", limit=1, jobs=1, progress=False)
    assert [each["limit"] for each in few.manifest.recipe["sources"]] == [1] * len(recipe.sources)


# What a cache names stays


def test_other_rows_ask_and_the_rows_that_a_cache_names_stay_until_another_has_taken_its_place(tokenizer, tmp_path):
    cache, options = tmp_path / "cache", options_of(tokenizer)
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


def test_a_dry_run_leaves_nothing(tokenizer, tmp_path):
    cache, options = tmp_path / "cache", options_of(tokenizer)
    result = packer.build(ROWS, cache, dry_run=True, **options)
    assert not result.built and result.num_partitions_built == 1
    assert list(tmp_path.iterdir()) == []
    packer.build(ROWS, cache, **options)
    before = files_of(cache)
    packer.build(ROWS[:5], cache, force=True, dry_run=True, **options)
    assert files_of(cache) == before


def test_rows_of_a_refused_build_stay_only_if_its_error_names_them(tokenizer, tmp_path):
    cache, options = tmp_path / "cache", options_of(tokenizer)
    with pytest.raises(InputError, match="no such file"):
        packer.build(ROWS, cache, **{**options, "tokenizer": tmp_path / "nowhere"})
    assert not rows_folder(cache).exists()
    with pytest.raises(InputError, match="nothing reads") as caught:
        packer.build([{**row, "persona": "A fisherman from the isle of Mull"} for row in ROWS], cache, **options)
    (kept,) = files_of(cache)
    assert kept.as_posix() in str(caught.value)


def test_rows_that_fail_half_way_leave_nothing(tokenizer, tmp_path):
    def failing():
        yield ROWS[0]
        raise OSError("gone")

    for rows in (failing(), {"train": ROWS, "eval": failing()}):
        with pytest.raises(OSError, match="gone"):
            packer.build(rows, tmp_path / "cache", **options_of(tokenizer))
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [".", "cache/", "a/../cache", "c[1]*"])
def test_rows_lie_beside_the_cache_whatever_its_name(place, tokenizer, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / ("here" if place == "." else "."))
    result = packer.build(ROWS, place, **options_of(tokenizer))
    (entry,) = result.manifest.inputs
    assert Path(entry.path).is_file()
    assert Path(entry.path).resolve().parent.parent == tmp_path
    assert packer.build(ROWS, place, **options_of(tokenizer)).built is False


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


def test_numbers_and_arrays_of_libraries_are_numbers_and_lists(tmp_path):
    row = {"input_ids": np.arange(3, dtype=np.int32), "n": np.int64(7), "x": np.array([math.nan, 1.0])}
    path = keep_rows([row], tmp_path, split="train", limit=None, note=print)
    assert json.loads(path.read_text("utf-8")) == {"input_ids": [0, 1, 2], "n": 7, "x": [None, 1.0]}


def test_half_of_a_surrogate_pair_is_written_as_an_escape_which_a_build_rejects(tmp_path):
    path = keep_rows([{"a": "\ud800", "x": math.nan}], tmp_path, split="train", limit=None, note=print)
    assert path.read_bytes() == b'{"a": "\\ud800", "x": null}\n'


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
    ("data", "options", "error", "said", "hint"),
    [
        (ROWS[0], {}, TypeError, "the fields of a row: messages", "[row]"),
        (7, {}, TypeError, "expected rows, files or a recipe", "list of dicts"),
        (None, {}, TypeError, "expected rows, files or a recipe", "list of dicts"),
        ({"train": "rows.jsonl"}, {}, TypeError, "expected rows", "list of dicts"),
        ([1, 2], {}, TypeError, "row 0 is 1", "rows are dicts"),
        (["a.jsonl", 3], {}, TypeError, "data is 3", "pathlib"),
        ([], {}, InputError, "no rows for split 'train'", "has been read"),
        (iter([]), {}, InputError, "no rows for split 'train'", "has been read"),
        (ROWS, {"tokenizer": Tokenizer()}, TypeError, "tokenizer is <", "tokenizer='org/model'"),
        (ROWS, {"tokenizer": None}, RecipeError, "no tokenizer", "tokenizer="),
        (ROWS, {"pak": {}}, RecipeError, "unknown key 'pak'", "did you mean 'pack'"),
        (ROWS, {"pack": {"blok_len": 1}}, RecipeError, "unknown key 'pack.blok_len'", "did you mean 'block_len'"),
        (ROWS, {"pack": 2048}, RecipeError, "pack: expected", "its keys are mode, block_len"),
        (ROWS, {"schema": "alpca"}, RecipeError, "schema: expected", "packer explain recipe"),
        (ROWS, {"limit": 0}, RecipeError, "limit: expected", "packer explain recipe"),
        (ROWS, {"split": "a/b"}, RecipeError, "split: expected the name of a split", "packer explain recipe"),
        ({"train": ROWS}, {"split": "x"}, RecipeError, "already given by split", "leave it out"),
        ("nowhere.jsonl", {}, InputError, "nowhere.jsonl: no such file", "looked in"),
    ],
)
def test_what_cannot_be_built_is_one_error_with_a_hint_and_leaves_nothing(
    data, options, error, said, hint, tokenizer, tmp_path
):
    cache = tmp_path / "cache"
    with pytest.raises(error) as caught:
        packer.build(data, cache, **{**options_of(tokenizer), **options})
    assert said in str(caught.value)
    assert hint is None or hint in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_other_things_is_refused_before_any_row_is_read(tokenizer, tmp_path):
    (tmp_path / "file").write_text("mine", "utf-8")
    with pytest.raises(UsageError, match="is not a cache"):
        packer.build(once(iter(lambda: pytest.fail("read"), 0)), tmp_path, **options_of(tokenizer))


def test_rows_that_are_all_rejected_stay_to_be_looked_at_and_go_with_the_next_build(tokenizer, tmp_path):
    cache, options = tmp_path / "cache", options_of(tokenizer)
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
    shutil.copytree(starter, "first")
    results, printed = [], []
    for folder in ("one", "one", "two"):  # built, nothing to do, and what a dry run says
        dry = folder == "two"
        results.append(str(packer.build("first/recipe.yaml", folder, dry_run=dry, jobs=1, progress=False)))
        command = ["build", "-c", "first/recipe.yaml", "-o", f"c/{folder}", "-j1", *["--dry-run"] * dry]
        printed.append(run(*command).stdout.replace("c/", ""))
    timeless = [re.sub(r"(in|,) [\d.]+k?( s| tokens/s)", "", text).strip() for text in [*results, *printed]]
    assert timeless[:3] == timeless[3:]
    assert "rows       200  197 kept, 3 rejected" in results[0] and "is up to date" in results[1]
    assert "nothing was written" in results[2]
    assert re.search(r"built one in [\d.]+ s, [\d.]+k? tokens/s", results[0])


def test_notes_of_a_build_reach_whoever_called_it(tokenizer, tmp_path, capsys):
    options = {**options_of(tokenizer), "progress": True}
    result = packer.build(ROWS, tmp_path / "cache", **options)
    (kept,) = files_of(tmp_path / "cache")
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


@pytest.mark.parametrize("is_chat", [True, False])
@pytest.mark.parametrize(("num_repeat", "is_told"), [(5, True), (4, False)])
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("When does the ferry leave from Oban? At six.", "begins with the whole question"),
        ("At six.\n\nHuman: And the next?\n\nAssistant: At ten.", "has further turns in its text"),
        ("At six.\nuser\nAnd the next?\nassistant\nAt ten.", "has further turns in its text"),
        ('["At six."]', "is a list written as text"),
        ("['At six.', \"At ten.\"]", "is a list written as text"),
    ],
)
def test_answers_that_are_hardly_meant_as_they_stand_are_reported(
    tokenizer, tmp_path, capsys, is_chat, num_repeat, is_told, answer, says
):
    asked = "When does the ferry leave from Oban?"
    said = [answer if number < num_repeat else "At six." for number in range(8)]
    chats = [
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": each}]} for each in said
    ]
    rows = chats if is_chat else [{"prompt": f"{asked}\n", "completion": each} for each in said]
    packer.build(rows, tmp_path / "cache", **{**options_of(tokenizer), "progress": True})
    assert (says in " ".join(capsys.readouterr().err.split())) == is_told


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (
            ["\n\n[Stopped by the user]"] * 3 + [""] * 27,
            "3 of its first 30 rows end with the line `[Stopped by the user]`",
        ),
        ([" END"] * 28 + [""] * 2, "28 of its first 30 rows end with the word `END`"),
        (["\n\n[Stopped by the user]"] * 2 + [""] * 28, None),
        ([" END"] * 20 + [""] * 10, None),
        (["\n```"] * 30, None),
        ([" <a>b</a>\n</c"] * 30, "30 of its first 30 rows end with the line `</c`"),
    ],
)
def test_marks_with_which_answers_end_are_reported(tokenizer, tmp_path, capsys, ends, says):
    rows = [{"prompt": f"{number}?", "completion": f"At {number}.{end}"} for number, end in enumerate(ends)]
    packer.build(rows, tmp_path / "cache", **{**options_of(tokenizer), "progress": True})
    told = " ".join(capsys.readouterr().err.split())
    assert says in told if says else "end with the" not in told


@pytest.mark.parametrize(
    ("begins", "says"),
    [
        (["analysis"] * 28 + [""] * 2, "28 of its first 30 rows begin their answer with the word `analysis`"),
        (["Thinking...\n"] * 30, "30 of its first 30 rows begin their answer with the line `Thinking...`"),
        (["analysis"] * 20 + [""] * 10, None),
        (["```\n"] * 30, None),
        (["Well. "] * 30, None),
    ],
)
def test_marks_with_which_answers_begin_are_reported(tokenizer, tmp_path, capsys, begins, says):
    rows = [{"prompt": f"{number}?", "completion": f"{begin}At {number}."} for number, begin in enumerate(begins)]
    packer.build(rows, tmp_path / "cache", **{**options_of(tokenizer), "progress": True})
    told = " ".join(capsys.readouterr().err.split())
    assert says in told if says else "begin their answer" not in told


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("[INST] 1+1? [/INST] 2.", "[INST]"),
        ("<start_of_turn>user\n1+1?<end_of_turn>\n<start_of_turn>model\n2.", "<start_of_turn>user"),
        ("system\nBe brief.\nThe sum is 2.", "system"),
        ("A system is a whole. [INST] is a mark.", None),
    ],
)
def test_texts_that_begin_as_prompts_do_are_reported(tokenizer, tmp_path, capsys, text, header):
    rows = [{"text": f"{text} ({number})"} for number in range(8)]
    packer.build(rows, tmp_path / "cache", **{**options_of(tokenizer), "progress": True})
    told = " ".join(capsys.readouterr().err.split())
    assert f"begin as prompts of a model do (`{header}`)" in told if header else "begin as prompts" not in told


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("### Human: 1+1?### Assistant: 2.", "'Human:' … 'Assistant:'"),
        ("Below is a task.\n\n### Instruction:\nAdd.\n\n### Response:\n2", "'Instruction:' … 'Response:'"),
        ("Frage: 1+1?\nAntwort: 2.\nFrage: 1+2?\nAntwort: 3.", "'Frage:' … 'Antwort:'"),
        ("**Patient:** 1+1?\n\n**Dr. Ode:** 2.", "'**Patient:**' … '**Dr. Ode:**'"),
        ("### 指示\n1+1?\n\n### 応答\n2", "'### 指示' … '### 応答'"),
        ("She asked the assistant: is it 2? Human: no.", None),
        ("Frage: 1+1?\nFrage: 1+2?\nAntwort: 3.", None),
        ("Title: One\nBy: Ann\nYear: 7\nText: It is one.", None),
    ],
)
def test_texts_that_are_dialogues_are_reported(tokenizer, tmp_path, capsys, text, headers):
    rows = [{"text": f"{text} ({number})"} for number in range(8)]
    packer.build(rows, tmp_path / "cache", **{**options_of(tokenizer), "progress": True})
    named = [{"sample": row["text"]} for row in rows]
    options = {**options_of(tokenizer), "progress": True, "columns": {"text": "sample"}}
    shown = [capsys.readouterr().err]
    packer.build(named, tmp_path / "named", **options)
    shown.append(capsys.readouterr().err)
    pq.write_table(
        pa.Table.from_pylist([row | {"at": dt.date(2024, 1, 1)} for row in rows]), tmp_path / "dated.parquet"
    )
    packer.build(tmp_path / "dated.parquet", tmp_path / "dated", **{**options_of(tokenizer), "progress": True})
    shown.append(capsys.readouterr().err)
    for said in shown:
        assert ("texts look like dialogues" in said) is (headers is not None)
        assert headers is None or headers in said


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"prompt": "When?", "completion": "At six."}, "{instruction: prompt, output: completion}"),
        ({"prompt": "When?", "completion": "At six.", "label": True}, "{instruction: prompt, output: completion}"),
        ({"prompt": "When?", "chosen": "At six.", "rejected": "At ten."}, "{instruction: prompt}"),
        ({"q": "When?", "a": "At six."}, "{instruction: q, output: a}"),
        ({"prompt": "When?", "response_1": "At six.", "response_2": "At ten.", "label": "response_1"}, None),
        ({"instruction": "When?", "output": "At six."}, None),
        ({"prompt": [{"role": "user", "content": "When?"}], "completion": "At six."}, None),
    ],
)
def test_prompts_that_are_texts_are_reported_with_what_uses_the_template(tokenizer, tmp_path, capsys, row, columns):
    options = {**options_of(tokenizer), "progress": True, "pack": {"mode": "none"}}
    own = {"prompt": "q", "completion": "a"} if "q" in row else {}
    packer.build([row], tmp_path / "cache", **options, columns=own)
    said = " ".join(capsys.readouterr().err.split())
    _, _, hint = said.partition("without the chat template; ")
    assert settings_in(hint) == ([] if columns is None else [f"sources.columns={columns}"])
    if columns is not None:
        packer.build([row], tmp_path / "chat", **options, columns=yaml.safe_load(columns))
        with Cache.open(tmp_path / "chat") as cache:
            (name,) = [each.path for each in cache.manifest.inputs]
            view = view_row(cache, name, 0)
        text = "".join(run.text for run in view.documents[0].runs)
        assert "user\nWhen?" in text and "without the chat template" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["- \n" * 20_000, "User: no answer\n" * 4000, "User:" + " " * 40_000])
def test_long_texts_are_searched_for_headers_in_one_pass(tokenizer, tmp_path, capsys, text):
    """A pattern that begins anew in every line would take minutes for one of them."""
    options = options_of(tokenizer) | {"pack": {"mode": "none"}, "progress": True}
    packer.build([{"text": text}], tmp_path / "cache", **options)
    assert "look like dialogues" not in capsys.readouterr().err


@pytest.mark.parametrize(("role", "stops"), [("prompter", True), ("user", True), ("editor", False), (3, False)])
def test_a_build_asks_about_texts_that_are_single_messages(tokenizer, tmp_path, role, stops):
    rows = [{"text": f"1+{number}?", "role": role, "parent_id": None} for number in range(8)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    for source in (rows, tmp_path / "rows.parquet"):
        with pytest.raises(InputError, match="`role`") if stops else nullcontext():
            packer.build(source, tmp_path / "cache", force=True, **options_of(tokenizer))
        packer.build(source, tmp_path / "cache", force=True, ignore=["role"], **options_of(tokenizer))


@pytest.mark.parametrize(
    ("field", "key", "shared", "speakers", "is_talk"),
    [
        ("user", "thread", "000111", "010232", True),
        ("sender_id", "topic", "000111", "010232", True),
        ("speaker", "channel_id", "000000", "010212", True),
        ("author", "channel", "010101", "001122", False),
        ("author", "thread", "012345", "010101", False),
        ("author", "category", "000000", "010101", False),
        ("author", "category", "000111", "012345", False),
        ("editor", "thread", "000111", "010232", False),
    ],
)
def test_speakers_with_ids_who_take_turns_within_what_they_share_make_single_messages(
    tokenizer, tmp_path, field, key, shared, speakers, is_talk
):
    rows = [
        {"text": f"1+{number}?", key: f"discussion-{value}", field: f"U{name}"}
        for number, (value, name) in enumerate(zip(shared, speakers, strict=True))
    ]
    with pytest.raises(InputError, match=f"`{field}`") if is_talk else nullcontext() as caught:
        packer.build(rows, tmp_path / "cache", force=True, **options_of(tokenizer))
    assert not is_talk or f"the same `{key}`" in caught.value.hint
    packer.build(rows, tmp_path / "cache", force=True, ignore=[field], **options_of(tokenizer))
