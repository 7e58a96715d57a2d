"""What tests of several commands share."""

import click.testing
import pytest


@pytest.fixture
def terminal(monkeypatch):
    """Output goes to a terminal without colors, as wide as `COLUMNS`; in a pipe nothing is wrapped."""
    monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda _: True)
    monkeypatch.setenv("TERM", "dumb")
