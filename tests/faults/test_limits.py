"""File handles, memory, processes that run out; files and recipes that unfold to far more than they are."""

import errno
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.amount import amount
from faults.jobs import Job
from faults.test_kill import CODE
from worker_tasks import aborting

from packer.errors import CheckError, InputError, RecipeError, ResourceError
from packer.host.files import out_of, path_errors, storage_errors
from packer.pipeline.partition import JOURNALS
from packer.pipeline.workers.executor import WorkerDiedError, run_tasks
from packer.recipe.recipe import load_recipe
from packer.source import table_files
from packer.source.decode import Refused
from packer.source.files import data_set_splits
from packer.source.table_files import row_groups
from packer.source.tables import table_rows
from packer.store.files import CacheFiles
from packer.store.manifest import StoredTable


@pytest.mark.parametrize("num_files", [12, pytest.param(20, marks=pytest.mark.slow)])
def test_too_few_file_handles_are_reported_with_the_limit(num_files: int, tiny_job: Job, tmp_path: Path, tally) -> None:
    words = [*tiny_job.command(tmp_path / "cache"), "-j", "8"]
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({num_files}, {num_files})); "
    done = subprocess.run([sys.executable, "-c", limit + CODE, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stderr
    assert "too many open files" in done.stderr
    assert "hint: raise `ulimit -n`, or use fewer processes: -j 1" in done.stderr
    tally("too few file handles", tried=1, held=1)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), pa.lib.ArrowMemoryError("malloc failed"), OSError(errno.ENOMEM, "no"), OSError(errno.EMFILE, "no")],
)
def test_what_ran_out_is_never_damage(error: BaseException, tmp_path: Path, monkeypatch) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")

    def fail(*_: object, **__: object) -> object:
        raise error

    monkeypatch.setattr("packer.source.table_files.open_parquet", fail)
    with pytest.raises(ResourceError, match=r"a\.parquet: cannot be read: (out of memory|too many open files)"):
        list(table_rows(tmp_path / "a.parquet", "parquet", {"text": True}, max_row_bytes=99, columns={}))
    with pytest.raises(ResourceError), path_errors():
        raise error
    if isinstance(error, OSError):
        with pytest.raises(ResourceError, match="cannot read x"), storage_errors("read", "x"):
            raise error


def test_threads_that_cannot_be_started_are_reported_and_other_errors_are_left_alone() -> None:
    told = out_of(RuntimeError("can't start new thread"), "cannot render")
    assert told is not None
    assert told.message.startswith("cannot render: no more processes or threads")
    assert out_of(RuntimeError("something else")) is None
    assert out_of(FileNotFoundError(errno.ENOENT, "no")) is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not tell how a copy ended")
def test_a_worker_that_is_aborted_is_reported_by_its_signal() -> None:
    with pytest.raises(WorkerDiedError, match="was ended by SIGABRT, most often for lack of memory or threads"):
        list(run_tasks(aborting, [1, 2, 3, 4], jobs=2))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrow dictionary"])
def test_a_small_table_that_decodes_to_gigabytes_is_refused_before_it_is_decoded(
    kind: str, tmp_path: Path, monkeypatch, tally
) -> None:
    """More than 256 MiB; in the small part, where the limit is lower, 16."""
    form, limit = kind.partition(" ")[0], amount(small=2**24, full=table_files.MAX_DECODED_BYTES)
    monkeypatch.setattr(table_files, "MAX_DECODED_BYTES", limit)
    text, path = pa.array(["x" * (limit + 1)]), tmp_path / f"cell.{form}"
    table = pa.table({"input_ids": text.dictionary_encode() if "dictionary" in kind else text})
    reads: list[Callable[[], object]] = [
        lambda: list(table_rows(path, form, {"input_ids": True}, max_row_bytes=99, columns={}))
    ]
    if form == "parquet":
        pq.write_table(table, path, compression="zstd")
    else:
        reads.append(lambda: row_groups(path, form))
        with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
    assert path.stat().st_size < 60_000
    before = pa.default_memory_pool().max_memory()
    for read in reads:
        with pytest.raises(InputError, match=r"decodes to [\d,]+"):
            read()
    assert pa.default_memory_pool().max_memory() == before
    tally("decompression bombs", tried=len(reads), held=len(reads))


