"""The layout of docs/architecture.md, held to the code: who may import whom."""

import ast
import functools
import graphlib
import re
from pathlib import Path

import pytest

from packer import names
from packer.load.trainers import TRAINERS

REPOSITORY = Path(__file__).resolve().parent.parent

# From the bottom up: a module imports only from layers above its own line.
LAYERS = (
    "version", "display", "errors", "names", "literals", "host", "named_templates", "recipe", "rejections",
    "media", "batches", "layout", "permute", "hub", "model", "source", "questions", "curate", "render", "tokenize", "supervise", "pack", "store", "pipeline", "audit",
    "report", "load", "export", "starter", "recipe_from",
)  # fmt: skip
STAGES = {"source", "curate", "render", "tokenize", "supervise", "pack", "store", "starter"}


def layer_of(path: Path) -> str:
    return path.relative_to(REPOSITORY / "packer").parts[0].removesuffix(".py")


_KEPT = ast.Import | ast.ImportFrom | ast.Call | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_NAMED: dict[type[ast.AST], str] = {
    **dict.fromkeys((ast.alias, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler), "name"),
    **dict.fromkeys((ast.arg, ast.keyword), "arg"),
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.ImportFrom: "module",
    ast.MatchAs: "name",
}


@functools.cache
def read(path: Path) -> tuple[list[ast.AST], set[str]]:
    """Some nodes, and all names: every collection of garbage would look through all nodes of all files."""
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    names = {getattr(node, _NAMED[type(node)]) for node in nodes if type(node) in _NAMED} - {None}
    return [node for node in nodes if isinstance(node, _KEPT)], names


def nodes_of(path: Path) -> list[ast.AST]:
    return read(path)[0]


@functools.cache
def calls_of(path: Path) -> list[tuple[ast.Call, str]]:
    """Calls, with what is called."""
    return [(node, ast.unparse(node.func)) for node in nodes_of(path) if isinstance(node, ast.Call)]


@functools.cache
def imports_of(path: Path) -> set[str]:
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


MODULES = sorted(path for path in (REPOSITORY / "packer").rglob("*.py") if "files" not in path.parts)


def test_modules_are_short() -> None:
    modules = [*MODULES, *(REPOSITORY / "cli").rglob("*.py")]
    assert not [path.name for path in modules if len(path.read_text("utf-8").splitlines()) > 400]


def test_modules_import_only_what_stands_before_them() -> None:
    checked = 0
    for path in MODULES:
        own = layer_of(path)
        if own in ("__init__", "__main__"):
            continue
        for name in imports_of(path):
            parts = name.split(".")
            if parts[0] != "packer" or len(parts) == 1 or parts[1] == own or parts[1].startswith("__"):
                continue
            checked += 1
            assert {parts[1], own} <= {*LAYERS}, f"{path} imports {name}, and one of them has no place"
            assert LAYERS.index(parts[1]) < LAYERS.index(own), f"{path} imports {name}"
            assert not (own in STAGES and parts[1] in STAGES), f"stage {own} imports stage {parts[1]} in {path}"
            assert not (own == "load" and parts[1] in {"pipeline", "audit"} | STAGES - {"store"}), (
                f"{path} imports {name}"
            )
            above = parts[1] in {"pipeline", "audit", "load"} | STAGES
            assert not (own == "export" and above and parts[1] != "store"), f"{path} imports {name}"
    assert checked > 100


def test_no_modules_import_each_other() -> None:
    """Also where only type checkers import."""
    names = {path: ".".join(path.relative_to(REPOSITORY).with_suffix("").parts) for path in MODULES}
    names = {path: name.removesuffix(".__init__") for path, name in names.items()}
    graph: dict[str, set[str]] = {}
    for path, name in names.items():
        imports = [node for node in nodes_of(path) if isinstance(node, ast.Import | ast.ImportFrom)]
        of = [(getattr(node, "module", alias.name), alias.name) for node in imports for alias in node.names]
        graph[name] = {f"{one}.{other}" if f"{one}.{other}" in names.values() else one for one, other in of}
    assert sum(map(len, graph.values())) > 1000
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names them


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("click", None),
        ("rich", None),
        ("torch", "load"),
        ("yaml", "recipe"),
        ("huggingface_hub", "hub"),
        ("obstore", "store"),
    ],
)
def test_a_library_is_imported_only_where_it_belongs(library: str, allowed: str | None) -> None:
    for path in MODULES:
        if any(name.split(".")[0] == library for name in imports_of(path)):
            assert layer_of(path) == allowed, f"{path} imports {library}"


def test_the_libraries_of_trainers_are_imported_only_by_their_own_modules() -> None:
    homes: dict[str, set[str]] = {"grain": set(), "lightning": set(), "torchtitan": set()}
    for entry in TRAINERS.values():
        for library in entry.libraries:
            homes.setdefault(library, set()).add(entry.module)
    for path in MODULES:
        for name in {name.split(".")[0] for name in imports_of(path)} & set(homes):
            is_processor = name == "transformers" and path == REPOSITORY / "packer" / "media" / "loading.py"
            is_home = path.parent.name == "trainers" and path.stem in homes[name]
            assert is_home or is_processor, f"{path} imports {name}"


OBJECT_STORAGE = {
    "display.py": "a folder that stands for a URL is shown as the URL",
    "names.py": "which names are addresses, and of what",
    "source/file_bytes.py": "a file of rows need not be on this machine",
    "pipeline/plan/input_resolution.py": "sources that are objects",
    "pipeline/workers/executor.py": "what other processes are told of a folder",
    "pipeline/workers/ray_workers.py": "the same, and of other machines",
    "load/row_source.py": "an epoch needs all shards at hand",
    "audit/verify/__init__.py": "what is verified is fetched again",
}
"""Modules outside of the store whose code knows of object storage, and for what. There are no more than eight."""

