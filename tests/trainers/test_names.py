"""The names of packer.load.trainers: lazy, and plain about what they need."""

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from packer.load import trainers
from packer.load.trainers import TRAINERS

DOCS = Path(__file__).resolve().parents[2] / "docs"
WITH_LIBRARIES = {name: entry for name, entry in TRAINERS.items() if entry.libraries}


def test_names_are_sorted_and_import_nothing_before_they_are_asked_for():
    assert sorted(trainers.__all__) == trainers.__all__
    assert len(WITH_LIBRARIES) >= 3
    code = (
        "import packer.load.trainers, sys; print([n for n in ('torch', 'numpy', 'transformers') if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="PackedNothing"):
        _ = trainers.PackedNothing


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainer_has_a_module_and_a_page(name):
    entry = TRAINERS[name]
    assert find_spec(f"packer.load.trainers.{entry.module}")
    assert name in (DOCS / "how-to" / "trainers" / entry.page).read_text("utf-8")


@pytest.mark.parametrize("name", WITH_LIBRARIES)
def test_without_its_library_a_trainer_says_what_to_install(name, monkeypatch):
    library = WITH_LIBRARIES[name].libraries[0]
    for loaded in [loaded for loaded in sys.modules if loaded.startswith("packer.load.trainers.")]:
        monkeypatch.delitem(sys.modules, loaded)
    for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == library]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"{name} needs [a-z]+: pip install torch {library}"):
        getattr(trainers, name)


def test_an_older_transformers_is_named(monkeypatch):
    transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: its trainer is not tested")
    monkeypatch.setattr(transformers, "__version__", "4.56.2")
    monkeypatch.delitem(sys.modules, "packer.load.trainers.huggingface", raising=False)
    with pytest.raises(ImportError, match=r"needs transformers 4\.57 or newer, found 4\.56\.2"):
        import_module("packer.load.trainers.huggingface")
