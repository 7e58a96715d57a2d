"""Makes the environments in which `make bench PEERS=1` runs LLaMA-Factory, axolotl and datatrove, each with the versions it asks for.

    python tests/bench/preparing/install.py [llamafactory] [axolotl] [datatrove]

An environment is .venv/peers/NAME (PACKER_PEERS names another folder). torch comes first and pinned: a range would bring gigabytes
of CUDA to a machine without a GPU. The peer itself comes without its dependencies, which are mostly for training and
for pictures; NAME.txt beside this file lists those that its preparation of text imports.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = Path(os.environ.get("PACKER_PEERS", HERE.parents[2] / ".venv" / "peers"))
TORCH = "torch==2.13.0"
_TRAINERS = {"llamafactory": "llamafactory==0.9.5", "axolotl": "axolotl==0.19.0"}
PEERS = {**_TRAINERS, "datatrove": "datatrove==0.10.1"}


def environment(name: str) -> Path:
    """The Python of a peer's environment, installed or not."""
    return FOLDER / name / "bin" / "python"


def is_installed(name: str) -> bool:
    """Whether :func:`install` came to its end."""
    return (FOLDER / name / "installed").exists()


def install(name: str) -> None:
    print(f"{PEERS[name]} into {FOLDER / name}", file=sys.stderr)
    venv.create(FOLDER / name, with_pip=True)
    pip = [str(environment(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    torch = [TORCH] if name in _TRAINERS else []
    if torch:
        subprocess.run([*pip, *torch], check=True)
    subprocess.run([*pip, *torch, "--requirement", str(HERE / f"{name}.txt")], check=True)
    subprocess.run([*pip, "--no-deps", PEERS[name]], check=True)
    (FOLDER / name / "installed").touch()


if __name__ == "__main__":
    for asked in sys.argv[1:] or PEERS:
        if not is_installed(asked):
            install(asked)
