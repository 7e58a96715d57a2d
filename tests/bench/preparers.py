"""What people prepare rows with today, each by its own code in a process, and where versions differ an environment, of its own."""

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from one_build import family, own_bytes
from preparing.install import environment, is_installed

_SCRIPTS = Path(__file__).parent / "preparing"
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparer:
    name: str
    """As people write it."""

    module: str

    def python(self) -> str | None:
        """What runs it; None where it is not installed."""
        if self.module == "trl":
            return sys.executable if _version("trl") is not None else None
        return str(environment(self.module)) if is_installed(self.module) else None

    @property
    def missing(self) -> str:
        """What to say where it is not installed."""
        if self.module == "trl":
            return "MISSING: make bench installs it"
        return f"MISSING: python tests/bench/preparing/install.py {self.module}"


TRL = Preparer(name="TRL", module="trl")
OTHERS = (
    Preparer(name="LLaMA-Factory", module="llamafactory"),
    Preparer(name="axolotl", module="axolotl"),
)


def prepare(
    preparer: Preparer, rows: Path, folder: Path, *, tokenizer: Path, block_len: int, jobs: int
) -> dict[str, Any] | None:
    """What a preparation tells of itself, with ``peak_bytes`` of its largest process; None where it is not installed.

    Raises:
        ChildProcessError: it failed; the message ends as its output did.

    """
    python = preparer.python()
    if python is None:
        return None
    folder.mkdir()
    script = _SCRIPTS / f"with_{preparer.module}.py"
    command = [python, script, rows.absolute(), tokenizer.absolute(), block_len, jobs, folder.absolute()]
    # Nothing of this repository, and nothing of the person's own caches, enters.
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables = {**outside, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    log = folder.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command], cwd=folder, env=variables, stdout=output, stderr=subprocess.STDOUT
        )
        watch = _Watch(process.pid)
        watch.start()
        failed = process.wait()
        watch.done.set()
    lines = log.read_text("utf-8", "replace").splitlines()
    shutil.rmtree(folder)
    if failed:
        raise ChildProcessError(f"{preparer.name} failed:\n" + "\n".join(lines[-20:]))
    told: dict[str, Any] = json.loads(lines[-1])
    return {**told, "peak_bytes": watch.peak_bytes}


class _Watch(threading.Thread):
    """Looks at a process and those below it, as one_build.py looks at packer's."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self._process = process
        self.peak_bytes = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(_LOOK_S):
            for process in family(self._process):
                self.peak_bytes = max(self.peak_bytes, own_bytes(process))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except ModuleNotFoundError:
        return None
