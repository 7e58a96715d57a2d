"""How long a property is searched that is dear: a share of what its profile gives."""

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Case = TypeVar("Case")
IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


def percent_of_examples(percent: int) -> settings:
    """A decorator: in `make deep` this share of its 1,000 examples, in `make test` of its 15, but 6 at least."""
    return settings(max_examples=max(6, settings.default.max_examples * percent // 100))


def one_in(number: int, cases: Sequence[Case]) -> Sequence[Case]:
    """In `make deep` all cases, in `make test` the first and every so many of the others."""
    return cases if IS_DEEP else cases[::number]
