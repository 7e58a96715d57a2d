"""Python code in a process of its own, for what may hang, die or must not disturb the tests."""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import ExitStack
from pathlib import Path

HANG_S = 300
"""What is waited for longer hangs. A loaded machine may take a minute for what a quiet one does in a second."""


def start(code, *arguments, interactive=False):
    """A process that finds what the tests find; `interactive` leaves its input open."""
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE if interactive else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_forked(code, *arguments, stdin="", **environment):
    """Code in a copy of this process: a new one would import torch for two seconds, which is here already."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: there are threads here
            child = os.fork()
        if not child:
            _run_and_end(code, arguments, files, environment)
        hangs, done, status = time.monotonic() + HANG_S, 0, 0
        while not done:
            done, status = os.waitpid(child, os.WNOHANG)
            if not done and time.monotonic() > hangs:
                os.kill(child, signal.SIGKILL)
            time.sleep(0 if done else 0.005)
        stdout, stderr = (file.seek(0) or file.read() for file in files[1:])
    return subprocess.CompletedProcess(code, os.waitstatus_to_exitcode(status), stdout, stderr)


def _run_and_end(code, arguments, files, environment):
    end = 1
    try:
        gc.freeze()  # what is garbage here is the parent's to end: it may be a folder that is in use
        atexit._clear()  # and so is what the parent does at its end, which code that ends as `packer` does would do here
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        sys.argv = ["-c", *map(str, arguments)]
        os.environ.update({"TOKENIZERS_PARALLELISM": "false"} | environment)
        exec(code, {"__name__": "__main__"})
        end = 0
    except SystemExit as ended:
        end = ended.code or 0
    except BaseException:  # noqa: BLE001 - told as a process of its own would tell it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end)


def in_a_process(code, *arguments):
    """What code printed in a copy of this process, a JSON value a line; fails where it fails or hangs."""
    done = run_forked(code, *arguments)
    assert done.returncode == 0, (done.returncode, done.stderr[-4000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def wait_until(reached):
    """Wait for what happens soon; fail where it never does."""
    hangs = time.monotonic() + HANG_S
    while not reached():
        assert time.monotonic() < hangs
        time.sleep(0.002)


FORKED = """
import json, os, signal

def forked(work):
    # What `work` gives in a child; a child that hangs is ended by a signal after two minutes.
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(120)
        try:
            text = json.dumps(work())
        except BaseException as error:
            text = json.dumps(repr(error))
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else f"died: {os.waitstatus_to_exitcode(status)}"
"""


def free_ports(number):
    """Ports that nothing listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def is_running(process: int) -> bool:
    """Whether there is such a process that has not ended; one that nobody waited for yet has."""
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return not Path("/proc/self/stat").exists() and _answers(process)


def _answers(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