_STORAGE_WORDS = re.compile(
    r"\b(?:\w*_)?(?:buckets?|BUCKETS|mirrors?|copy_objects|objects_of|fetch_all|url_of)(?:_\w+)?\b"
    r"|(?:Bucket|Mirror|ObjectFile|RemoteFile|SentFolder)\b"
)


def test_object_storage_is_known_to_the_store_and_to_few_modules_outside() -> None:
    found = set()
    for path in MODULES:
        place = path.relative_to(REPOSITORY / "packer").as_posix()
        if not place.startswith("store/") and any(map(_STORAGE_WORDS.search, read(path)[1])):
            found.add(place)
    found -= {"load/ordering.py", "curate/near.py"}  # buckets of lengths, and of rows that may be alike
    assert found == {*OBJECT_STORAGE} and len(found) <= 8


OWN_FILES = {
    "host/files.py": "the place",
    "version.py": "packer's own code",
    "host/watchdog.py": "what the kernel says of this process",
    "recipe/named_options.py": "files of the package",
    "starter/__init__.py": "files of the package",
    "report/__init__.py": "files of the package",
    "pipeline/messages/suggestions.py": "a file of the package",
    "store/folder.py": "folders, and temporary files that are new",
    "export/run.py": "files that it made",
}
"""Modules that open files by themselves, and which."""


def opens_a_file(call: ast.Call, name: str) -> bool:
    """Whether a call opens a file for reading, by a name that nothing has looked at."""
    first = ast.unparse(call.args[0]) if call.args else "'r'"
    if name in ("pa.memory_map", "pa.OSFile"):
        return not first.startswith("regular_path(")
    if name.endswith((".read_bytes", ".read_text")) or name in ("open", "io.open", "os.open", "np.fromfile", "np.load"):
        return True
    return name.endswith(".open") and first in ("'r'", "'rb'")


def test_files_that_somebody_else_may_have_made_are_opened_in_one_place() -> None:
    found = {
        path.relative_to(REPOSITORY / "packer").as_posix()
        for path in MODULES
        for call, name in calls_of(path)
        if opens_a_file(call, name)
    }
    assert found == {*OWN_FILES}


def test_the_map_names_every_folder_of_the_library() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")
    library = REPOSITORY / "packer"
    folders = sorted(path.parent.relative_to(library).as_posix() for path in library.glob("*/**/__init__.py"))
    assert len(folders) > 12
    assert [folder for folder in folders if f"`{folder}/`" not in text] == []


def test_the_map_names_nothing_that_is_gone() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")
    names = re.findall(r"`([\w/]+(?:/|\.(?:py|yaml)))`", text)
    assert len(names) > 30
    places = (REPOSITORY, REPOSITORY / "packer")
    assert [name for name in names if not any((place / name).exists() for place in places)] == []


def test_every_package_is_installed() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text("utf-8")
    for path in sorted((REPOSITORY / "packer").rglob("__init__.py")):
        package = ".".join(path.parent.relative_to(REPOSITORY).parts)
        assert f'"{package}"' in text, f"pyproject.toml does not list {package}"


def test_patterns_hold_the_whole_value() -> None:
    r"""`$` also matches before a newline at the end, so that "train\n" would pass for "train"; and `msgspec` searches."""
    checked = 0
    for path in (*MODULES, *sorted((REPOSITORY / "cli").glob("*.py"))):
        for call, name in calls_of(path):
            if name.startswith("re."):
                texts = [part.value for part in ast.walk(call.args[0]) if isinstance(part, ast.Constant)]
                assert not [text for text in texts if re.search(r"(?<!\\)\$", str(text))], f"{path}: {texts}"
                checked += len(texts)
            for value in (keyword.value for keyword in call.keywords if keyword.arg == "pattern"):
                found = value.value if isinstance(value, ast.Constant) else getattr(names, ast.unparse(value))
                assert re.fullmatch(r"\\A.*\\Z", found) and "$" not in found, f"{path}: {found}"
                checked += 1
    assert checked > 40


def test_commands_print_by_the_output_layer_alone() -> None:
    """It shows what would steer a terminal; whoever printed past it would have to think of that himself."""
    writing = {"echo", "secho", "style", "print", "write", "writelines", "print_exception", "print_exc", "Console"}
    checked = 0
    for path in sorted(set((REPOSITORY / "cli").glob("*.py")) - {REPOSITORY / "cli" / "output.py"}):
        for call, called in calls_of(path):
            name = called.rpartition(".")[2]
            assert name not in writing, f"{path}:{call.lineno} prints by {name}"
            checked += name == "line"
    assert checked > 50


def test_every_entry_of_a_docstring_has_a_name() -> None:
    """The site stops at a section of arguments or errors with a line that names none, such as one indented too little."""
    checked = 0
    for path in MODULES:
        for node in nodes_of(path):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for section in re.findall(r"(?m)^(?:Args|Raises):\n((?:(?: .*)?\n?)+)", ast.get_docstring(node) or ""):
                for entry in re.findall(r"(?m)^ {4}(\S.*)$", section):
                    assert re.match(r"[\w.*]+(, [\w.]+)*: ", entry), f"{path}: {node.name}: {entry}"
                    checked += 1
    assert checked > 250
