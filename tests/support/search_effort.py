"""How long a property is searched that is dear: a share of the examples its profile gives."""

from hypothesis import settings


def percent_of_examples(percent: int) -> settings:
    """A decorator: in `make deep` this share of its 1,000 examples, in `make test` of its 25, but 15 at least."""
    return settings(max_examples=max(15, settings.default.max_examples * percent // 100))
