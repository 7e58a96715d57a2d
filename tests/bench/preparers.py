"""What people prepare rows with today, each by its own code in a process of its own, datatrove in an environment of its own too."""

import os
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from preparing.install import PYTHON, is_installed
from watched import run_watched

_SCRIPTS = Path(__file__).parent / "preparing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparer:
    name: str
    """As people write it."""

    module: str

    def python(self) -> str | None:
        """What runs it; None where it is not installed."""
        if self.module == "trl":
            return sys.executable if _version("trl") is not None else None
        return str(PYTHON) if is_installed() else None

    @property
    def missing(self) -> str:
        """What to say where it is not installed."""
        if self.module == "trl":
            return "MISSING: make bench installs it"
        return "MISSING: python tests/bench/preparing/install.py"


TRL = Preparer(name="TRL", module="trl")
DATATROVE = Preparer(name="datatrove", module="datatrove")


def prepare(
    preparer: Preparer, rows: Path, folder: Path, *, tokenizer: Path, block_len: int, jobs: int
) -> dict[str, Any] | None:
    """What a preparation reports, see :func:`watched.run_watched`; None where it is not installed.

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
    result = run_watched(command, log=folder.with_suffix(".log"), cwd=folder, env=variables)
    shutil.rmtree(folder)
    return result


def _version(name: str) -> str | None:
    try:
        return version(name)
    except ModuleNotFoundError:
        return None
