"""Reading a single row, for the tests of schemas."""

from collections.abc import Callable
from typing import Any

import pytest

from packer.batches import Sample
from packer.rejections import CODES
from packer.source.decode import Refused
from packer.source.schema import read_row


@pytest.fixture
def sample() -> Callable[..., Sample]:
    """The sample a row becomes."""

    def read(row: Any, schema: str = "messages", columns: dict[str, str | None] | None = None) -> Sample:
        return read_row(row, number=7, schema=schema, columns=columns or {})

    return read


@pytest.fixture
def refusal() -> Callable[..., tuple[str, str]]:
    """Code and reason with which a row is refused."""

    def read(row: Any, schema: str = "messages", columns: dict[str, str | None] | None = None) -> tuple[str, str]:
        with pytest.raises(Refused) as caught:
            read_row(row, number=7, schema=schema, columns=columns or {})
        assert caught.value.code in CODES
        return caught.value.code, caught.value.reason

    return read
