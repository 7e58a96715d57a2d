"""The fork server: what is loaded in it, when it is started, and that it ends."""

import ast
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext, suppress
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

import pytest
import twins
from processes import HANG_S, is_running, run_forked
from worker_tasks import measuring

from packer.pipeline.workers import fork_server
from packer.pipeline.workers.executor import run_tasks
from packer.pipeline.workers.fork_server import begin_loading
from packer.recipe.recipe import make_recipe

pytestmark = pytest.mark.skipif(not fork_server.FORKS, reason="no process is forked on this system")


@pytest.fixture
def started(monkeypatch):
    """What servers are started with; none is."""
    seen = []
    monkeypatch.setattr(
        fork_server, "fork_server", lambda *given, **named: seen.append((given, named)) or nullcontext()
    )
    monkeypatch.setattr(fork_server, "default_jobs", lambda: 2)
    monkeypatch.setattr(fork_server, "_WORTH_A_FORK", 500)
    return seen


def recipe_of(path: Path, tokenizer: Path, **keys):
    return make_recipe({"sources": [{"path": str(path)}], "tokenizer": str(tokenizer), **keys})


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"{}\n" * 400)
    return path


@pytest.mark.parametrize("why", ["small", "one job", "a cache is there", "no tokenizer", "a pattern", "a bucket"])
def test_it_is_not_started_where_workers_may_not_be_needed(why, rows, starter, started, tmp_path):
    path, cache, jobs, tokenizer = rows, tmp_path / "cache", None, starter / "tokenizer"
    if why == "small":
        path.write_bytes(b"{}\n" * 100)
    elif why == "one job":
        jobs = 1
    elif why == "a cache is there":
        cache.mkdir()
        (cache / "manifest.json").write_bytes(b"{}")
    elif why == "no tokenizer":
        tokenizer = tmp_path / "none"
    elif why == "a pattern":
        path = tmp_path / "*.jsonl"
    else:
        cache = Path("s3://bucket/cache")
    with begin_loading(recipe_of(path, tokenizer), cache, jobs):
        assert started == []


COMMAND = """
import sys
from packer.pipeline.workers import fork_server

from packer.model import backend

real, load_encoders = fork_server.fork_server, backend.load_encoders
started, loaded = [], []

def noted(*given, **named):
    if given:
        started.append("packer.pipeline.run" in sys.modules)
    return real(*given, **named)

def noted_load(tokenizer, engine, size):
    loaded.append((engine, "numpy" in sys.modules))
    load_encoders(tokenizer, engine, size)

fork_server.fork_server, backend.load_encoders = noted, noted_load
backend.load_meanwhile = lambda load: load()  # at once, so that what is imported by then is no matter of luck
fork_server.default_jobs, fork_server._WORTH_A_FORK = lambda: 2, 500
from packer_cli.main import cli
try:
    cli.main(sys.argv[1:])
except SystemExit as end:
    print((loaded, started[:1], end.code, fork_server.forkserver._forkserver._forkserver_pid))
"""


@pytest.mark.parametrize("jobs", ["2", pytest.param("1", marks=pytest.mark.slow)])
def test_the_command_begins_to_load_before_it_imports_the_stages_and_ends_the_server(jobs, starter, tmp_path):
    rows, tokenizer = starter / "data" / "chat.jsonl", starter / "tokenizer"
    command = [sys.executable, "-c", COMMAND, "build", rows, "--tokenizer", tokenizer, "-o", tmp_path / "c"]
    limit = ["--set", "sources.limit=40", "--json", "-j", jobs]
    found = subprocess.run([*map(str, command), *limit], capture_output=True, text=True, timeout=HANG_S, check=False)
    loaded, started, *others = ast.literal_eval(found.stdout.splitlines()[-1])
    assert loaded == [("reference" if jobs == "2" else "auto", False)], found.stderr
    assert (started, others) == ([False] if jobs == "2" else [], [0, None]), found.stderr


def test_the_server_is_ended_after_a_block_that_raises(rows, starter, monkeypatch, tmp_path):
    monkeypatch.setattr(fork_server, "default_jobs", lambda: 2)
    monkeypatch.setattr(fork_server, "_WORTH_A_FORK", 500)
    server = forkserver._forkserver
    with suppress(KeyError), begin_loading(recipe_of(rows, starter / "tokenizer"), tmp_path / "cache", None):
        assert server._forkserver_pid is not None
        raise KeyError
    assert server._forkserver_pid is None


def test_the_server_ends_with_its_block_and_a_second_one_is_not_started():
    server = forkserver._forkserver
    with fork_server.fork_server():
        process = server._forkserver_pid
        with fork_server.fork_server():
            assert server._forkserver_pid == process
        assert len(list(run_tasks(partial(measuring, b""), [b"", b""], jobs=2))) == 2
        assert server._forkserver_pid == process and is_running(process)
    assert server._forkserver_pid is None and not is_running(process)
    assert "PACKER_PRELOAD" not in os.environ


def test_tasks_run_where_the_tokenizer_to_be_loaded_is_none(tmp_path):
    with fork_server.fork_server(tmp_path / "nowhere", engine="fast"):
        assert len(list(run_tasks(partial(measuring, b""), [b"", b""], jobs=2))) == 2


LOADING = """
import os, sys, threading, time
from pathlib import Path

import packer.pipeline.run
from packer.pipeline.workers import fork_server
from packer.pipeline.identity import remember
from packer.model.backend import load_fast_backend

before = len(os.listdir("/proc/self/task"))
content = Path(sys.argv[1], "tokenizer.json").read_bytes()
remember(content, agrees=True)
fork_server._load("fast:" + sys.argv[1])
until = time.monotonic() + 60
while len(os.listdir("/proc/self/task")) > before and time.monotonic() < until:
    time.sleep(0.01)  # one that was waited for may take a moment to be gone
assert len(os.listdir("/proc/self/task")) <= before, threading.enumerate()
child = os.fork()
if child == 0:
    encoded = load_fast_backend(content).encode("some text")
    os._exit(len(getattr(encoded, "ids", encoded)))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) > 0
"""


def test_the_template_of_a_tokenizer_does_not_run_before_a_fork(starter, tmp_path):
    """Nothing would stop it there, and the build may use another template."""
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    folder = tmp_path / "tokenizer"
    shutil.copytree(starter / "tokenizer", folder)
    (folder / "chat_template.jinja").write_text(endless, "utf-8")
    code = f"from packer.pipeline.workers import fork_server; fork_server._load({f'reference:{folder}'!r})"
    assert run_forked(code).returncode == 0


def test_what_is_loaded_before_a_fork_has_no_threads_of_its_own(tmp_path):
    """Threads of an encoder would be missing in the copy, which would wait for them for ever."""
    pytest.importorskip("gigatoken")
    tokenizer = twins.byte_level(tmp_path / "tokenizer")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", LOADING, str(tokenizer)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(("forks", "jobs"), [(True, [1, 1, 2, 7, 8, 8]), (False, [1, 1, 1, 1, 1, 8])])
def test_processes_are_started_where_there_is_work_for_them(
    forks: bool, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process loads for seconds; a small build is done by then. The bytes do not depend on it."""
    monkeypatch.setattr(fork_server, "default_jobs", lambda: 8)
    monkeypatch.setattr(fork_server, "FORKS", forks)
    assert [fork_server.jobs_for(mebibytes * 2**20) for mebibytes in (0, 1, 2, 7, 31, 10_000)] == jobs
    monkeypatch.setattr(fork_server, "default_jobs", lambda: 1)
    assert fork_server.jobs_for(2**40) == 1
