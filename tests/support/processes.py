"""Python code in a process of its own, for what may hang, die or must not disturb the tests."""

import json
import os
import socket
import subprocess
import sys
import time
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


def printed(process, timeout=HANG_S):
    """What it printed, a JSON value a line; fails where it fails or takes longer than `timeout` seconds."""
    try:
        output, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    assert process.returncode == 0, (process.returncode, errors[-4000:])
    return [json.loads(line) for line in output.splitlines()]


def in_a_process(code, *arguments, timeout=HANG_S):
    return printed(start(code, *arguments), timeout)


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
