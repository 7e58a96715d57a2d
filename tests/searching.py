"""How long a property is searched that is dear: a share of the examples its profile gives."""

from hypothesis import settings


def percent_of_examples(percent: int) -> settings:
    """A decorator: in `make test`, whose profile gives 100 examples, so many; in `make deep` as large a share of 2000."""
    return settings(max_examples=settings.default.max_examples * percent // 100)