def test_dictionaries_that_add_to_one_another_are_bounded_together(tmp_path: Path, monkeypatch, tally) -> None:
    limit, path = 2**24, tmp_path / "deltas.arrow"
    monkeypatch.setattr(table_files, "MAX_DECODED_BYTES", limit)
    schema = pa.schema({"text": pa.dictionary(pa.int32(), pa.string())})
    options = pa.ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=True)
    values: list[str] = []
    with pa.ipc.new_stream(path, schema, options=options) as writer:
        for number in range(5):  # the dictionary of each record batch is a quarter of the limit, and one more value
            values.append(str(number) * (limit // 4))
            column = pa.DictionaryArray.from_arrays(pa.array([number], pa.int32()), pa.array(values))
            writer.write_batch(pa.record_batch([column], schema=schema))
    assert path.stat().st_size < 60_000
    with pytest.raises(InputError, match=r"decodes to [\d,]+"):
        row_groups(path, "arrow")
    tally("decompression bombs", tried=1, held=1)


REPEATED = """
import json, sys
from pathlib import Path
from packer.audit.foreign import open_foreign
from packer.errors import InputError
from packer.source import table_files, tables
from packer.host.watchdog import limit_process

limit_process()
table_files.MAX_GROWTH_BYTES = tables.MAX_GROWTH_BYTES = 2**25
for path in map(Path, sys.argv[1:]):
    try:
        if path.stem == "ids":
            found = sum(1 for _ in open_foreign(path)[1][0].read([0]))
        else:
            found = sum(1 for _ in tables.table_rows(path, path.suffix[1:], {"text": True}, max_row_bytes=2**21, columns={}))
    except InputError as error:
        found = str(error)
    print(json.dumps([path.stem, found]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
def test_a_value_that_a_table_repeats_is_not_decoded_to_gigabytes(tmp_path: Path, tally) -> None:
    """No footer has their size: a page holds one value, a prefix, or a null, and how often. Limits are a sixteenth here.

    Rows that share a long text are read one by one.
    """
    long, times = "a" * 2**20, 100

    def write(name: str, column: pa.Array, column_name: str = "text", **options: Any) -> Path:
        path = tmp_path / name
        pq.write_table(pa.table({column_name: column}), path, compression="zstd", store_schema=False, **options)
        return path

    def one_list(values: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)

    shared = pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([long]))
    in_page = {"write_batch_size": 2**30, "data_page_size": 2**31 - 1}
    delta = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    refused = [
        write("dictionary.parquet", shared),
        write("list.parquet", one_list(shared)),
        write("prefixes.parquet", pa.array([long] * times), **delta),
        write("nulls.parquet", one_list(pa.nulls(2**23, pa.string())), **in_page),
        write("ids.parquet", one_list(pa.repeat(pa.scalar(0), 2**23)), "input_ids", **in_page),
    ]
    assert all(path.stat().st_size < 2000 for path in refused)
    read = tmp_path / "shared.arrow"
    with pa.ipc.new_file(read, pa.schema({"text": shared.type})) as writer:
        writer.write_table(pa.table({"text": shared}))
    # A process without memory that it took before, and an allocator that takes none in advance.
    words = [sys.executable, "-c", REPEATED, *map(str, [*refused, read])]
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    found = dict(map(json.loads, done.stdout.splitlines()))
    assert found.pop("shared") == times
    assert [*found] == ["dictionary", "list", "prefixes", "nulls", "ids"]
    assert [said for said in found.values() if "MiB of memory" not in str(said)] == []
    tally("decompression bombs", tried=6, held=6)


@pytest.mark.parametrize("kind", [pa.null(), pa.struct([]), pa.list_(pa.int32(), 0)], ids=str)
def test_a_file_that_claims_rows_without_bytes_is_refused(kind: pa.DataType, tmp_path: Path, tally) -> None:
    children = [pa.nulls(0, kind.field(number).type) for number in range(kind.num_fields)]
    column = pa.Array.from_buffers(kind, 2**31 - 1, [None], children=children)
    path = tmp_path / "rows.arrow"
    with pa.ipc.new_file(path, pa.schema({"messages": column.type})) as writer:
        writer.write_batch(pa.record_batch({"messages": column}))
    with pytest.raises(InputError, match="claims 2,147,483,647 rows in"):
        row_groups(path, "arrow")
    pq.write_table(pa.table({"text": pa.nulls(2**21, pa.string())}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="claims 2,097,152 rows in"):
        row_groups(tmp_path / "rows.parquet", "parquet")
    tally("rows without bytes", tried=2, held=2)


def test_small_files_of_gigabytes_are_refused_without_being_held(tmp_path: Path, tally) -> None:
    """As a folder that somebody sent may have them: they take no room on the disk."""
    for name in ("recipe.yaml", "state.json", "model/1/tokenizer.json", f"{JOURNALS[StoredTable]}/1.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / name).open("wb") as file:
            file.truncate(6 * 2**30)
    tracemalloc.start()
    with pytest.raises(RecipeError, match="has more than 67,108,864 bytes"):
        load_recipe(tmp_path / "recipe.yaml")
    with pytest.raises(InputError, match="has more than 67,108,864 bytes"):
        data_set_splits(tmp_path)
    cache = CacheFiles(tmp_path)
    with pytest.raises(CheckError, match=r"model/1/tokenizer\.json: expected at most 67108864 bytes, found"):
        cache.read("model/1/tokenizer.json")
    assert [*cache.contents(JOURNALS[StoredTable], ["1.json"])] == []
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()
    tally("small files of gigabytes", tried=4, held=4)


@pytest.mark.parametrize("form", ["[{}]", "{{a: {0}, b: {0}, c: {0}, d: {0}, e: {0}, f: {0}, g: {0}, h: {0}}}"])
def test_aliases_that_stand_for_billions_of_values_are_refused(form: str, tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    for i in range(1, 12):
        parts = form.format(f"*a{i - 1}" if "0" in form else ", ".join([f"*a{i - 1}"] * 8))
        lines.append(f"a{i}: &a{i} {parts}")
    (tmp_path / "recipe.yaml").write_text("\n".join(lines))
    with pytest.raises(RecipeError, match=r"its aliases \(\*name\) stand for too many values, more than 1,000,000"):
        load_recipe(tmp_path / "recipe.yaml")


@pytest.mark.parametrize("zeros", [10, 100, 10**9])
def test_a_decimal_that_python_has_not_is_no_value_or_one_error(zeros: int, tmp_path: Path, tally) -> None:
    content = pa.py_buffer((5).to_bytes(16, "little"))
    score = pa.Array.from_buffers(pa.decimal128(38, -zeros), 1, [None, content])
    table = pa.table({"text": ["a"], "score": score})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    read = partial(table_rows, tmp_path / "a.arrow", "arrow", max_row_bytes=2**20, columns={})
    (row,) = read({"text": True}, fields=["score"])
    assert row.fields == ({"score": 5 * 10**10} if zeros == 10 else {})
    if zeros == 10:
        (row,) = read({"score": True})
        assert isinstance(row.content, Refused)
    else:
        with pytest.raises(InputError, match="cannot be read as an Arrow file"):
            list(read({"score": True}))
    tally("decimals with zeros", tried=1, held=1)
