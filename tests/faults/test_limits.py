"""File handles, memory, processes that run out; files and recipes that unfold to far more than they are."""

import errno
import resource
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.amount import amount
from faults.jobs import Job
from faults.test_kill import CODE

from packer.errors import InputError, RecipeError, ResourceError
from packer.host.limits import out_of, path_errors, storage_errors
from packer.load.batch_view import read_state
from packer.pipeline.workers.executor import WorkerDiedError, run_tasks
from packer.recipe.recipe import load_recipe
from packer.source import table_files
from packer.source.files import data_set_splits
from packer.source.table_files import arrow_sizes, read_arrow, row_groups
from packer.source.tables import table_rows


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
        list(table_rows(tmp_path / "a.parquet", "parquet", ["text"], max_row_bytes=99, columns={}))
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


def aborts() -> object:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def work(_: int) -> None:
        signal.raise_signal(signal.SIGABRT)

    return work


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not tell how a copy ended")
def test_a_worker_that_is_aborted_is_reported_by_its_signal() -> None:
    with pytest.raises(WorkerDiedError, match="was ended by SIGABRT, most often for lack of memory or threads"):
        list(run_tasks(aborts, (), [1, 2, 3, 4], jobs=2))


def test_a_small_parquet_file_that_decodes_to_gigabytes_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch, tally
) -> None:
    """More than 256 MiB; in the small part, where the limit is lower, 16."""
    limit, path = amount(small=2**24, full=table_files.MAX_DECODED_BYTES), tmp_path / "cell.parquet"
    monkeypatch.setattr(table_files, "MAX_DECODED_BYTES", limit)
    pq.write_table(pa.table({"text": ["x" * (limit + 1)]}), path, compression="zstd")
    assert path.stat().st_size < 60_000
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(InputError, match=r"decodes to [\d,]+"):
        list(table_rows(path, "parquet", ["text"], max_row_bytes=99, columns={}))
    assert pa.default_memory_pool().max_memory() == before
    tally("decompression bombs", tried=1, held=1)


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_small_arrow_file_that_decodes_to_gigabytes_is_refused_before_it_is_decoded(
    dictionary: bool, tmp_path: Path, monkeypatch, tally
) -> None:
    limit, path = amount(small=2**24, full=table_files.MAX_DECODED_BYTES), tmp_path / "cell.arrow"
    monkeypatch.setattr(table_files, "MAX_DECODED_BYTES", limit)
    text = pa.array(["x" * (limit + 1)])
    table = pa.table({"input_ids": text.dictionary_encode() if dictionary else text})
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    assert path.stat().st_size < 60_000
    before = pa.default_memory_pool().max_memory()
    for read in (
        lambda: [*table_rows(path, "arrow", ["input_ids"], max_row_bytes=99, columns={})],
        lambda: row_groups(path, "arrow"),
    ):
        with pytest.raises(InputError, match=r"decodes to [\d,]+"):
            read()
    schema, (size,) = arrow_sizes(path)
    with pytest.raises(ValueError, match=r"decodes to [\d,]+"):
        read_arrow(path, size, schema.names)
    assert pa.default_memory_pool().max_memory() == before
    tally("decompression bombs", tried=3, held=3)


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(2**31 - 1),
        pa.Array.from_buffers(pa.struct([]), 2**31 - 1, [None], children=[]),
        pa.Array.from_buffers(pa.list_(pa.int32(), 0), 2**31 - 1, [None], children=[pa.array([], pa.int32())]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_file_that_claims_rows_without_bytes_is_refused(column: pa.Array, tmp_path: Path, tally) -> None:
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
    for name in ("recipe.yaml", "state.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(6 * 2**30)
    tracemalloc.start()
    with pytest.raises(RecipeError, match="has more than 67,108,864 bytes"):
        load_recipe(tmp_path / "recipe.yaml")
    with pytest.raises(InputError, match="has more than 67,108,864 bytes"):
        read_state(tmp_path / "state.json")
    with pytest.raises(InputError, match="has more than 67,108,864 bytes"):
        data_set_splits(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()
    tally("small files of gigabytes", tried=3, held=3)


@pytest.mark.parametrize("form", ["[{}]", "{{a: {0}, b: {0}, c: {0}, d: {0}, e: {0}, f: {0}, g: {0}, h: {0}}}"])
def test_aliases_that_stand_for_billions_of_values_are_refused(form: str, tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    for i in range(1, 12):
        parts = form.format(f"*a{i - 1}" if "0" in form else ", ".join([f"*a{i - 1}"] * 8))
        lines.append(f"a{i}: &a{i} {parts}")
    (tmp_path / "recipe.yaml").write_text("\n".join(lines))
    with pytest.raises(RecipeError, match=r"its aliases \(\*name\) stand for too many values, more than 1,000,000"):
        load_recipe(tmp_path / "recipe.yaml")
