"""Constraints for pip: the oldest version of all that pyproject.toml declares; of what tests need besides, the pinned one.

torch is pinned too: of older ones only builds with gigabytes of CUDA can be named by a version alone.
"""

import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).resolve().parent

_OLDEST = {"gigatoken", "transformers"}
"""What has an oldest version of its own, the last that which PackedTrainer takes."""


def minimums() -> list[str]:
    """Of the dependencies and of the extras `fast` and `hub`, as ``name==version``."""
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["fast"], *extras["hub"]]
    return [re.sub(r"^([\w-]+)>=([\d.]+).*", r"\1==\2", requirement) for requirement in declared]


def of_tests() -> list[str]:
    """What requirements.txt names, as constraints.txt pins it."""
    asked = {line.strip() for line in (TESTS / "requirements.txt").read_text("utf-8").splitlines()} - _OLDEST
    pinned = (TESTS / "constraints.txt").read_text("utf-8").splitlines()
    return [line for line in pinned if line.split("==")[0] in asked]


if __name__ == "__main__":
    print("\n".join([*minimums(), *of_tests(), "transformers==4.57.0"]))
