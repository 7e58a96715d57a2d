"""Run tasks on a Ray cluster whose nodes see the inputs and the cache under the same paths, or both in a bucket.

A Ray task receives names and returns one small result, and has written its output to the cache by then. Each worker
process makes its function once and caches it. There are no actors, so a task that is lost with its process or its node
can simply be repeated. If inputs and cache are in a bucket, each node has its own copies
(:func:`packer.host.files.cache_dir`), and paths of copies are sent relative to that folder.

Lost tasks are repeated here, after all others, as Ray's own retries have no end where memory runs out. A task that has
killed :data:`MOST_DEATHS` processes is reported once all others are done.
"""

import logging
import os
import platform
import secrets
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any
from warnings import catch_warnings

from packer.display import plural
from packer.errors import PackerError, ResourceError, UsageError
from packer.host.files import cache_dir
from packer.host.watchdog import limit_process
from packer.pipeline.workers import Make, Result, Task, WorkerDiedError
from packer.store.place import SentFolder
from packer.version import __version__, code_digest, library_version

MOST_DEATHS = 3
"""Number of processes that a task may kill before it is given up."""

_RECOUNT_S = 10.0
"""How often processors are counted, since nodes come and go."""


# What the nodes run

_SHAPING = ("gigatoken", "jinja2", "numpy", "pyarrow", "tokenizers")
"""Libraries whose versions can influence the bytes of a cache."""


def versions() -> dict[str, str]:
    """Return the versions of everything that determines the bytes, by name."""
    found = {name: version for name in _SHAPING if (version := library_version(name)) is not None}
    return {"packer": f"{__version__} ({code_digest()[:12]})", "Python": platform.python_version()} | found


def send_paths(ray: Any) -> None:
    """Make Ray send paths in packer's folder for copies so that they point to the receiver's own folder."""
    ray.util.register_serializer(type(Path()), serializer=_relative_copy, deserializer=_received)


def _relative_copy(path: Path) -> tuple[bool, str]:
    """Return whether a path is in the folder for copies, and the path, relative to that folder if it is."""
    try:
        return True, str(path.relative_to(cache_dir()))
    except (UsageError, ValueError):  # a machine without a home has no such folder
        return False, str(path)


