"""Arguments of the reader's public names: a wrong one is refused before it is used, with what was expected."""

import operator
import os
import reprlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

from packer.errors import UsageError
from packer.store.cache import Cache

if TYPE_CHECKING:
    import torch

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


def one_of(name: str, value: Any, names: tuple[str, ...]) -> None:
    """Raise a ValueError for what is not among some names."""
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{name} is {reprlib.repr(value)}; expected one of {', '.join(names)}")


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


def device_of(device: Any) -> "torch.device":
    """The device micro-batches are placed on; None is ``cpu``.

    Raises:
        ValueError: what is no name of a device, or another kind of device than ``cpu`` and ``cuda``.
        UsageError: a GPU that is not there.

    """
    import torch  # noqa: PLC0415 - grain's source checks its arguments without torch

    named = torch.device("cpu") if device is None else device
    if isinstance(named, str) and named.partition(":")[0] in ("cpu", "cuda"):
        named = torch.device(named)
    if not isinstance(named, torch.device) or named.type not in ("cpu", "cuda"):
        hint = "move the micro-batches of a cpu loader to another device yourself"
        raise ValueError(f"device is {reprlib.repr(device)}; expected cpu or cuda; {hint}")
    if named.type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (named.index or 0) >= found:
            raise UsageError(
                f"device is {named}, and torch finds {found} GPU{'s' * (found != 1)} here",
                hint="leave device out for the CPU; nvidia-smi and CUDA_VISIBLE_DEVICES say which GPUs there are",
            )
    return named


def end_of(end: Any, drop_last: Any) -> Any:
    """What becomes of an epoch's end: `end`, or what torch's word for it says.

    Raises:
        ValueError: no such end, or the two contradict each other.
        TypeError: `drop_last` is neither None, True nor False.

    """
    one_of("end", end, ("drop", "pad", "short", "wrap"))
    if drop_last is None:
        return end
    instance("drop_last", drop_last, bool, "True or False")
    if drop_last and end != "drop":
        raise ValueError(f"drop_last=True and end='{end}' contradict each other; give one of them")
    return "short" if end == "drop" and not drop_last else end


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
    import torch  # noqa: PLC0415 - see device_of

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    announced = os.environ.get("WORLD_SIZE", "1")
    if announced != "1":
        raise UsageError(
            f"WORLD_SIZE is {announced} but torch.distributed is not initialised: all processes would read the same",
            hint="call torch.distributed.init_process_group() first, or pass rank= and world_size=",
        )
    return 0, 1
