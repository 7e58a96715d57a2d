"""Real processes under torchrun, on this machine alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processes import HANG_S

TESTS = Path(__file__).parent

SEVERAL_PROCESSES = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
        reason="GLOO MISSING: several processes are not tested",
    ),
]


def torchrun(script, *arguments, num_processes):
    """Run a script in some processes; it must end well. Returns what they wrote."""
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
    run = subprocess.Popen(
        [sys.executable, *command, str(script), *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = run.communicate(timeout=HANG_S)
    finally:
        run.terminate()  # and with it, where it still lives, its processes
        run.wait(HANG_S)
    assert run.returncode == 0, output[-8000:]
    return output


def environment():
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        variables["GLOO_SOCKET_IFNAME"] = "lo"  # a host whose name leads nowhere can still run this
    return variables
