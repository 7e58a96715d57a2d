"""Makes the environment in which `make bench PEERS=1` runs datatrove: .venv/peers/datatrove, or one in the folder PACKER_PEERS.

datatrove comes without its dependencies; datatrove.txt beside this file lists those that its tokenization of text imports.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = Path(os.environ.get("PACKER_PEERS", HERE.parents[2] / ".venv" / "peers")) / "datatrove"
PYTHON = FOLDER / "bin" / "python"
RELEASE = "datatrove==0.10.1"


def is_installed() -> bool:
    """Whether :func:`install` came to its end."""
    return (FOLDER / "installed").exists()


def install() -> None:
    print(f"{RELEASE} into {FOLDER}", file=sys.stderr)
    venv.create(FOLDER, with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(HERE / "datatrove.txt")], check=True)
    subprocess.run([*pip, "--no-deps", RELEASE], check=True)
    (FOLDER / "installed").touch()


if __name__ == "__main__" and not is_installed():
    install()
