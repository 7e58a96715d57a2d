"""Shared fixtures: where real data lies, and how properties are searched."""

import atexit
import contextlib
import gc
import hashlib
import importlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings

from packer.batches import RowBatch, TurnBatch
from packer.questions.unread_text import find_unread
from packer.recipe.groups import Pack
from packer.render.clear.extension import Extension, Kind, MarkedTemplate
from packer.render.environment import ChatTemplate
from packer.render.renderer import Renderer
from packer.render.wrappers import Wrappers
from packer.store.bucket import Bucket

# Tests start many processes, and their asserts are rewritten: each process would compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Files of tests lie in memory where there is room: flushing them to a disk took a third of the time of a small build.
# Not in `make deep`, whose files are larger.
_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 4 * 2**30
_IS_SMALL = not {"TMPDIR", "HYPOTHESIS_PROFILE", "PACKER_FAULTS"} & os.environ.keys()
if _IS_SMALL and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

# What builds remember between each other, they remember here; subprocesses inherit it. Workers have one each: what a
# test of one makes of an engine must not reach a build of another.
if "XDG_CACHE_HOME" not in os.environ or "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="packer-tests-home-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# Workers and what they start share the cores; threads that wait for each other by spinning would only take them away.
os.environ.setdefault("OMP_NUM_THREADS", "1")