def _received(sent: tuple[bool, str]) -> Path:
    is_copy, path = sent
    return cache_dir() / path if is_copy else Path(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequirements:
    """The software and folder that a node must have."""

    versions: Mapping[str, str]
    folder: Path
    """Base of relative paths; on a node that lacks it, all paths must be absolute."""

    def check(self) -> None:
        """Look whether this node can take part, and change the process to the working folder."""
        found, node = versions(), socket.gethostname()
        differ = [
            f"{name} {found.get(name, 'is missing')}, here {self.versions.get(name, 'there is none')}"
            for name in sorted(found.keys() | self.versions)
            if found.get(name) != self.versions.get(name)
        ]
        if differ:
            raise UsageError(
                f"node {node} has other software: {'; '.join(differ)}",
                hint="the bytes of a cache depend on it: install the same versions on every node and here",
            )
        with suppress(OSError):
            os.chdir(self.folder)


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {}
"""The function of the job that this process is working on, by the job's name."""


def run_task(name: str, job: list[Any], task: Any) -> tuple[Any, Exception | None]:
    """Run a task of a job, which makes its function; return its result, or the error that it raised."""
    try:
        if name not in _FUNCTIONS:
            _FUNCTIONS.clear()
            _FUNCTIONS[name] = import_module("ray").get(job[0])()
        return _FUNCTIONS[name](task), None
    except PackerError as error:
        return None, _naming_node(error)
    except Exception as error:  # noqa: BLE001 - raised again by the driver
        return None, error


def _at_node(here: NodeRequirements, make: Make[Task, Result]) -> Callable[[Task], Result]:
    """Make the function of a job on a node that can take part."""
    here.check()
    send_paths(import_module("ray"))
    limit_process()
    # With one process per processor, threads inside the encoder would only compete with each other.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return make()


def _naming_node(error: PackerError) -> PackerError:
    """Return the error, naming this node if the disk, an input or the system's resources caused it."""
    if error.code in {"input", "storage", "resource"}:
        error.message += f" (on node {socket.gethostname()})"
        error.args = (error.message,)
    return error


# What runs here


@contextmanager
def ray_workers(address: str, jobs: int | None, note: Callable[[str], None]) -> Iterator["RayWorkers"]:
    """Provide an executor on a cluster; the connection is made when there is a task for it.

    The address is ``ray``: the cluster of this machine or of ``RAY_ADDRESS``, or a new one here if there is none.
    """
    if address != "ray":
        hint = "--on ray, on a machine of the cluster: ray job submit -- packer build …"
        raise UsageError(f"--on {address}: not a place packer can work on", hint=hint)
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else gRPC reports every fork on stderr
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # else Ray starts a cluster here when it has lost another
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise UsageError("--on ray: Ray is not installed", hint='pip install "token-packer[ray]"') from error
    ours = not ray.is_initialized()
    send_paths(ray)
    # Of nodes that die Ray tells by itself, on stdout, where the answer of a command belongs.
    with redirect_stdout(sys.stderr) if ours else nullcontext():
        try:
            yield RayWorkers(ray, jobs, note)
        except ConnectionError as error:
            raise ResourceError(
                "the connection to the Ray cluster was lost",
                hint="what was finished is kept: the same command continues once the cluster can be reached",
            ) from error
        finally:
            ray.util.deregister_serializer(type(Path()))
            if ours and ray.is_initialized():
                ray.shutdown()


class RayWorkers:
    """Runs tasks wherever the cluster has a free processor."""

    def __init__(self, ray: Any, jobs: int | None, note: Callable[[str], None]) -> None:
        self._ray = ray
        self._jobs = jobs
        self._note = note
        self._num_processors = 0
        self._counted_at = 0.0
        kinds = ("WorkerCrashedError", "OutOfMemoryError", "NodeDiedError", "LocalRayletDiedError", "ObjectLostError")
        self._lost_with = tuple(getattr(ray.exceptions, kind) for kind in kinds)
        """Errors of a task whose process or node died."""

    def number(self, sizes: Sequence[int]) -> int:
        """Return how many tasks run at a time."""
        self._connect()
        return min(self._jobs or self._processors(), len(sizes))

    def run(
        self,
        make: Make[Task, Result],
        tasks: Iterable[Task],
        *,
        sizes: Sequence[int],  # noqa: ARG002 - a cluster is told of every task
        folder: Path | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Run one function over tasks; see :class:`~packer.pipeline.workers.Workers`.

        What a task raises is raised here, and running tasks are cancelled then. A WorkerDiedError says that tasks
        killed their processes, and comes once all others are done.
        """
        waiting = enumerate(tasks)
        first = next(waiting, None)
        if first is None:
            return
        self._connect()
        with nullcontext() if folder is None else SentFolder.to_machines(folder) as sent:
            make = make if sent is None else partial(sent.making, make)
            here = NodeRequirements(versions=versions(), folder=Path.cwd())
            yield from self._run(partial(_at_node, here, make), chain([first], waiting))

    def _run(self, job: Make[Any, Any], tasks: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        ray, errors = self._ray, self._ray.exceptions
        remote = ray.remote(num_cpus=1, max_retries=0)(run_task)
        name, kept = secrets.token_hex(8), [ray.put(job)]  # in a list, or Ray would unpickle it for every task
        running: dict[Any, tuple[int, Any]] = {}
        again, deaths, given_up = deque[tuple[int, Any]](), Counter[int](), dict[str, Exception]()
        try:
            while True:
                # Queue a second task per processor, to keep processors busy and make an autoscaler add nodes.
                most = self._jobs or 2 * self._processors()
                while len(running) < most and (entry := next(tasks, None) or (again.popleft() if again else None)):
                    running[remote.remote(name, kept, entry[1])] = entry
                if not running:
                    break
                ray.wait(list(running), num_returns=1, timeout=_RECOUNT_S)
                ended, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
                for reference in ended:
                    number, task = running.pop(reference)
                    try:
                        result = self._result_of(reference)
                    except self._lost_with as lost:
                        deaths[number] += 1
                        if deaths[number] < MOST_DEATHS:
                            again.append((number, task))
                        else:
                            given_up[str(task)] = lost
                    else:
                        yield number, result
        finally:
            for reference in running:
                with suppress(errors.RayError, ConnectionError):
                    ray.cancel(reference, force=True)
        if given_up:
            last = str(list(given_up.values())[-1]).splitlines()[0]
            raise WorkerDiedError(
                f"{'; '.join(given_up)}: {MOST_DEATHS} processes died of it, one after the other ({last})",
                hint="everything else is finished and kept. Is a row there too large for the memory of a process? "
                "--set rows.max_bytes=N rejects larger ones; ray logs has what the processes printed",
            )

    def _result_of(self, reference: Any) -> Any:
        try:
            result, error = self._ray.get(reference)
        except self._lost_with:
            raise
        except self._ray.exceptions.RayError as failed:  # packer could not be imported there, or is another
            raise UsageError(
                f"a node cannot run packer: {str(failed).splitlines()[-1]}",
                hint=f"install packer {__version__} in the Python that Ray runs in on every node",
            ) from failed
        if error is not None:
            raise error
        return result

    def _connect(self) -> None:
        ray = self._ray
        if not ray.is_initialized():
            try:
                # What it finds as stdout now gets the code that resets a terminal's colors when the process ends.
                with redirect_stdout(sys.__stdout__), catch_warnings(action="ignore", category=UserWarning):
                    ray.init(logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
            except (ConnectionError, ImportError, RuntimeError, TimeoutError, ValueError) as error:
                raise ResourceError(
                    f"no Ray cluster can be reached: {str(error).splitlines()[0]}",
                    hint="ray status says whether it runs; RAY_AUTH_MODE=token is for one that asks for a token",
                ) from error
        if not self._num_processors:
            nodes = [node for node in ray.nodes() if node["Alive"]]
            self._note(f"on Ray: {plural(len(nodes), 'node')}, {plural(self._processors(), 'processor')}")

    def _processors(self) -> int:
        now = time.monotonic()
        if not self._num_processors or now - self._counted_at > _RECOUNT_S:
            self._num_processors = max(1, int(self._ray.cluster_resources().get("CPU", 0)))
            self._counted_at = now
        return self._num_processors
