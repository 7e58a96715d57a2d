"""What the nodes of a Ray cluster run: each looks whether it can take part, and works on tasks."""

import os
import platform
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from packer.errors import PackerError, UsageError
from packer.host.cache_dir import cache_dir
from packer.host.watchdog import limit_process
from packer.version import __version__, code_digest, library_version

_SHAPING = ("fastokens", "gigatoken", "jinja2", "numpy", "pyarrow", "tokenizers")
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
        """Look whether this node can take part, and change the process to the working folder.

        Raises:
            UsageError: it has other software.
        """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One function, to be run over many tasks."""

    name: str
    here: NodeRequirements
    make: Callable[..., Callable[[Any], Any]]
    arguments: tuple[Any, ...]


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {}
"""The function of the job that this process is working on, by the job's name."""


def run_task(name: str, job: list[Any], task: Any) -> tuple[Any, Exception | None]:
    """Run a task; return its result, or the error that it raised."""
    try:
        if name not in _FUNCTIONS:
            _FUNCTIONS.clear()
            _FUNCTIONS[name] = _function(import_module("ray").get(job[0]))
        return _FUNCTIONS[name](task), None
    except PackerError as error:
        return None, _at_node(error)
    except Exception as error:  # noqa: BLE001 - raised again by the driver
        return None, error


def _function(job: Job) -> Callable[[Any], Any]:
    job.here.check()
    send_paths(import_module("ray"))
    limit_process()
    # With one process per processor, threads inside the encoder would only compete with each other.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return job.make(*job.arguments)


def _at_node(error: PackerError) -> PackerError:
    """Return the error, naming this node if the disk, an input or the system's resources caused it."""
    if error.code in {"input", "storage", "resource"}:
        error.message += f" (on node {socket.gethostname()})"
        error.args = (error.message,)
    return error