_SEARCHING = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("test", _SEARCHING, derandomize=True, max_examples=15)
settings.register_profile("deep", _SEARCHING, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

REPOSITORY = Path(__file__).resolve().parent.parent

_NEEDED = {"load": ["torch"], "trainers": ["torch"], "media": ["torch", "transformers", "PIL"]}
collect_ignore = [folder for folder, libraries in _NEEDED.items() if not all(map(find_spec, libraries))]


# On a fresh checkout nothing is compiled yet. Workers import the same in the same order, and each would compile all of
# it, at the same time as the others; so they begin with different libraries, and find what the others compiled meanwhile.
_BEGIN_WITH = {"gw0": ["torch"], "gw1": ["transformers", "datasets"]}

gc.disable()  # collecting tests makes next to no garbage, and looking for it took a fifth of the time


def pytest_report_header() -> str | None:
    return f"LIBRARIES MISSING: tests of {', '.join(collect_ignore)} are not run" if collect_ignore else None


def pytest_sessionstart() -> None:
    for name in _BEGIN_WITH.get(os.environ.get("PYTEST_XDIST_WORKER", ""), ()):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Models and trainers take seconds to import. One worker does, at its beginning: others take tests of its end over."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        paths = {item.path for item in items}
        heavy = {
            path: path.parent.name == "media" or b'importorskip("transformers"' in path.read_bytes() for path in paths
        }
        items.sort(key=lambda item: not heavy[item.path])


_num_modules = 0


def pytest_collection_finish() -> None:
    """What is imported stays; a collection of garbage need not go through it again and again."""
    _keep_what_is_imported()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(trylast=True)  # after fixtures, which must not be kept
def pytest_runtest_teardown() -> None:
    """A library that a test imported stays as well: trainers collect garbage at every end of a training."""
    if len(sys.modules) > _num_modules + 100:
        gc.collect()
        _keep_what_is_imported()


def _keep_what_is_imported() -> None:
    global _num_modules  # noqa: PLW0603
    gc.freeze()
    _num_modules = len(sys.modules)


@pytest.fixture(autouse=True, scope="session")
def _few_rows_are_made_as_many_are() -> Iterator[None]:
    """Small builds are left to what is there at once, and then would not test what large ones wait for.

    But a tokenizer is tried on few texts: trying the fast encoder takes longer than most builds, and
    tests/tokenize/test_fast.py is about what trials find.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("packer.model.backend.WORTH_LOADING", 0)
        patch.setattr("packer.render.clear.rows.WORTH_A_TRIAL", 0)
        patch.setattr("packer.render.clear.filling.WORTH_FILLING", 1)
        patch.setattr("packer.media.processor.WORTH_COUNTING", 0)
        patch.setattr("packer.tokenize.fast._RUNS_PER_TEXT", (8,) * 100)
        patch.setattr("packer.render.clear.rows.tried", _tried_once())
        patch.setattr("packer.pipeline.plan.inputs.find_unread", _searched_once())
        patch.setattr("packer.pipeline.plan.open_keys.Renderer", _RendersOnce)
        patch.setattr("packer.render.renderer.Wrappers", SimpleNamespace(of=_learned_once()))
        yield


def _tried_once() -> Callable[..., Any]:
    """Builds of tests share few templates, and two fifths of their time went into trying the same again."""
    from packer.render.clear.trial import tried

    found: dict[Any, Any] = {}

    def remembered(marked: MarkedTemplate, kind: Kind, kwargs: Mapping[str, Any]) -> Extension | None:
        key = (kind, *_identity(marked.plain, kwargs))
        if key not in found:
            found[key] = tried(marked, kind, kwargs)
        return found[key]

    return remembered


def _identity(template: ChatTemplate, kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        template.source,
        template.date,
        template.max_bytes,
        repr((template.variables, template._recipe_kwargs, kwargs)),
    )


def _learned_once() -> Callable[..., Wrappers]:
    """What the same templates write around a text is learned once."""
    found: dict[Any, Wrappers] = {}

    def remembered(template: ChatTemplate, kwargs: Mapping[str, Any]) -> Wrappers:
        key = _identity(template, kwargs)
        if key not in found:
            found[key] = Wrappers.of(template, kwargs)
        return found[key]

    return remembered


class _RendersOnce(Renderer):
    """Builds of tests try on the same first rows what is to be settled, which took a tenth of their time."""

    _found: ClassVar[dict[bytes, TurnBatch]] = {}

    def render(self, rows: RowBatch) -> TurnBatch:
        deciding = msgspec.structs.replace(self._recipe, sources=(), tokenizer=None, pack=Pack())
        key = hashlib.sha256(pickle.dumps((self._model, deciding, rows))).digest()
        if key not in self._found:
            self._found[key] = super().render(rows)
        return self._found[key]


def _searched_once() -> Callable[..., Any]:
    """Builds of tests read few files again and again, and a fifth of their time went into searching the same rows."""
    from packer.questions.unread_text import Unread, find_unread

    found: dict[bytes, Unread] = {}

    def remembered(rows: Iterable[Mapping[str, Any]], **reading: Any) -> Unread:
        searched = [*rows]
        key = hashlib.sha256(pickle.dumps((searched, reading))).digest()
        if key not in found:
            found[key] = find_unread(searched, **reading)
        return found[key]

    return remembered


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores Ctrl-C, and so would every process it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def real() -> Path:
    """Folder of real corpora, tokenizers and templates; without it the test is skipped, with a word why."""
    folder = Path(os.environ.get("PACKER_REAL", REPOSITORY.parent / "shared" / "real"))
    if not (folder / "corpora").is_dir():
        pytest.skip(f"REAL DATA MISSING: {folder}/corpora not found; set PACKER_REAL to run this test")
    return folder


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `packer init` writes. Shared: tests that change something copy it."""
    from packer.starter import write_starter

    folder = tmp_path_factory.mktemp("starter") / "starter"
    write_starter(folder)
    return folder


@pytest.fixture
def place(starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a person with the starter's files below `data`, and its tokenizer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(starter / "data")
    (tmp_path / "tokenizer").symlink_to(starter / "tokenizer")
    return tmp_path


@pytest.fixture(scope="session")
def few_blocks(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of some of the starter's rows, in blocks that a tiny model on a CPU reads in no time. Shared."""
    from packer.pipeline.from_python import build
    from packer.recipe.recipe import load_recipe

    folder = tmp_path_factory.mktemp("few") / "cache"
    build(load_recipe(starter / "recipe.yaml", ["sources.limit=40", "pack.block_len=96"]), folder, jobs=1, fail_above=1)
    return folder


@pytest.fixture(scope="session")
def starter_cache(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of the starter recipe. Shared: tests that change something copy it."""
    from packer.pipeline.from_python import build
    from packer.recipe.recipe import load_recipe

    folder = tmp_path_factory.mktemp("built") / "cache"
    build(load_recipe(starter / "recipe.yaml"), folder, jobs=1)
    return folder


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    """Every URL leads to one store in memory; what packer keeps of it is kept in the folder of the test."""
    obstore = pytest.importorskip("obstore", reason="OBSTORE MISSING: tests/requirements.txt")
    store = obstore.store.MemoryStore()
    monkeypatch.setattr("packer.store.bucket._opened", lambda _: (obstore, store))
    monkeypatch.setenv("PACKER_CACHE_DIR", str(tmp_path / "kept"))
    return Bucket("s3://bucket/cache")


@pytest.fixture
def asked() -> Callable[..., list[str]]:
    """The fields of a row that a build asks about, because they have text that nothing reads; there are two such rows."""

    def find(row: Any, schema: str = "messages", columns: dict[str, str | None] | None = None) -> list[str]:
        found = find_unread([row, row], schema=schema, columns=columns or {}, roles={})
        assert found.num_read == 2
        return [field.path for field in found.fields]

    return find
