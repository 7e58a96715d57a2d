"""How long a property is searched that is dear: a share of what its profile gives."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Case = TypeVar("Case")
IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


def percent_of_examples(percent: int) -> settings:
    """A decorator: in `make deep` this share of its 1,000 examples, in `make test` of its 15, but 6 at least."""
    return settings(max_examples=max(6, settings.default.max_examples * percent // 100))


def one_in(number: int, cases: Sequence[Case]) -> Sequence[Case]:
    """In `make deep` all cases, in `make test` the first and every so many of the others."""
    return cases if IS_DEEP else cases[::number]


def each_with_a_kind(cases: Iterable[Any], kinds: Sequence[str]) -> list[Any]:
    """Every case beside one kind of file in turn; beside the others in `make deep`."""
    return [
        pytest.param(case, kind, marks=[pytest.mark.slow] * (kinds.index(kind) != number % len(kinds)))
        for number, case in enumerate(cases)
        for kind in kinds
    ]
