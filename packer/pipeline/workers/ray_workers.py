"""Run tasks on a Ray cluster whose nodes see the inputs and the cache under the same paths, or both in a bucket.

A Ray task is a bundle of tasks: it receives names and returns one small result per task, and has written its output to
the cache by then. Each worker process makes its function once and caches it. There are no actors, so a task that is
lost with its process or its node can simply be repeated. If inputs and cache are in a bucket, each node has its own
copies (:func:`packer.store.place.cache_dir`), and paths of copies are sent relative to that folder.

Ray's own retries would repeat a lost bundle as a whole, so that a row that kills its process would kill one process
after another. So bundles are retried here, without the tasks that were finished and with the task that was running in a
bundle by itself. A task that has killed :data:`MOST_DEATHS` processes is reported once all others are done.
"""

import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from importlib import import_module
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar
from warnings import catch_warnings

from packer.display import plural
from packer.errors import ResourceError, UsageError
from packer.pipeline.workers.bundles import MOST_DEATHS, Bundles
from packer.pipeline.workers.executor import Processes, WorkerDiedError, Workers
from packer.pipeline.workers.ray_nodes import Job, NodeRequirements, refusal, run_bundle, send_paths, versions
from packer.store.files import CacheFiles
from packer.store.folder import PRIVATE, AtomicFile
from packer.version import __version__

Task = TypeVar("Task")
Result = TypeVar("Result")

_BUNDLES_A_WORKER = 4
"""Least number of bundles per worker; with little work, bundles are smaller, so that workers finish together."""

_POLL_S = 1.0
"""Interval at which finished tasks are collected."""

_ANSWER_S = 60.0
"""How long nodes have to say whether they can take part; one that dies or hangs is found by Ray only later."""

_FIRST_ANSWER_S = 600.0
"""Time until the first of them has to, if none has answered within the other."""

_COUNT_S = 10.0
"""How often processors are counted, since nodes come and go."""


def workers_on(on: str | None, jobs: int | None, note: Callable[[str], None]) -> AbstractContextManager[Workers]:
    """Return the executor: a cluster as in :func:`ray_workers`, or processes of this machine if `on` is None."""
    return nullcontext(Processes(jobs)) if on is None else ray_workers(on, jobs, note)


@contextmanager
def ray_workers(address: str, jobs: int | None, note: Callable[[str], None]) -> Iterator["RayWorkers"]:
    """Provide an executor on a cluster; the connection is made when there is a task for it.

    Args:
        address: ``ray`` for the cluster of this machine or of ``RAY_ADDRESS``, or a new one on this machine if there is
            none; ``ray://HOST:PORT`` for one elsewhere.
        jobs: upper limit of concurrent tasks; None uses all processors.
        note: receives messages for the user.

    Raises:
        UsageError: Ray is not installed, or the address is invalid.
    """
    if address != "ray" and not address.startswith("ray://"):
        raise UsageError(f"--on {address}: not a place packer can work on", hint="--on ray, or --on ray://HOST:PORT")
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"--on {address}: Ray is not installed",
            hint='pip install "token-packer[ray]", or ray in the version of the cluster',
        ) from error
    if address != "ray":
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else gRPC reports every fork on stderr
        _refuse_without_client(address)
        import_module("ray.util.client.logsclient")
        for name in ("ray.util.client", "ray.util.client.logsclient"):  # packer reports a lost connection itself
            logging.getLogger(name).setLevel(logging.CRITICAL)
    ours = not ray.is_initialized()
    send_paths(ray)
    workers = RayWorkers(ray, None if address == "ray" else address, jobs, note)
    # Of nodes that die Ray tells by itself, on stdout, where the answer of a command belongs.
    with redirect_stdout(sys.stderr) if ours else nullcontext():
        try:
            yield workers
        except Exception as error:
            if not workers.is_lost:
                raise
            raise ResourceError(
                f"the connection to the Ray cluster at {address} was lost",
                hint="what was finished is kept: the same command continues once the cluster can be reached",
            ) from error
        finally:
            if not workers.is_lost:
                ray.util.deregister_serializer(type(Path()))
            if ours and ray.is_initialized():
                ray.shutdown()


