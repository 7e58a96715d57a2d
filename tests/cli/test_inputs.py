"""The same rows, given in every way a user has them: the same documents, and commands that take them up again."""

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chats import chat
from command_line import assert_refused, on_terminal, run
from processes import HANG_S
from written_formats import FORMATS, as_jsonl, as_parquet, as_table

from packer.store.manifest import read_manifest

CHATS = [chat(f'Say "{i}",\nand stop; ünïcode 🎉\ttab', f"{i}.", id=f"row {i}") for i in range(7)]
CHATS[3]["messages"][1]["role"] = "nobody"
"""The fourth is rejected."""


def build(source, cache, starter, *arguments, **options):
    return run("build", source, "-o", cache, "--tokenizer", starter / "tokenizer", "-j", "1", *arguments, **options)


@pytest.fixture(scope="module")
def expected(starter, tmp_path_factory):
    """The content fingerprint of the rows as JSON lines."""
    folder = tmp_path_factory.mktemp("expected")
    (folder / "rows.jsonl").write_bytes(as_jsonl(CHATS))
    build(folder / "rows.jsonl", folder / "cache", starter)
    return read_manifest(folder / "cache").content_fingerprint


def saved(folder):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(CHATS).save_to_disk(folder)
    return folder


@pytest.mark.parametrize("name", ["rows.csv.zst", "rows.parquet", "saved"])
def test_every_command_takes_up_the_rows_of_every_format(tmp_path, starter, expected, name):
    source, cache = tmp_path / name, tmp_path / "cache"
    if name == "saved":
        saved(source)
    else:
        source.write_bytes(FORMATS[name](CHATS))
    assert "6 kept, 1 rejected" in build(source, cache, starter).stdout
    manifest = read_manifest(cache)
    assert manifest.content_fingerprint == expected
    (line,) = map(json.loads, (cache / "rejected.jsonl").read_text("utf-8").splitlines())
    assert (line["source"], line["row"], line["code"]) == (manifest.inputs[0].path, 3, "unknown_role")
    assert ("line" in line) == (manifest.inputs[0].format in {"jsonl", "csv", "tsv"})
    assert "up to date" in build(source, cache, starter).stdout
    assert "7 of 7 rows" in run("verify", cache, "--full", "--sources", "/", "--reencode").stdout
    shown = run("inspect", cache, "--row", f"{manifest.inputs[0].path}:5").stdout
    assert "5." in shown
    rejected = run("preview", source, "--rejected", "--tokenizer", starter / "tokenizer").stdout
    assert "unknown_role" in rejected


@pytest.mark.parametrize("limit", [None, 5])
def test_every_format_yields_the_same_documents(tmp_path, starter, limit):
    """One build with a split for each format; documents are compared column by column."""
    sources = []
    for number, (name, write) in enumerate(FORMATS.items()):
        (tmp_path / name).write_bytes(write(CHATS))
        sources.append({"path": name, "split": f"s{number}", "limit": limit})
    sources.append({"path": saved(tmp_path / "saved").name, "split": "saved", "limit": limit})
    (tmp_path / "recipe.yaml").write_text(json.dumps({"sources": sources, "tokenizer": str(starter / "tokenizer")}))
    run("build", "-c", tmp_path / "recipe.yaml", "-o", tmp_path / "cache", "-j", "1")
    tables = {}
    for shard in read_manifest(tmp_path / "cache").document_shards:
        rows = pa.ipc.open_file(tmp_path / "cache" / shard.path).read_all().to_pylist()
        tables.setdefault(shard.split, []).extend(rows)
    first = tables.pop("s0")
    assert len(first) == (6 if limit is None else 4)
    assert list(tables.values()) == [first] * len(FORMATS)


def test_every_split_of_a_saved_dict_is_a_split_unless_one_is_named(tmp_path, starter):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(CHATS)
    datasets.DatasetDict({"train": rows, "test": rows.select([0, 1])}).save_to_disk(tmp_path / "saved")
    build(tmp_path / "saved", tmp_path / "cache", starter)
    splits = [(entry.split, entry.num_rows) for entry in read_manifest(tmp_path / "cache").inputs]
    assert splits == [("train", 7), ("test", 2)]
    build(tmp_path / "saved" / "test", tmp_path / "other", starter, "--split", "eval")
    assert [(entry.split, entry.num_rows) for entry in read_manifest(tmp_path / "other").inputs] == [("eval", 2)]


