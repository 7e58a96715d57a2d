"""No byte of a cache, a recipe or an input is ever run: nothing in packer or its command line loads code from data."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted([*(REPOSITORY / "packer").rglob("*.py"), *(REPOSITORY / "cli").rglob("*.py")])
RULES = "S102,S301,S302,S307,S506,S602,S604,S605"
"""Ruff's: exec, pickle and its kin, marshal, eval, YAML's unsafe loaders, shells."""


RUNS = re.compile(
    r"allow_pickle=(?!False)|(torch|np)\.load\(|(?<![\w.])(compile|__import__)\("
    r"|^ *(import|from) (pickle|marshal|shelve|dill|cloudpickle|joblib|dbm|code|codeop)\b", re.MULTILINE,
)  # fmt: skip
"""What it does not look for."""

RUFF = Path(sys.executable).with_name("ruff")


def told(*words: str) -> str:
    """What ruff finds, a line each."""
    if not RUFF.exists():
        pytest.skip("RUFF MISSING: code that runs data is not looked for")
    command = [RUFF, "check", "--isolated", "--quiet", "--select", RULES, "--output-format=concise", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode < 2, done.stderr
    return done.stdout


def test_nothing_that_is_read_is_run() -> None:
    """The one load of YAML that ruff is told to pass over takes a loader made from SafeLoader."""
    (passed,) = told("--ignore-noqa", "packer", "cli").splitlines()
    assert passed.startswith("packer/recipe/strict_yaml.py") and "S506" in passed
    tree = ast.parse((REPOSITORY / "packer" / "recipe" / "strict_yaml.py").read_text("utf-8"))
    loaders = {
        node.name: [ast.unparse(base) for base in node.bases] for node in tree.body if isinstance(node, ast.ClassDef)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "yaml.load"]
    assert [loaders[ast.unparse(call.keywords[0].value)] for call in calls] == [["yaml.SafeLoader"]]
    for path in FILES:
        assert not RUNS.search(path.read_text("utf-8")), path
    assert len(FILES) > 150


def test_templates_run_in_a_sandbox() -> None:
    """The one thing a user brings that is run at all; pages are templates of packer's own."""
    environments = set()
    for path in FILES:
        if path.parts[-2:] == ("report", "__init__.py"):
            assert "from_string" not in path.read_text("utf-8")
            continue
        text = path.read_text("utf-8")
        if "Environment" not in text and "jinja2" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute | ast.Name) and "Environment" in ast.unparse(node):
                environments.add(ast.unparse(node))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jinja2"):
                assert not {"Environment", "Template", "NativeEnvironment"} & {alias.name for alias in node.names}, path
    assert "jinja2.sandbox.ImmutableSandboxedEnvironment" in environments
    assert not {"jinja2.Environment", "jinja2.Template", "jinja2.nativetypes.NativeEnvironment"} & environments


PARALLEL = """
from functools import partial
from packer.pipeline.workers.executor import run_tasks
print(sorted(run_tasks(partial(partial, abs), [-1, -2, -3], jobs=2)))
"""


def test_no_process_runs_what_is_in_the_folder_that_packer_is_run_in(tmp_path: Path, tally) -> None:
    """Python looks there first for modules of workers and of what serves them, and for its own."""
    folder, script = tmp_path / "received", tmp_path / "own" / "script.py"
    names = [*sys.stdlib_module_names, "numpy", "packer", "pyarrow", "tokenizers", "xxhash", "usercustomize"]
    for path in (script, *(folder / f"{name}.py" for name in names)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"import os; os.mkdir({str(tmp_path / f'RAN-{path.stem}')!r})")
    script.write_text(PARALLEL)
    done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, check=False)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("RAN")] == []
    assert (done.stdout, done.returncode) == ("[(0, 1), (1, 2), (2, 3)]\n", 0), done.stderr
    tally("modules in the current folder", tried=len(names), held=len(names))
