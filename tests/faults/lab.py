"""Where builds run whose storage is watched, refused or cut off.

One process imports packer and builds once, and forks for every experiment, so that an experiment costs what is its own.
No thread of it is running when it forks.
"""

import contextlib
import ctypes
import dataclasses
import gc
import io
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from faults.jobs import write_job
from faults.storage import Fault, Storage
from processes import HANG_S

TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a command."""

    code: int
    """Exit code; minus the signal, where one ended it."""

    told: str
    """stderr."""

    counts: dict[str, int]
    """Calls by name."""

    num_hit: int
    """Calls that failed."""

    trace: list[list[Any]]


class Lab:
    """Runs `packer` commands in forked processes."""

    def __init__(self) -> None:
        paths = os.pathsep.join(
            [str(TESTS / "support"), str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.lab"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(HANG_S)
        self._process.stdout.close()

    def run(
        self,
        words: Sequence[str],
        *,
        root: Path,
        fault: Fault | None = None,
        trace: bool = False,
        file_bytes: int | None = None,
        as_owner: bool = False,
        cwd: Path | None = None,
        limit_s: int = HANG_S,
    ) -> Outcome:
        """Run a command whose storage below `root` is watched.

        Args:
            words: the command.
            root: the folder.
            fault: what goes wrong.
            trace: return the record of the calls.
            file_bytes: no file may be longer (RLIMIT_FSIZE).
            as_owner: without root's right to pass over permissions.
            cwd: where it runs.
            limit_s: it is ended by SIGALRM after so many seconds.

        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            request = {
                "words": list(words),
                "root": str(root),
                "fault": None if fault is None else dataclasses.asdict(fault),
                "trace": trace,
                "file_bytes": file_bytes,
                "as_owner": as_owner,
                "cwd": None if cwd is None else str(cwd),
                "limit_s": limit_s,
                "answer": f"{place}/answer",
            }
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            status = int(self._process.stdout.readline())
            answer = Path(place, "answer")
            values = json.loads(answer.read_text()) if answer.exists() else _NOTHING
        return Outcome(code=status, **values)


_NOTHING: dict[str, Any] = {"told": "", "counts": {}, "num_hit": 1, "trace": []}


def obey_permissions() -> None:
    """Give up root's right to write where permissions say no (Linux: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("=Ii", 0x20080522, 0)  # version 3 of the interface, this process
    rights = ctypes.create_string_buffer(24)  # effective, permitted, inheritable; twice 32 bits of each
    assert libc.capget(header, rights) == 0, os.strerror(ctypes.get_errno())
    low = [value & ~0b110 for value in struct.unpack("=6I", rights.raw)[:3]]
    rest = struct.unpack("=6I", rights.raw)[3:]
    assert libc.capset(header, struct.pack("=6I", *low, *rest)) == 0, os.strerror(ctypes.get_errno())


def experiment(request: dict[str, Any]) -> int:
    """In a process of its own: the command, watched."""
    from packer_cli.main import cli

    values = request["fault"]
    fault = None if values is None else Fault(**values | {"calls": tuple(values["calls"])})
    storage = Storage(root=request["root"], fault=fault)
    told = io.StringIO()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.alarm(request["limit_s"])
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    if request["as_owner"]:
        obey_permissions()
    if request["file_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"], limits[1]))
    storage.install()
    code = 70
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
            cli.main(request["words"], prog_name="packer")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 70
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    answer = {
        "told": told.getvalue(),
        "counts": storage.counts,
        "num_hit": storage.num_hit,
        "trace": storage.trace if request["trace"] else [],
    }
    Path(request["answer"]).write_text(json.dumps(answer))
    return code


def warm_up() -> None:
    """Import and compile what all experiments need, which takes longer than the rest of their builds."""
    from packer_cli.main import cli

    with tempfile.TemporaryDirectory() as place:
        job, cache = write_job(Path(place, "job"), num_rows=8), Path(place, "cache")
        for words in (job.command(cache), ["verify", str(cache), "-j", "1"]):
            with contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as end:
                cli.main(words, prog_name="packer")
            assert end.value.code == 0
    assert threading.active_count() == 1


def serve() -> None:
    """Answer requests, one a line, until there are no more."""
    warm_up()
    gc.collect()
    gc.freeze()
    gc.disable()  # an experiment ends before its garbage matters, and looking for it would copy what all share

    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(experiment(request))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
