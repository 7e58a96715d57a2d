"""Real tokenizers fitted to real templates, for all tests of a session."""

import os
from pathlib import Path

import pytest
from fitted_tokenizers import Fitted


@pytest.fixture(scope="session")
def fitted(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return Fitted(real, tmp_path_factory.mktemp("fitted"), shared=shared)