EMPTY_SHARDS = {
    "empty.parquet": as_table(CHATS).slice(0, 0),
    "empty.jsonl": b"",
    "empty.json": b"[]",
    "empty.csv": b"prompt,completion\n",
    "empty.jsonl.gz": gzip.compress(b"\n", mtime=0),
    "without columns.parquet": pa.table({}),
}


def test_shards_without_rows_among_others_are_passed_over_and_reported(tmp_path, starter, expected):
    for name, content in EMPTY_SHARDS.items():
        if isinstance(content, bytes):
            (tmp_path / name).write_bytes(content)
        else:
            pq.write_table(content, tmp_path / name)
    (tmp_path / "a.jsonl").write_bytes(as_jsonl(CHATS))
    made = build(tmp_path / "*.[jpc]*", tmp_path / "cache", starter)
    assert f"no rows in {tmp_path}/empty.csv, " in made.stderr and " and 3 more" in made.stderr
    manifest = read_manifest(tmp_path / "cache")
    assert (manifest.content_fingerprint, len(manifest.inputs)) == (expected, 1)
    assert "up to date" in build(tmp_path / "*.[jpc]*", tmp_path / "cache", starter).stdout
    (tmp_path / "a.jsonl").write_bytes(b"")
    output = build(tmp_path / "*.[jpc]*", tmp_path / "other", starter, exit_code=3).output
    assert f"none of its {len(EMPTY_SHARDS) + 1} files has a row" in output


def test_a_table_of_no_bytes_is_no_shard_without_rows(tmp_path, starter):
    for name, rows in (("a.parquet", as_parquet(CHATS)), ("b.parquet", b"")):
        (tmp_path / name).write_bytes(rows)
    output = build(tmp_path / "*.parquet", tmp_path / "cache", starter, exit_code=3).output
    assert "b.parquet: has 0 bytes; a Parquet file without rows is not" in output


def test_a_split_without_rows_is_reported_and_not_built(tmp_path, starter, expected):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(CHATS)
    datasets.DatasetDict({"train": rows, "test": rows.select([])}).save_to_disk(tmp_path / "saved")
    told = build(tmp_path / "saved", tmp_path / "cache", starter).stderr
    assert f"{tmp_path}/saved: split 'test' holds no rows" in told
    assert read_manifest(tmp_path / "cache").content_fingerprint == expected
    run("preview", tmp_path / "saved", "--tokenizer", starter / "tokenizer")
    output = build(tmp_path / "saved" / "test", tmp_path / "other", starter, exit_code=3).output
    assert f"{tmp_path}/saved/test: holds no rows" in output


def test_standard_input_is_an_input_like_others(tmp_path, starter, expected):
    rows, cache = as_parquet(CHATS), tmp_path / "cache"
    build("-", cache, starter, stdin=rows)
    manifest = read_manifest(cache)
    assert (manifest.content_fingerprint, manifest.inputs[0].path) == (expected, "-")
    assert json.loads((cache / "rejected.jsonl").read_text("utf-8"))["source"] == "-"
    assert "up to date" in build("-", cache, starter, stdin=rows).stdout
    assert "not read: it was standard input" in run("verify", cache, "--sources", "/", exit_code=1, stdin=rows).stdout
    assert_refused("standard input cannot be read again", "verify", cache, "--sources", "-", exit_code=2)
    assert "unknown_role" in run("preview", "-", "--rejected", "--tokenizer", starter / "tokenizer", stdin=rows).stdout
    assert "row 2" in run("preview", "-", "--row", "-:2", "--tokenizer", starter / "tokenizer", stdin=rows).stdout


AS_CSV = ("--set", "sources.format=csv")


def test_a_build_from_standard_input_goes_on_where_it_was_ended(tmp_path, starter, expected, monkeypatch):
    from packer.errors import StorageError
    from packer.pipeline import run as run_module

    def full(*_, **__):
        raise StorageError("no room")

    rows = FORMATS["rows.csv.zst"](CHATS)
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "commit", full)
        build("-", tmp_path / "cache", starter, *AS_CSV, exit_code=5, stdin=rows)
    again = json.loads(build("-", tmp_path / "cache", starter, *AS_CSV, "--json", stdin=rows).stdout)
    assert (again["partitions_built"], again["partitions_reused"]) == (0, 1)
    assert read_manifest(tmp_path / "cache").content_fingerprint == expected