class RayWorkers:
    """Runs tasks wherever the cluster has a free processor."""

    def __init__(self, ray: Any, address: str | None, jobs: int | None, note: Callable[[str], None]) -> None:
        self._ray = ray
        self._address = address
        self._jobs = jobs
        self._note = note
        self._num_processors = 0
        self._counted_at = 0.0

    @property
    def is_lost(self) -> bool:
        """Whether a connection was made and has been lost."""
        return self._num_processors > 0 and not self._ray.is_initialized()

    def number(self, sizes: Sequence[int]) -> int:
        """Return how many tasks run at a time.

        Raises:
            ResourceError: no cluster can be reached.
        """
        self._connect()
        return min(self._jobs or self._processors(), len(sizes))

    def run(
        self,
        make: Callable[..., Callable[[Task], Result]],
        arguments: Sequence[Any],
        tasks: Iterable[Task],
        *,
        sizes: Sequence[int] | None = None,
        jobs: int | None = None,
        folder: Path | None = None,
        finished: Callable[[Task], Result | None] | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Run one function over tasks; see :class:`~packer.pipeline.workers.executor.Workers`.

        Raises:
            UsageError: a node has different software, or does not see the cache.
            WorkerDiedError: tasks killed their processes; all others are done.
            Exception: whatever a task raised; running tasks are cancelled then.
        """
        most = 0  # most bytes of a bundle; lazily generated tasks are sent one by one
        if jobs is None and sizes:
            most = sum(sizes) // (_BUNDLES_A_WORKER * self.number(sizes))
        bundles = Bundles(zip(tasks, repeat(1) if sizes is None else sizes, strict=False), most)
        if not bundles.waiting:
            return
        self._connect()
        url = None if folder is None else CacheFiles(folder).url
        with _probe(folder) if folder is not None and url is None else nullcontext() as probe:
            cache = None if folder is None or url is None else (folder, url)
            here = NodeRequirements(versions=versions(), folder=Path.cwd(), probe=probe, cache=cache)
            self._refuse_other_nodes(here)
            job = Job(name=secrets.token_hex(8), here=here, make=make, arguments=tuple(arguments))
            yield from self._run(job, bundles, finished or (lambda _: None))
        if bundles.given_up:
            raise _given_up({str(bundles.tasks[number]): error for number, error in sorted(bundles.given_up.items())})

    def _run(self, job: Job, bundles: Bundles, finished: Callable[[Any], Any]) -> Iterator[tuple[int, Any]]:
        ray, errors = self._ray, self._ray.exceptions
        remote = ray.remote(num_cpus=1, max_retries=0)(run_bundle)
        kept = [ray.put(job)]  # in a list, or Ray would unpickle it for every bundle
        running: dict[Any, list[int]] = {}
        try:
            while bundles.waiting or running:
                # Queue a second bundle per processor, to keep processors busy and make an autoscaler add nodes.
                most = self._jobs or 2 * self._processors()
                while bundles.waiting and len(running) < most:
                    numbers = bundles.next()
                    running[remote.remote(job.name, kept, [bundles.tasks[number] for number in numbers])] = numbers
                ended, _ = ray.wait(list(running), num_returns=len(running), timeout=_POLL_S)
                for reference in ended:
                    numbers = running.pop(reference)
                    try:
                        results, error = ray.get(reference)
                    except self._lost_with as lost:
                        found = {number: finished(bundles.tasks[number]) for number in numbers}
                        done = {number: result for number, result in found.items() if result is not None}
                        bundles.lost([number for number in numbers if number not in done], lost)
                        yield from bundles.done(done)
                        continue
                    yield from bundles.done(dict(zip(numbers, results, strict=False)))
                    if error is not None:
                        raise error
        finally:
            for reference in () if self.is_lost else running:  # Ray would start a cluster here to cancel them
                with suppress(errors.RayError, ConnectionError):
                    ray.cancel(reference, force=True)

    @property
    def _lost_with(self) -> tuple[type[Exception], ...]:
        """Errors of a task whose process or node died."""
        errors = self._ray.exceptions
        return (
            errors.WorkerCrashedError,
            errors.OutOfMemoryError,
            errors.NodeDiedError,
            errors.LocalRayletDiedError,
            errors.ObjectLostError,
        )

    def _connect(self) -> None:
        ray = self._ray
        if not ray.is_initialized():
            try:
                # What it finds as stdout now gets the code that resets a terminal's colors when the process ends.
                with redirect_stdout(sys.__stdout__), catch_warnings(action="ignore", category=UserWarning):
                    ray.init(
                        address=self._address,
                        logging_level=logging.ERROR,
                        log_to_driver=False,
                        **({} if self._address else {"include_dashboard": False}),
                    )
            except (ConnectionError, ImportError, RuntimeError, TimeoutError, ValueError) as error:
                raise ResourceError(
                    f"no Ray cluster can be reached: {str(error).splitlines()[0]}",
                    hint="ray status says whether it runs; --on ray://HOST:10001 needs the cluster's own versions of "
                    "Ray and Python, and RAY_AUTH_MODE=token if it asks for a token",
                ) from error
        if not self._num_processors:
            nodes = [node for node in ray.nodes() if node["Alive"]]
            self._note(f"on Ray: {plural(len(nodes), 'node')}, {plural(self._processors(), 'processor')}")

    def _processors(self) -> int:
        now = time.monotonic()
        if not self._num_processors or now - self._counted_at > _COUNT_S:
            self._num_processors = max(1, int(self._ray.cluster_resources().get("CPU", 0)))
            self._counted_at = now
        return self._num_processors

    def _refuse_other_nodes(self, here: NodeRequirements) -> None:
        """Compare every node with this machine before the first task; nodes that join later check themselves.

        A node that dies meanwhile, or that does not answer, is left to Ray, unless it is the last one.

        Raises:
            UsageError: a node cannot take part; names the node and the difference.
            ResourceError: no node answers.
        """
        ray = self._ray
        affinity = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        look = ray.remote(num_cpus=0, max_retries=0)(refusal)
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        asked = [
            look.options(num_cpus=0, max_retries=0, scheduling_strategy=affinity(node["NodeID"], soft=True)).remote(
                here
            )
            for node in nodes
        ]
        answered, _ = ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_S) if asked else ([], [])
        if asked and not answered:  # the first import from a slow disk, perhaps
            answered, _ = ray.wait(asked, num_returns=1, timeout=_FIRST_ANSWER_S)
        lost: Exception | None = None
        num_fit = 0
        for node, reference in zip(nodes, asked, strict=True):
            if reference not in answered:
                with suppress(ray.exceptions.RayError, ConnectionError):
                    ray.cancel(reference, force=True)
                continue
            try:
                error = ray.get(reference)
            except self._lost_with as failed:
                lost = failed
                continue
            except ray.exceptions.RayError as failed:  # packer could not be imported there, or is another
                raise UsageError(
                    f"node {node['NodeManagerHostname']} cannot run packer: {str(failed).splitlines()[-1]}",
                    hint=f"install packer {__version__} in the Python that Ray runs in on every node",
                ) from failed
            if error is not None:
                raise error
            num_fit += 1
        if nodes and not num_fit:
            why = "none answers" if lost is None else str(lost).splitlines()[0]
            raise ResourceError(
                f"no node of the Ray cluster is left to work on: {why}",
                hint="ray status says which nodes run; the same command continues once there is one",
            ) from lost


def _refuse_without_client(address: str) -> None:
    """Refuse to continue without the library that Ray's client needs.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import_module("grpc")
    except ImportError as error:
        raise UsageError(
            f"--on {address}: Ray's client needs grpcio, which is not installed",
            hint='pip install "token-packer[ray]", or ray[client] in the version of the cluster',
        ) from error


def _given_up(tasks: Mapping[str, Exception]) -> WorkerDiedError:
    last = str(list(tasks.values())[-1]).splitlines()[0]
    return WorkerDiedError(
        f"{'; '.join(tasks)}: {MOST_DEATHS} processes died of it, one after the other ({last})",
        hint="everything else is finished and kept. Is a row there too large for the memory of a process? "
        "--set rows.max_bytes=N rejects larger ones; ray logs has what the processes printed",
    )


@contextmanager
def _probe(folder: Path) -> Iterator[Path]:
    """Create a file in the cache that nodes must see, as proof that they would write to the same cache."""
    with AtomicFile(folder / PRIVATE, below=folder) as file:
        yield file.path
