"""The public surface: sorted, complete, lazy."""

import subprocess
import sys

import pytest

import packer


def test_public_names_are_sorted_and_all_load() -> None:
    assert packer.__all__ == sorted(packer.__all__)
    for name in packer.__all__:
        if not name.startswith("Packed"):
            assert getattr(packer, name).__module__.startswith("packer.")


def test_importing_packer_imports_nothing_heavy() -> None:
    code = "import packer, sys; print([m for m in ('torch', 'pyarrow', 'numpy', 'tokenizers', 'jinja2') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_building_and_reading_a_cache_needs_no_torch() -> None:
    code = "import packer.pipeline, packer.audit.verify, packer.store.cache, sys; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["PackedDataset", "PackedLoader"])
def test_without_torch_the_reader_says_what_to_install(name: str) -> None:
    code = f"""
import sys
sys.modules["torch"] = None  # as where it is not installed
try:
    from packer import {name}
except ImportError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f'{name} needs torch: pip install "token-packer[torch]"'
