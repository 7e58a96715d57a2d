"""Checks for the arguments of the reader's public names: a wrong one is refused early, with what was expected."""

import operator
import os
import reprlib
from typing import Any, Final, TypeVar

from packer.errors import UsageError
from packer.store.cache import Cache

Kind = TypeVar("Kind")

MAX_INT32: Final = 2**31 - 1
"""Upper bound of sizes and lengths, which are counted in int32."""


def check_integer(name: str, value: Any, *, minimum: int | None = None, maximum: int | None = None) -> int:
    """Return a Python or numpy integer as a Python int, which a state can store; raise ValueError for anything else."""
    integer: Any = None if isinstance(value, bool) else value
    try:
        number = operator.index(integer)
    except TypeError:
        raise ValueError(f"{name} is {reprlib.repr(value)}; expected a whole number") from None
    if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        one_sided = f"at most {maximum}" if minimum is None else f"at least {minimum}"
        bound = one_sided if minimum is None or maximum is None else f"{minimum} to {maximum}"
        raise ValueError(f"{name} is {number}; expected {bound}")
    return number


def check_choice(name: str, value: Any, names: tuple[str, ...]) -> Any:
    """Return the value; raise ValueError if it is not one of `names`."""
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{name} is {reprlib.repr(value)}; expected one of {', '.join(names)}")
    return value


def check_instance(name: str, value: Any, kind: type[Kind], expected: str) -> Kind:
    """Return the value; raise TypeError if it is of another type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {reprlib.repr(value)}; expected {expected}")
    return value


def check_callable(name: str, value: Any, expected: str) -> None:
    """Raise TypeError if the value is not callable."""
    if not callable(value):
        raise TypeError(f"{name} is {reprlib.repr(value)}; expected {expected}")


def open_cache(cache: Any, **limits: Any) -> Cache:
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
            "cache_dir and cache_bytes are of a cache that is opened here", hint="pass them to Cache.open(url, …)"
        )
    return check_instance("cache", cache, Cache, "the folder of a cache, or what Cache.open gave")
