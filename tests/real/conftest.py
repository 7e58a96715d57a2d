"""Real tokenizers fitted to real templates, for all tests of a session."""

from pathlib import Path

import pytest
from fitted_tokenizers import Fitted


@pytest.fixture(scope="session")
def fitted(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return Fitted(real, tmp_path_factory.mktemp("fitted"))
