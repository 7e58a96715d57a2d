"""What the command line begins to load before it has imported the stages, here or in the fork server."""

import ast
import functools
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from multiprocessing import forkserver
from pathlib import Path

import pytest
from processes import HANG_S

from packer.model import backend
from packer.pipeline.workers import fork_server
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


@pytest.mark.parametrize("jobs", [None, 2, 9])
@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_a_large_input_starts_it_with_the_recipes_tokenizer_and_engine(jobs, engine, rows, starter, started, tmp_path):
    tokenizer = starter / "tokenizer"
    with begin_loading(recipe_of(rows, tokenizer, engine=engine), tmp_path / "cache", jobs):
        assert started == [((tokenizer,), {"engine": engine, "images": False})]


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
fork_server.default_jobs = lambda: 2
from packer_cli.main import cli
try:
    cli.main(sys.argv[1:])
except SystemExit as end:
    print((loaded, started[:1], end.code, fork_server.forkserver._forkserver._forkserver_pid))
"""


@pytest.mark.parametrize("jobs", ["2", "1"])
def test_the_command_begins_to_load_before_it_imports_the_stages_and_ends_the_server(jobs, starter, tmp_path):
    rows = tmp_path / "rows.jsonl"
    content = (starter / "data" / "chat.jsonl").read_bytes()
    rows.write_bytes(content * (17 * 2**20 // len(content) + 1))
    command = [sys.executable, "-c", COMMAND, "build", rows, "--tokenizer", starter / "tokenizer", "-o", tmp_path / "c"]
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


def test_what_several_threads_need_is_loaded_once(monkeypatch):
    calls, begun, finish, found = [], threading.Event(), threading.Event(), []

    def load(content):
        calls.append(content)
        begun.set()
        assert finish.wait(HANG_S)
        return object()

    monkeypatch.setattr(backend, "_load_reference", functools.lru_cache(load))
    threads = [backend.load_meanwhile(lambda: found.append(backend.load_backend(b"{}"))) for _ in range(3)]
    assert begun.wait(HANG_S)
    finish.set()
    for thread in threads:
        thread.join()
    assert calls == [b"{}"]
    assert found == found[:1] * 3
