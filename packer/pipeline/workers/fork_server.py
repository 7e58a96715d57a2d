"""The fork server: a process that imports packer and loads the encoder once, and from which workers are forked.

It needs a second or two, so it is started as soon as it is clear that workers will be needed: for a large build by the
command line, which has imported little by then (:func:`begin_loading`). This module therefore imports little, too.

The server imports this module before anything else, and an environment variable says what it loads then. The fast
encoder is loaded in a thread, and the imports of packer run meanwhile, as far as the library releases the GIL. No
template of a user runs there: nothing would stop one that does not end.
"""

import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packer.names import is_address

if TYPE_CHECKING:
    from packer.recipe.recipe import Recipe

WANTED = "PACKER_PRELOAD"
"""Environment variable for the server: the engine of the recipe, a colon, and the path of the tokenizer; empty if only
modules are to be imported."""

IMAGES = "+images"
"""Follows the engine in :data:`WANTED` if the recipe reads images."""

FORKS = sys.platform == "linux"
"""Whether workers are forked from a server process; elsewhere each one is spawned."""

_WORTH_A_PROCESS = 16 * 2**20
"""Bytes of rows worth a few seconds of work: about as long as a process needs to import packer and load a tokenizer."""

_WORTH_A_FORK = 2**20
"""The same for forked processes: their server has loaded by the time that this process has planned the build."""


def default_jobs() -> int:
    """Return the number of processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs_for(num_bytes: int) -> int:
    """Return the number of processes worth starting for that many bytes of rows."""
    return max(1, min(default_jobs(), num_bytes // (_WORTH_A_FORK if FORKS else _WORTH_A_PROCESS)))


@contextmanager
def fork_server(tokenizer: Path | None = None, *, engine: str = "reference", images: bool = False) -> Iterator[None]:
    """Run the fork server inside the context. It loads in the background and is killed at the end.

    A no-op if one is running already, started by an enclosing context or by the application, or without fork. It loads
    the tokenizer at `tokenizer`, a file or a folder, for an engine, and with `images` the library of processors.
    """
    server: Any = forkserver._forkserver  # noqa: SLF001 - there is no public way to stop it
    is_running = server._forkserver_pid is not None  # noqa: SLF001
    if is_running or not FORKS:
        yield
        return
    # Block Ctrl-C until the server ignores it; if interrupted while starting it would print a traceback.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    server.set_forkserver_preload([__name__])
    wanted = {WANTED: "" if tokenizer is None else f"{engine}{IMAGES * images}:{tokenizer}"}
    try:
        try:
            with starting(wanted):
                resource_tracker.ensure_running()
                server.ensure_running()
        finally:
            server.set_forkserver_preload(["__main__"])  # the default
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # raises KeyboardInterrupt, if Ctrl-C was pressed
        yield
    finally:
        if server._forkserver_pid is not None:  # noqa: SLF001
            os.kill(server._forkserver_pid, signal.SIGKILL)  # noqa: SLF001
            server._stop()  # noqa: SLF001


@contextmanager
def starting(variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Give processes that are started meanwhile some environment variables, and no modules of the current folder.

    With `-c`, Python would look for every import in that folder first, also for its own modules; and it may come from
    anybody.
    """
    given = {"PYTHONSAFEPATH": "1", **(variables or {})}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def begin_loading(recipe: "Recipe", cache: Path | None = None, jobs: int | None = None) -> AbstractContextManager[None]:
    """Load the reference in a thread. For a cache that does not exist yet, also load the encoder of its engine:
    in the fork server, which runs inside the context, or in the thread if by the files' sizes this process works alone.

    `cache` is None if no process of this machine builds one, `jobs` if there is no upper limit.
    """
    if recipe.tokenizer is None or not os.path.exists(recipe.tokenizer):  # noqa: PTH110 - raises nothing
        return nullcontext()
    tokenizer, size = Path(recipe.tokenizer), sum(_file_size(source.path) for source in recipe.sources)
    is_new = not (cache is None or is_address(str(cache)) or os.path.exists(cache / "manifest.json"))  # noqa: PTH110
    if not recipe.reads_images:  # else the processor decides what is loaded
        from packer.model.backend import load_encoders, load_meanwhile  # noqa: PLC0415 - imports `tokenizers`

        is_alone = (jobs or jobs_for(size)) == 1
        load_meanwhile(lambda: load_encoders(tokenizer, recipe.engine if is_new and is_alone else "reference", size))
    if not is_new or min(jobs or default_jobs(), jobs_for(size)) == 1:
        return nullcontext()
    return fork_server(tokenizer, engine=recipe.engine, images=recipe.reads_images)


def _file_size(name: str) -> int:
    """Return the size of a file; 0 if the name is a pattern, or that of something else."""
    with suppress(OSError, ValueError):
        return Path(name).stat().st_size
    return 0


def _load(wanted: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    engine, _, place = wanted.partition(":")
    loading, content = None, b""
    engine, images = engine.removesuffix(IMAGES), engine.endswith(IMAGES)
    with suppress(BaseException):  # also a panic of Rust; a worker meets the error again, and reports it
        if place:
            from packer.model import backend  # noqa: PLC0415 - once Ctrl-C is ignored

            content = backend.read_tokenizer(Path(place))
            loading = backend.load_fast_meanwhile(engine, content)
            if loading is None:
                backend.load_backend(content)
    from packer.model.token_bytes import read_vocabulary  # noqa: PLC0415 - as above
    from packer.pipeline import blocks, partition  # noqa: F401, PLC0415 - while the encoder loads

    with suppress(BaseException):  # as above
        read_vocabulary(content)
        if images:
            importlib.import_module("transformers.processing_utils")
    if loading is not None:
        loading.join()


if (_wanted := os.environ.pop(WANTED, None)) is not None:
    gc.disable()  # nothing that is loaded is garbage
    try:
        _load(_wanted)
    finally:
        gc.freeze()  # a collection would write to every page that is shared
        gc.enable()