def test_a_build_from_a_pipe_ends_and_leaves_no_file_behind(tmp_path, starter, expected):
    words = ["build", "-", "-o", "cache", "--tokenizer", starter / "tokenizer", "-j", "2"]
    command = [sys.executable, "-m", "packer", *words]
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        command, input=as_jsonl(CHATS), cwd=tmp_path, capture_output=True, timeout=HANG_S,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert read_manifest(tmp_path / "cache").content_fingerprint == expected
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (b"\n  \r\n", "holds no rows"),
        (b'{"q": 1}\n', "its rows match no schema"),
        (FORMATS["rows.jsonl.gz"](CHATS)[:-9], "gzip data is damaged or cut off"),
    ],
)
def test_what_is_wrong_with_standard_input_is_an_input_error(tmp_path, starter, rows, said):
    output = " ".join(build("-", tmp_path / "cache", starter, exit_code=3, stdin=rows).output.split())
    assert f"standard input: {said}" in output


def test_a_terminal_is_no_standard_input(tmp_path, starter):
    words = ["build", "-", "-o", tmp_path / "cache", "--tokenizer", starter / "tokenizer"]
    told = on_terminal(*words, exit_code=2)
    assert "nothing is piped in" in told and "hint: " in told


def test_the_wrong_schema_is_reported_with_the_right_one(tmp_path, starter):
    for name in ("rows.jsonl", "rows.parquet"):
        (tmp_path / name).write_bytes(FORMATS[name](CHATS))
        output = build(tmp_path / name, tmp_path / "cache", starter, "--schema", "alpaca", exit_code=3).output
        assert "`messages`" in output and "fit --schema messages; so does --schema auto" in " ".join(output.split())


def test_files_of_one_glob_may_differ_in_their_columns(tmp_path, starter):
    (tmp_path / "a.parquet").write_bytes(as_parquet([{"instruction": "a", "output": "b"}]))
    (tmp_path / "b.parquet").write_bytes(as_parquet([{"output": "b", "instruction": "a", "input": "c", "more": 1}]))
    (tmp_path / "c.parquet").write_bytes(as_parquet([{"prompt": "a", "completion": "b"}]))
    build(tmp_path / "*.parquet", tmp_path / "cache", starter)
    assert [entry.schema for entry in read_manifest(tmp_path / "cache").inputs] == ["alpaca", "alpaca", "completion"]
    output = build(tmp_path / "*.parquet", tmp_path / "other", starter, "--schema", "alpaca").output
    assert "2 kept, 1 rejected" in output and "unknown_schema" in output


PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "inputs.md"


def test_the_examples_of_the_page_about_inputs_run(tmp_path, starter, monkeypatch):
    datasets = pytest.importorskip("datasets")
    page = PAGE.read_text("utf-8")
    alpaca = [{"instruction": "Add", "input": "1", "output": "2"}, {"instruction": "Go", "input": "", "output": "On"}]
    monkeypatch.chdir(tmp_path)
    Path("tokenizer").symlink_to(starter / "tokenizer")
    Path("parts").mkdir()
    for name, form, rows in (
        ("chat.jsonl", "rows.jsonl", CHATS),
        ("chat.parquet", "rows.parquet", CHATS),
        ("chat.jsonl.gz", "rows.jsonl.gz", CHATS),
        ("parts/a.jsonl.gz", "rows.jsonl.gz", CHATS[:2]),
        ("parts/b.jsonl.gz", "rows.jsonl.gz", CHATS[2:]),
        ("alpaca.csv", "rows.csv", alpaca),
        ("questions.parquet", "rows.parquet", [{"question": "a", "answer": "b"}]),
        ("held_out.jsonl.zst", "rows.jsonl.zst", CHATS),
    ):
        Path(name).write_bytes(FORMATS[form](rows))
    datasets.Dataset.from_list(CHATS).save_to_disk("saved")
    Path("recipe.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0])
    lines = "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).splitlines()
    for line in lines:
        piped, _, command = line.rpartition(" | ")
        stdin = gzip.decompress(Path(piped.removeprefix("zcat ")).read_bytes()) if piped else None
        program, name, *arguments = shlex.split(command)
        assert program == "packer"
        run(name, *arguments, *["-j", "1"] * (name == "build"), stdin=stdin)
    made = {path.parent.name: read_manifest(path.parent) for path in tmp_path.glob("from_*/manifest.json")}
    assert len(made) == len(lines) - 1 == 7
    contents = {made[f"from_{name}"].content_fingerprint for name in ("jsonl", "parquet", "saved", "pipe")}
    assert len(contents) == 1
    assert [entry.split for entry in made["from_recipe"].inputs] == ["train", "train", "eval"]
