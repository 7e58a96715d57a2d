"""The clock of transformers, stopped on the recipe's day."""

import datetime as dt

import pytest
from conformance.conversations import DAY


class Stopped(dt.datetime):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> "Stopped":
        return cls.fromisoformat(DAY)


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Stopped)
