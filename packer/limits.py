"""What runs out, and which limit of the process says so: file handles, memory, processes and threads."""

import errno
import re
from collections.abc import Sequence

from packer.errors import ResourceError


def out_of(error: BaseException, action: str | None = None) -> ResourceError | None:
    """The error to raise in place of one that says that something ran out; None where it says something else.

    Args:
        error: What was raised.
        action: What could not be done, and where: "cannot read x.jsonl".

    """
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        return _error_of(action, "too many open files", "ulimit -n", ["RLIMIT_NOFILE"])
    if number == errno.ENFILE:
        return _error_of(action, "too many open files on this machine", "sysctl fs.file-max", [])
    if number == errno.ENOMEM or isinstance(error, MemoryError):
        return _error_of(action, "out of memory", "ulimit -v", ["RLIMIT_AS", "RLIMIT_DATA"])
    if number == errno.EAGAIN or _NO_THREAD.search(str(error)):
        return _error_of(action, "no more processes or threads", "ulimit -u", ["RLIMIT_NPROC", "RLIMIT_AS"])
    return None


_NO_THREAD = re.compile("can't start new thread|ThreadPoolBuildError|failed to spawn thread")
"""Python's words, rayon's and Rust's."""

_SHELL = {
    "RLIMIT_NOFILE": ("ulimit -n", 1),
    "RLIMIT_AS": ("ulimit -v", 1024),
    "RLIMIT_DATA": ("ulimit -d", 1024),
    "RLIMIT_NPROC": ("ulimit -u", 1),
}
"""What the shell calls a limit, and its unit in bytes."""


def _error_of(action: str | None, what: str, limit: str, names: Sequence[str]) -> ResourceError:
    values = _values(names)
    message = what if action is None else f"{action}: {what}"
    if values:
        message += f" ({', '.join(values.values())})"
    raised = " or ".join(f"`{word}`" for word in values or [limit])
    return ResourceError(message, hint=f"raise {raised}, or use fewer processes: -j 1")


def refuse_little_memory() -> None:
    """Refuse to begin where libraries would not even start their threads: some of them then abort the process.

    Raises:
        ResourceError: the limit on memory is lower than any command needs.

    """
    import resource  # noqa: PLC0415 - whoever imports this may have no use for it

    value = resource.getrlimit(resource.RLIMIT_AS)[0]
    if value != resource.RLIM_INFINITY and value < _LEAST_BYTES:
        raise ResourceError(
            f"{value // 2**20} MiB of memory are too little (`ulimit -v` is {value // 1024})",
            hint=f"raise it to {_LEAST_BYTES // 1024} at least; most of it is address space that is never used",
        )


_LEAST_BYTES = 512 * 2**20


def memory_limits() -> str:
    """The limits on memory that are set, in brackets behind a space; nothing where there are none."""
    values = _values(["RLIMIT_AS", "RLIMIT_DATA"])
    return f" ({', '.join(values.values())})" if values else ""


def _values(names: Sequence[str]) -> dict[str, str]:
    """The limits that are set: what the shell calls each, and what it is."""
    import resource  # noqa: PLC0415 - only on this path

    values = {}
    for name in names:
        value = resource.getrlimit(getattr(resource, name))[0]
        if value != resource.RLIM_INFINITY:
            word, unit = _SHELL[name]
            values[word] = f"`{word}` is {value // unit}"
    return values
