"""Checks for the arguments of the reader's public names: a wrong one is refused early, with what was expected."""

import operator
import os
import reprlib
from typing import Any, Final, TypeVar

from packer.errors import UsageError
from packer.store.cache import Cache

Kind = TypeVar("Kind")

MOST: Final = 2**31 - 1
"""Upper bound of sizes and lengths, which are counted in int32."""


def whole(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """Return a Python or numpy integer as a Python int, which a state can store; raise ValueError for anything else."""
    given: Any = None if isinstance(value, bool) else value
    try:
        number = operator.index(given)
    except TypeError:
        raise ValueError(f"{name} is {reprlib.repr(value)}; expected a whole number") from None
    if (least is not None and number < least) or (most is not None and number > most):
        bound = f"at most {most}" if least is None else f"at least {least}" if most is None else f"{least} to {most}"
        raise ValueError(f"{name} is {number}; expected {bound}")
    return number


def one_of(name: str, value: Any, names: tuple[str, ...]) -> Any:
    """Return the value; raise ValueError if it is not one of `names`."""
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{name} is {reprlib.repr(value)}; expected one of {', '.join(names)}")
    return value


def instance(name: str, value: Any, kind: type[Kind], expected: str) -> Kind:
    """Return the value; raise TypeError if it is of another type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {reprlib.repr(value)}; expected {expected}")
    return value


def function(name: str, value: Any, expected: str) -> None:
    """Raise TypeError if the value is not callable."""
    if not callable(value):
        raise TypeError(f"{name} is {reprlib.repr(value)}; expected {expected}")


def opened(cache: Any, **limits: Any) -> Cache:
    """Open a cache by its folder or URL, or return one that is open already.

    Args:
        cache: the cache.
        limits: `cache_dir` and `cache_bytes` of a cache in a bucket, as for :meth:`Cache.open`.

    Raises:
        TypeError: neither a path nor a cache.
        UsageError: limits were given for a cache that is open already.
        InputError: the folder is not a cache.
        CheckError: the cache is damaged.
    """
    if isinstance(cache, str | os.PathLike):
        return Cache.open(os.fspath(cache), **limits)
    if any(value is not None for value in limits.values()):
        raise UsageError(
            "cache_dir and cache_bytes are of a cache that is opened here", hint="give them to Cache.open(url, …)"
        )
    return instance("cache", cache, Cache, "the folder of a cache, or what Cache.open gave")
