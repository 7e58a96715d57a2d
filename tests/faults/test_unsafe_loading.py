"""No byte of a cache, a recipe or an input is ever run: nothing in packer or its command line loads code from data."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted([*(REPOSITORY / "packer").rglob("*.py"), *(REPOSITORY / "cli").rglob("*.py")])

MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "dbm",
    "code",
    "codeop",
}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
ATTRIBUTES = {"load_module", "unsafe_load", "full_load", "full_load_all", "unsafe_load_all", "read_pickle"}
LOADERS = {"Loader", "FullLoader", "UnsafeLoader", "CLoader", "CFullLoader", "CUnsafeLoader"}


def safe_loaders(tree: ast.Module) -> set[str]:
    """Classes of a module that are made from YAML's SafeLoader alone."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name for node in classes if [ast.unparse(base) for base in node.bases] == ["yaml.SafeLoader"]}


def is_safe_load(node: ast.AST, loaders: set[str]) -> bool:
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "yaml.load":
        return False
    return [(word.arg, ast.unparse(word.value) in loaders) for word in node.keywords] == [("Loader", True)]


def unsafe(source: str) -> list[str]:
    """What in a module could run what it reads."""
    found = []
    tree = ast.parse(source)
    safe_loads = {id(node.func) for node in ast.walk(tree) if is_safe_load(node, safe_loaders(tree))}
    for node in ast.walk(tree):
        if id(node) in safe_loads:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module] if (node.module or "").split(".")[0] in MODULES else []
            found += [alias.name for alias in node.names if node.module == "yaml" and alias.name in LOADERS]
        elif isinstance(node, ast.Name) and node.id in CALLS:
            found.append(node.id)
        elif isinstance(node, ast.Attribute):
            found += [node.attr] if node.attr in ATTRIBUTES else []
            is_yaml = isinstance(node.value, ast.Name) and node.value.id == "yaml"
            found += [f"yaml.{node.attr}"] if is_yaml and node.attr in {"load", "load_all", *LOADERS} else []
            is_torch = isinstance(node.value, ast.Name) and node.value.id in {"torch", "np", "numpy"}
            found += [f"{node.value.id}.load"] if is_torch and node.attr == "load" else []
        elif isinstance(node, ast.keyword) and node.arg in {"allow_pickle", "shell"}:
            value = node.value
            found += [node.arg] if not (isinstance(value, ast.Constant) and value.value is False) else []
    return found


def test_nothing_that_is_read_is_run() -> None:
    assert len(FILES) > 150
    for path in FILES:
        assert unsafe(path.read_text("utf-8")) == [], path


def test_templates_run_in_a_sandbox() -> None:
    """The one thing a user brings that is run at all."""
    environments = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute | ast.Name) and "Environment" in ast.unparse(node):
                environments.add(ast.unparse(node))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jinja2"):
                assert not {"Environment", "Template", "NativeEnvironment"} & {alias.name for alias in node.names}, path
    assert "jinja2.sandbox.ImmutableSandboxedEnvironment" in environments
    assert not {"jinja2.Environment", "jinja2.Template", "jinja2.nativetypes.NativeEnvironment"} & environments


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from marshal import loads", "import shelve as s", "eval('1')", "exec(code)", "f = eval",
        "yaml.load(text)", "yaml.load(text, Loader=loader)", "class L(yaml.Loader): pass\nyaml.load(text, Loader=L)", "yaml.unsafe_load(text)", "from yaml import Loader",
        "np.load(path)", "torch.load(path)", "np.fromfile(path, allow_pickle=True)", "__import__(name)",
        "subprocess.run(words, shell=True)", "compile(text, 'x', 'exec')",
    ],
)  # fmt: skip
def test_what_would_run_data_is_seen(source: str) -> None:
    assert unsafe(source)
