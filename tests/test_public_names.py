"""The public names: sorted, complete, lazy."""

import subprocess
import sys
from pathlib import Path

import packer


def test_public_names_are_sorted_and_all_load() -> None:
    assert packer.__all__ == sorted(packer.__all__)
    for name in packer.__all__:
        if not name.startswith("Packed"):
            assert getattr(packer, name).__module__.startswith("packer.")


def printed(code: str, *arguments: Path) -> list[str]:
    run = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def test_importing_packer_imports_nothing_heavy_and_building_no_torch_and_no_client_of_the_hub(
    starter: Path, tmp_path: Path
) -> None:
    code = """
import packer, sys
heavy = ("torch", "pyarrow", "numpy", "tokenizers", "jinja2", "importlib.metadata")
print([name for name in heavy if name in sys.modules])
import packer.audit.preview, packer.audit.verify, packer_cli.main
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from pathlib import Path
build(load_recipe(Path(sys.argv[1])), sys.argv[2], jobs=1)
print([name for name in ("torch", "transformers", "pandas", "ray", "obstore", "huggingface_hub", "httpx") if name in sys.modules])
"""
    assert printed(code, starter / "recipe.yaml", tmp_path / "cache") == ["[]", "[]"]


IMPORTED = {
    "explain prompt_diverges": ["numpy"],
    "export CACHE --to datasets -o OUTPUT": ["numpy"],
    "diff CACHE CACHE": ["numpy", "tokenizers"],
    "check CACHE": ["numpy", "tokenizers"],
    "inspect CACHE": ["numpy", "tokenizers"],
    "verify CACHE": ["numpy", "tokenizers"],
}
"""What commands have imported once they were run in this order."""


def test_a_command_that_renders_nothing_imports_nothing_that_renders(starter_cache: Path, tmp_path: Path) -> None:
    code = """
import sys
from packer_cli.main import cli
for command in sys.argv[3:]:
    paths = {"CACHE": sys.argv[1], "OUTPUT": sys.argv[2]}
    try:
        cli.main([paths.get(word, word) for word in command.split()])
    except SystemExit:
        pass
    names = ("numpy", "tokenizers", "jinja2", "packer.pipeline.stages", "pandas")
    print("imported:", [name for name in names if name in sys.modules])
"""
    told = printed(code, starter_cache, tmp_path / "export", *map(Path, IMPORTED))
    imported = [line for line in told if line.startswith("imported:")]
    assert imported == [f"imported: {each}" for each in IMPORTED.values()]


def test_without_torch_the_readers_say_what_to_install() -> None:
    code = """
import sys, packer
sys.modules["torch"] = None  # as where it is not installed
for name in ("PackedDataset", "PackedLoader"):
    try:
        getattr(packer, name)
    except ImportError as error:
        print(error)
"""
    told = 'needs torch: pip install "token-packer[torch]"'
    assert printed(code) == [f"PackedDataset {told}", f"PackedLoader {told}"]
