"""The arguments of the reader's public names: checked early, with defaults filled in; most need no torch.

A `batching` says how rows are laid out in micro-batches, and what sizes count.

- ``packed``: the cache's blocks, as they were packed. Sizes count blocks.
- ``padded``: documents as rows of one length. Sizes count documents.
- ``padding_free``: documents one after another in one row, kept apart by ``cu_seq_lens``. Sizes count documents.
- ``token_budget``: as many documents in one row as fit into `micro_batch_size` tokens. A step takes documents until
  `global_batch_size` tokens are full, so the number of micro-batches varies. Sizes count tokens.
"""

import os
import reprlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np
from msgspec import Meta

from packer.errors import UsageError
from packer.load.ordering import End, Ordering
from packer.recipe.groups import BatchingName, Read, Side, Tokens
from packer.store.cache import Cache

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Padded:
    """How documents are padded, given as `batching`. Sizes count documents."""

    length: Tokens | None = None
    """Tokens to which every micro-batch is padded; None pads to its longest document."""

    multiple_of: Tokens = 1
    """The longest length is rounded up to a multiple of this: 8 or 128 suit matrix units."""

    side: Side = "right"

    def rounded(self, longest: int) -> int:
        """Return the padded row length of a micro-batch whose longest document has `longest` tokens."""
        return self.length or -(-longest // self.multiple_of) * self.multiple_of


Batching: TypeAlias = BatchingName | Padded


Kind = TypeVar("Kind")

MAX_INT32: Final = 2**31 - 1
"""Upper bound of sizes and lengths, which are counted in int32."""

Size = Annotated[int, Meta(ge=1, le=MAX_INT32)]

_ORDERS = ("random", "sequential", "length_bucketed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderOptions:
    """The checked arguments of :class:`packer.load.PackedLoader`, where they are documented."""

    split: str
    micro_batch_size: Size
    global_batch_size: Annotated[int, Meta(le=MAX_INT32)]
    batching: BatchingName
    padded: Padded | None
    rank: int
    world_size: int
    seed: int
    order: Ordering
    end: End
    balance: Annotated[int, Meta(ge=0, le=2**24)]
    device: Any
    """A torch.device."""

    flatten: bool
    static_shapes: bool
    labels: Literal["unshifted", "shifted"]
    prefetch: Annotated[int, Meta(ge=0)]
    images: bool
    columns: tuple[str, ...]


def resolve_options(caches: Sequence[Cache], given: Mapping[str, Any]) -> LoaderOptions:
    """Check the arguments of a loader, which documents the errors, by the types of its options; fill in defaults."""
    batching = resolve_batching(caches, given["batching"])
    rank, world_size = resolve_rank(given["rank"], given["world_size"])
    resolved: dict[str, Any] = {
        "batching": "padded" if isinstance(batching, Padded) else batching,
        "padded": batching if isinstance(batching, Padded) else None,
        "rank": rank,
        "world_size": world_size,
        "order": ordering_of(given["order"]),
        "device": resolve_device(given["device"]),
    }
    if given["global_batch_size"] is None:
        size = checked("micro_batch_size", given["micro_batch_size"], Size) * world_size
        given = {**given, "global_batch_size": size}
    kinds = get_type_hints(LoaderOptions, include_extras=True)
    return LoaderOptions(
        **resolved, **{name: checked(name, given[name], kinds[name]) for name in kinds.keys() - resolved.keys()}
    )


def resolve_batching(caches: Sequence[Cache], batching: Batching | None) -> Batching:
    """Return the batching of the argument if given, else that of the caches' recipes.

    A departure from what a recipe says gives a warning.
    """
    said = [_of_recipe(cache) for cache in caches]
    if batching is None:
        if any(each != said[0] for each in said):
            raise UsageError("the recipes of these caches batch documents differently", hint="name a batching")
        return said[0]
    resolved = as_batching(batching)
    for cache, each in zip(caches, said, strict=True):
        if each not in ("packed", resolved):
            warnings.warn(
                f"{cache.folder} is to be read as {each}, says its recipe; this loader reads it as {resolved}",
                stacklevel=5,  # the caller who opens the loader
            )
    return resolved


def _of_recipe(cache: Cache) -> Batching:
    read = msgspec.convert(cache.manifest.recipe.get("read", {}), Read)
    if read.batching == "padded":
        return Padded(length=read.length, multiple_of=read.multiple_of or 1, side=read.side or "right")
    return read.batching


def as_batching(batching: Any) -> Batching:
    """Return a batching, checked and with Python's integers; ValueError if it is none."""
    if not isinstance(batching, Padded):
        name: BatchingName = checked("batching", batching, BatchingName)
        return Padded() if name == "padded" else name
    if batching.length is not None and batching.multiple_of != 1:
        raise ValueError("a padded batching has either a length or a multiple_of")
    kinds = get_type_hints(Padded, include_extras=True)
    return Padded(**{name: checked(name, getattr(batching, name), kind) for name, kind in kinds.items()})


def ordering_of(order: Any) -> Ordering:
    """Return the name of an order, or a function of the epoch; ValueError if it is neither."""
    if (order in _ORDERS) if isinstance(order, str) else (callable(order) and not isinstance(order, type)):
        return order  # type: ignore[no-any-return]
    expected = f"{', '.join(_ORDERS)}, or a function of the epoch"
    raise ValueError(f"order is {reprlib.repr(order)}; expected {expected}")


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
        rank, world_size = checked("rank", rank, int), checked("world_size", world_size, Size)
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


def checked(name: str, value: Any, kind: Any) -> Any:
    """Return a value of a type, as Python's own if numpy's, which a state can store; ValueError if it is of another."""
    try:
        return msgspec.convert(value.item() if isinstance(value, np.generic) else value, kind)
    except msgspec.ValidationError as error:
        expected = f"Expected one of {', '.join(get_args(kind))}" if get_origin(kind) is Literal else str(error)
        raise ValueError(f"{name} is {reprlib.repr(value)}: {expected}") from None


def check_instance(name: str, value: Any, kind: type[Kind], expected: str) -> Kind:
    """Return the value; raise TypeError if it is of another type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {reprlib.repr(value)}; expected {expected}")
    return value


def open_cache(cache: Any) -> Cache:
    """Open a cache by its folder or URL, or return one that is open already; TypeError for anything else."""
    if isinstance(cache, str | os.PathLike):
        return Cache.open(os.fspath(cache))
    return check_instance("cache", cache, Cache, "the folder of a cache, or what Cache.open gave")
