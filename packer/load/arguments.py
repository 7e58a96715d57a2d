"""The arguments of the reader's public names, checked early and with defaults filled in.

Nothing here needs torch before a loader is opened.
"""

import operator
import os
import reprlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, get_args

import msgspec

from packer.errors import UsageError
from packer.load.batching import Batching, End, Padded, batching_from_recipe
from packer.load.ordering import LengthBucketed, Ordering
from packer.recipe.read_rules import MAX_BLOCK_LEN, BatchingName, Read
from packer.store.cache import Cache, as_folders

if TYPE_CHECKING:
    import torch

Kind = TypeVar("Kind")

Schedule: TypeAlias = Callable[[int, int], int]
"""Maps the index of a step and the size of the step before it to the step's size."""

MAX_INT32: Final = 2**31 - 1
"""Upper bound of sizes and lengths, which are counted in int32."""

_ORDERS: dict[str, Ordering] = {
    "random": "random",
    "sequential": "sequential",
    "length_bucketed": LengthBucketed(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderOptions:
    """The checked arguments of :class:`packer.load.PackedLoader`, where they are documented."""

    split: str
    micro_batch_size: int
    global_batch_size: int
    schedule: Schedule | None
    batching: BatchingName
    padded: Padded | None
    max_pixels: int | None
    cutoff_len: int | None
    rank: int
    world_size: int
    seed: int
    order: Ordering
    end: End
    balance: int
    device: "torch.device"
    flatten: bool
    shifted: bool
    weighted: bool
    static: bool
    prefetch: int
    images: bool
    columns: tuple[str, ...]


def resolve_options(caches: Sequence[Cache], given: SimpleNamespace) -> LoaderOptions:
    """Check the arguments of a loader and fill in defaults; it documents the errors."""
    micro_batch_size = check_integer("micro_batch_size", given.micro_batch_size, minimum=1, maximum=MAX_INT32)
    rank, world_size = resolve_rank(given.rank, given.world_size)
    global_batch_size: Any = given.global_batch_size
    if global_batch_size is None:
        global_batch_size = micro_batch_size * world_size
    if given.schedule is not None:
        check_callable("schedule", given.schedule, "a function of a step's index and the size before it")
    batching, cutoff_len = resolve_batching(caches, given.batching, given.cutoff_len)
    return LoaderOptions(
        split=check_instance("split", given.split, str, "the name of a split"),
        micro_batch_size=micro_batch_size,
        global_batch_size=check_integer("global_batch_size", global_batch_size, maximum=MAX_INT32),
        schedule=given.schedule,
        batching="padded" if isinstance(batching, Padded) else batching,
        padded=batching if isinstance(batching, Padded) else None,
        max_pixels=resolve_max_pixels(given.max_pixels, batching),
        cutoff_len=cutoff_len,
        rank=rank,
        world_size=world_size,
        seed=check_integer("seed", given.seed),
        order=ordering_of(given.order),
        end=check_choice("end", given.end, ("drop", "pad", "short", "wrap")),
        balance=check_integer("balance", given.balance, minimum=0, maximum=2**24),
        device=resolve_device(given.device),
        flatten=check_instance("flatten", given.flatten, bool, "True or False"),
        shifted=check_choice("labels", given.labels, ("unshifted", "shifted")) == "shifted",
        weighted=check_choice("weights", given.weights, ("refuse", "use")) == "use",
        static=check_instance("static_shapes", given.static_shapes, bool, "True or False"),
        prefetch=check_integer("prefetch", given.prefetch, minimum=0),
        images=check_instance("images", given.images, bool, "True or False"),
        columns=column_names(given.columns),
    )


def column_names(columns: Any) -> tuple[str, ...]:
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
        raise TypeError(f"columns is {reprlib.repr(columns)}; expected a list of names")
    return tuple(columns)


def resolve_batching(
    caches: Sequence[Cache], batching: Batching | None, cutoff_len: int | None
) -> tuple[Batching, int | None]:
    """Return the batching and cutoff: those of the arguments if given, else those of the caches' recipes.

    A `batching` replaces everything the recipe says about reading, a `cutoff_len` replaces only the recipe's cutoff.
    Any departure from the recipe gives a warning.
    """
    if cutoff_len is not None:
        cutoff_len = check_integer("cutoff_len", cutoff_len, minimum=2, maximum=MAX_INT32)
    rules = [msgspec.convert(cache.manifest.recipe.get("read", {}), Read) for cache in caches]
    if batching is None:
        if any(read != rules[0] for read in rules):
            raise UsageError("the recipes of these caches batch documents differently", hint="name a batching")
        resolved, cutoff_len = batching_from_recipe(rules[0]), rules[0].cutoff_len if cutoff_len is None else cutoff_len
    else:
        resolved = as_batching(batching)
    for cache, read in zip(caches, rules, strict=True):
        saved = batching_from_recipe(read)
        if read != Read() and (saved, read.cutoff_len) != (resolved, cutoff_len):
            warnings.warn(
                f"{cache.folder} is to be read as {saved}, cutoff_len {read.cutoff_len}, says its recipe; "
                f"this loader reads it as {resolved}, cutoff_len {cutoff_len}",
                stacklevel=5,  # the caller who opens the loader
            )
    return resolved, cutoff_len


def as_batching(batching: Any) -> Batching:
    """Return a batching, checked and with Python's integers; ValueError if it is none."""
    if not isinstance(batching, Padded):
        name: BatchingName = check_choice("batching", batching, get_args(BatchingName))
        return Padded() if name == "padded" else name
    length, multiple_of = batching.length, batching.multiple_of
    if length is not None:
        length = check_integer("length", length, minimum=1, maximum=MAX_BLOCK_LEN)
        if multiple_of != 1:
            raise ValueError("a padded batching has either a length or a multiple_of")
    return Padded(
        length=length,
        multiple_of=check_integer("multiple_of", multiple_of, minimum=1, maximum=MAX_BLOCK_LEN),
        side=check_choice("side", batching.side, ("right", "left")),
    )


def resolve_max_pixels(max_pixels: Any, batching: Batching) -> int | None:
    """Return the limit of pixels, which only a budget has; ValueError otherwise."""
    if max_pixels is None:
        return None
    if batching != "token_budget":
        raise ValueError("max_pixels is a limit of batching='token_budget'")
    return check_integer("max_pixels", max_pixels, minimum=1, maximum=MAX_INT32)


def ordering_of(order: Any) -> Ordering:
    """Resolve the name of an order, or return the value itself; ValueError if it is none."""
    value = _ORDERS.get(order) if isinstance(order, str) else order
    if isinstance(value, LengthBucketed):
        check_integer("window", value.window, minimum=1, maximum=MAX_INT32)
    elif not isinstance(value, str) and (not callable(value) or isinstance(value, type)):
        raise ValueError(  # noqa: TRY004 - as for an unknown name
            f"order is {reprlib.repr(order)}; expected {', '.join(_ORDERS)}, a value like LengthBucketed(4096), or "
            "a function of the epoch like weighted(weights)"
        )
    return value  # type: ignore[return-value]


def resolve_device(device: Any) -> "torch.device":
    """Return the device micro-batches are placed on; None is ``cpu``. ValueError if neither ``cpu`` nor ``cuda``."""
    import torch  # noqa: PLC0415 - orders and plans need no torch

    name = "cpu" if device is None else str(device)
    if not isinstance(device, torch.device | str | None) or name.partition(":")[0] not in ("cpu", "cuda"):
        hint = "move the micro-batches of a cpu loader to another device yourself"
        raise ValueError(f"device is {reprlib.repr(device)}; expected cpu or cuda; {hint}")
    resolved, found = torch.device(name), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if resolved.type == "cuda" and (resolved.index or 0) >= found:
        raise UsageError(
            f"device is {resolved}, and torch finds {found} GPU{'s' * (found != 1)} here",
            hint="leave device out for the CPU; nvidia-smi and CUDA_VISIBLE_DEVICES say which GPUs there are",
        )
    return resolved


def resolve_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return rank and world size: as given (ValueError if wrong), else those of `torch.distributed`, else 0 of 1."""
    if (rank is None) != (world_size is None):
        raise ValueError("pass rank and world_size together, or neither")
    if rank is not None and world_size is not None:
        rank, world_size = check_integer("rank", rank), check_integer("world_size", world_size, minimum=1)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not in 0..{world_size - 1}")
        return rank, world_size
    import torch  # noqa: PLC0415 - as above

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    announced = os.environ.get("WORLD_SIZE", "1")
    if announced != "1":
        raise UsageError(
            f"WORLD_SIZE is {announced} but torch.distributed is not initialized: all processes would read the same",
            hint="call torch.distributed.init_process_group() first, or pass rank= and world_size=",
        )
    return 0, 1


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


def open_cache(cache: Any, *, cache_dir: Any = None, sources: Any = ()) -> Cache:
    """Open a cache by its folder or URL, or return one that is open already; TypeError for anything else."""
    if isinstance(cache, str | os.PathLike):
        return Cache.open(os.fspath(cache), cache_dir=cache_dir, sources=sources)
    if cache_dir is not None or as_folders(sources):
        what = "sources are" if cache_dir is None else "cache_dir is"
        raise UsageError(f"{what} of a cache that is opened here", hint="pass it to Cache.open(url, …)")
    return check_instance("cache", cache, Cache, "the folder of a cache, or what Cache.open gave")
