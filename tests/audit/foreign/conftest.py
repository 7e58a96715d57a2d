"""What tests of foreign data share."""

import functools

import pytest

from packer.audit.foreign.tokenizer_facts import load_facts


@pytest.fixture(scope="module", autouse=True)
def known_once():
    """Tokenizer and template are asked once for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("packer.audit.foreign.load_facts", functools.cache(load_facts))
        yield
