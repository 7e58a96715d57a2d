"""Arguments of the reader's public names: a wrong one is refused before it is used, with what was expected."""

import operator
import os
import reprlib
from typing import Any, Final, TypeVar

import torch

from packer.errors import UsageError
from packer.store.cache import Cache

Kind = TypeVar("Kind")

MOST: Final = 2**31 - 1
"""Of sizes and lengths: they are counted in int32."""


def whole(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """A whole number, of numpy or of Python, as Python's own, which a state can hold; else a ValueError."""
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
    """The value; a ValueError where it is not among some names."""
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{name} is {reprlib.repr(value)}; expected one of {', '.join(names)}")
    return value


def instance(name: str, value: Any, kind: type[Kind], expected: str) -> Kind:
    """The value; a TypeError where it is of another type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {reprlib.repr(value)}; expected {expected}")
    return value


def function(name: str, value: Any, expected: str) -> None:
    """Raise a TypeError for what cannot be called."""
    if not callable(value):
        raise TypeError(f"{name} is {reprlib.repr(value)}; expected {expected}")


def opened(cache: Any) -> Cache:
    """A cache by its folder, or one that is open.

    Raises:
        TypeError: neither.
        InputError: the folder is not a cache.
        CheckError: the cache is damaged.

    """
    if isinstance(cache, str | os.PathLike):
        return Cache.open(os.fspath(cache))
    return instance("cache", cache, Cache, "the folder of a cache, or what Cache.open gave")


def resolve_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size: as given, else those of `torch.distributed`, else 0 of 1.

    Raises:
        ValueError: only one of the two is given, or the rank is not below the world size.
        UsageError: the environment says there are several processes, and `torch.distributed` is not initialised:
            every process would read everything.

    """
    if (rank is None) != (world_size is None):
        raise ValueError("give rank and world_size together, or neither")
    if rank is not None and world_size is not None:
        rank, world_size = whole("rank", rank), whole("world_size", world_size, least=1)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not in 0..{world_size - 1}")
        return rank, world_size
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    announced = os.environ.get("WORLD_SIZE", "1")
    if announced != "1":
        raise UsageError(
            f"WORLD_SIZE is {announced} but torch.distributed is not initialised: all processes would read the same",
            hint="call torch.distributed.init_process_group() first, or pass rank= and world_size=",
        )
    return 0, 1
