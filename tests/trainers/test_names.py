"""The names of packer.load.trainers: lazy, and plain about what they need."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="TORCH MISSING: trainers are not tested")

from packer.load import trainers

HOMES = {"PackedDataModule": "lightning", "PackedSFTTrainer": "trl", "PackedTrainer": "transformers"}


def test_names_are_sorted_and_import_nothing_before_they_are_asked_for():
    assert sorted(trainers.__all__) == trainers.__all__
    assert set(HOMES) < set(trainers.__all__)
    code = (
        "import packer.load.trainers, sys; print([n for n in ('torch', 'numpy', 'transformers') if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="PackedNothing"):
        _ = trainers.PackedNothing


@pytest.mark.parametrize("name", HOMES)
def test_without_its_library_a_trainer_says_what_to_install(name, monkeypatch):
    library = HOMES[name]
    for loaded in [loaded for loaded in sys.modules if loaded.startswith("packer.load.trainers.")]:
        monkeypatch.delitem(sys.modules, loaded)
    for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == library]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"{name} needs (datasets|{library}): pip install torch {library}"):
        getattr(trainers, name)
