"""Where tasks run: in this process, in others of this machine, or on a Ray cluster."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from packer.pipeline.workers.executor import Processes, Workers


def workers_on(on: str | None, jobs: int | None, note: Callable[[str], None]) -> AbstractContextManager[Workers]:
    """Provide at most `jobs` processes of this machine, or with `on` as many tasks at a time on a cluster."""
    if on is None:
        return nullcontext(Processes(jobs))
    from packer.pipeline.workers.ray_workers import ray_workers  # noqa: PLC0415 - only for clusters

    return ray_workers(on, jobs, note)
