"""The fork server: a process that imports packer and loads the tokenizer once, and from which workers are forked.

It costs a few seconds of another core, so it is started as soon as it is clear that workers will be needed: for a large
build by the command line, which has imported little by then (:func:`begin_loading`). This module therefore imports next
to nothing. `multiprocessing` runs the server, which imports this module too; environment variables tell it to load.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packer.names import is_address

if TYPE_CHECKING:
    from packer.recipe import Recipe

FORKS = sys.platform == "linux"
"""Whether workers are forked from a server process; elsewhere each one is spawned."""

_TOKENIZER = "PACKER_PRELOAD"
"""Environment variable of the server: what to load is the engine of the recipe, a colon, and the tokenizer's path; it
is empty if only modules are to be imported."""

_WORTH_A_PROCESS = 16 * 2**20
"""Bytes of rows worth a few seconds of work: about as long as a process needs to import packer and load a tokenizer."""

_WORTH_A_COPY = 4 * 2**20
"""Bytes of rows that take longer to process than a fork."""


def default_jobs() -> int:
    """Return the number of processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs_for(num_bytes: int) -> int:
    """Return the number of processes worth starting for that many bytes of rows.

    A spawned process, and the fork server, need as long to load as this process would need for their share of the work;
    forked workers load nothing.
    """
    if num_bytes < _WORTH_A_PROCESS:
        return 1
    return min(default_jobs(), num_bytes // (_WORTH_A_COPY if FORKS else _WORTH_A_PROCESS))


@contextmanager
def fork_server(tokenizer: Path | None = None, *, engine: str = "reference") -> Iterator[None]:
    """Run the fork server inside the context. It loads in the background and is killed at the end.

    A no-op if one is running already, started by an enclosing context or by the application, or without fork.

    Args:
        tokenizer: `tokenizer.json` or its folder, to be preloaded.
        engine: that of the recipe.

    """
    server: Any = forkserver._forkserver  # noqa: SLF001 - there is no public way to stop it
    is_running = server._forkserver_pid is not None  # noqa: SLF001
    if is_running or not FORKS:
        yield
        return
    resource_tracker.ensure_running()
    # Block Ctrl-C until the server ignores it; if interrupted while starting it would print a traceback.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    server.set_forkserver_preload([__name__])
    os.environ[_TOKENIZER] = "" if tokenizer is None else f"{engine}:{tokenizer}"
    try:
        server.ensure_running()
    finally:
        del os.environ[_TOKENIZER]
        server.set_forkserver_preload(["__main__"])  # the default
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield
    finally:
        os.kill(server._forkserver_pid, signal.SIGKILL)  # noqa: SLF001
        server._stop()  # noqa: SLF001


def begin_loading(recipe: "Recipe", cache: Path, jobs: int | None) -> AbstractContextManager[None]:
    """Run the fork server if a look at the files is enough to see that a build of a new cache will use it.

    Args:
        recipe: of the build.
        cache: the folder of the cache, or its URL.
        jobs: upper limit of processes; None if there is none.

    """
    tokenizer = Path(recipe.tokenizer or "")
    size = sum(_file_size(source.path) for source in recipe.sources)
    has_work = min(jobs or default_jobs(), jobs_for(size)) > 1 and recipe.tokenizer is not None and tokenizer.exists()
    if not has_work or is_address(str(cache)) or (cache / "manifest.json").exists():
        return nullcontext()
    return fork_server(tokenizer, engine=recipe.engine)


def _file_size(name: str) -> int:
    """Return the size of a file; 0 if the name is a pattern, or that of something else."""
    with suppress(OSError, ValueError):
        return Path(name).stat().st_size
    return 0


def _load(wanted: str) -> None:
    """Load in the server what :data:`_TOKENIZER` says.

    The fast encoder is loaded in a thread that releases the GIL, so the imports of packer run meanwhile.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    engine, _, place = wanted.partition(":")
    loading = None
    with suppress(BaseException):  # a worker meets it again, a panic of Rust too
        if place:
            loading = import_module("packer.backend").warm_up(Path(place), engine=engine)
    import_module("packer.pipeline")
    with suppress(BaseException):  # as above
        if place:
            import_module("packer.pipeline.stages").warm_up(Path(place))
    if loading is not None:
        loading.join()
    gc.freeze()  # a collection would write to every page that is shared


if (_wanted := os.environ.get(_TOKENIZER)) is not None:
    _load(_wanted)
