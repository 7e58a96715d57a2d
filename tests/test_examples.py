"""The scripts and notebooks of docs/examples run, each in a folder of its own."""

import importlib.util
import json
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "examples"
NEEDS = {
    "cost.py": [],
    "first_hour.ipynb": ["torch", "transformers"],
    "inspect_batch.py": ["torch"],
    "pretrain_text.py": [],
    "resume_elastic.py": ["torch"],
    "train_loop.py": ["torch", "transformers"],
    "train_trainer.py": ["torch", "transformers", "accelerate"],
}
TRAINING = {"first_hour.ipynb", "train_loop.py", "train_trainer.py"}
"""They build and train as the README does, whose code tests/test_docs.py runs; these run in `make deep`."""


@pytest.mark.filterwarnings("ignore")  # trainers use what their libraries deprecated
@pytest.mark.parametrize(
    "script", [pytest.param(name, marks=[pytest.mark.slow] * (name in TRAINING)) for name in NEEDS]
)
def test_the_example_runs(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [name for name in NEEDS[script] if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{' AND '.join(missing).upper()} MISSING: docs/examples/{script} is not run")
    monkeypatch.chdir(tmp_path)
    if script.endswith(".ipynb"):
        cells = json.loads((FOLDER / script).read_text("utf-8"))["cells"]
        code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        (tmp_path / "notebook.py").write_text(code, "utf-8")
        runpy.run_path(str(tmp_path / "notebook.py"))
    else:
        runpy.run_path(str(FOLDER / script), run_name="__main__")


def test_every_example_is_run_and_listed() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    assert {path.name for path in FOLDER.iterdir() if path.suffix in {".py", ".ipynb"}} == set(NEEDS)
    assert all(f"[{script}]({script})" in page for script in NEEDS)
