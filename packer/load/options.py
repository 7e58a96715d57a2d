"""The options of a loader, checked and with defaults filled in."""

import reprlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import msgspec
import torch

from packer.errors import UsageError
from packer.load.arguments import MAX_INT32, check_callable, check_choice, check_instance, check_integer
from packer.load.batching import Batching, as_batching, batching_from_recipe
from packer.load.layouts import BatchFormat, batch_format
from packer.load.ordering import Ordering, ordering_of
from packer.load.plan import End
from packer.load.ranks import resolve_rank
from packer.read_rules import BatchingName, Read
from packer.store.cache import Cache

Schedule: TypeAlias = Callable[[int, int], int | tuple[int, int]]
"""Maps the index of a step and the size of the step before it to the step's size, or to step and micro-batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The checked arguments of :class:`packer.load.PackedLoader`, where they are documented."""

    split: str
    micro_batch_size: int
    global_batch_size: int
    schedule: Schedule | None
    batching: Batching
    cutoff_len: int | None
    rank: int
    world_size: int
    seed: int
    order: Ordering
    end: End
    device: torch.device
    form: BatchFormat
    prefetch: int


def resolve_options(caches: Sequence[Cache], given: SimpleNamespace) -> Options:
    """Check the arguments of a loader and fill in defaults.

    Raises:
        UsageError, ValueError, TypeError: as the loader does.
    """
    micro_batch_size = check_integer("micro_batch_size", given.micro_batch_size, minimum=1, maximum=MAX_INT32)
    rank, world_size = resolve_rank(given.rank, given.world_size)
    global_batch_size: Any = given.global_batch_size
    if global_batch_size is None:
        global_batch_size = micro_batch_size * world_size
    if given.schedule is not None:
        check_callable("schedule", given.schedule, "a function of a step's index and the size before it")
    batching, cutoff_len = resolve_batching(caches, given.batching, given.cutoff_len)
    form = batch_format(
        batching,
        flatten=check_instance("flatten", given.flatten, bool, "True or False"),
        labels=check_choice("labels", given.labels, ("unshifted", "shifted")),
        weighted=check_choice("weights", given.weights, ("refuse", "use")) == "use",
        columns=given.columns,
    )
    return Options(
        split=check_instance("split", given.split, str, "the name of a split"),
        micro_batch_size=micro_batch_size,
        global_batch_size=check_integer("global_batch_size", global_batch_size, maximum=MAX_INT32),
        schedule=given.schedule,
        batching=batching,
        cutoff_len=cutoff_len,
        rank=rank,
        world_size=world_size,
        seed=check_integer("seed", given.seed),
        order=ordering_of(given.order),
        end=resolve_end(given.end, given.drop_last),
        device=resolve_device(given.device),
        form=form,
        prefetch=check_integer("prefetch", given.prefetch, minimum=0),
    )


def resolve_batching(
    caches: Sequence[Cache], batching: Batching | BatchingName | None, cutoff_len: int | None
) -> tuple[Batching, int | None]:
    """Return the batching and cutoff: those of the arguments if given, else those of the caches' recipes.

    A `batching` replaces everything the recipe says about reading, a `cutoff_len` replaces only the recipe's cutoff.
    Any departure from the recipe gives a warning.

    Raises:
        ValueError: unknown batching, or a cutoff out of range.
        UsageError: no batching is named, and the caches' recipes differ.
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
                stacklevel=4,  # the caller who opens the loader
            )
    return resolved, cutoff_len


def resolve_device(device: Any) -> torch.device:
    """Return the device micro-batches are placed on; None is ``cpu``.

    Raises:
        ValueError: not the name of a device, or a device other than ``cpu`` and ``cuda``.
        UsageError: a GPU that does not exist.
    """
    resolved = torch.device("cpu") if device is None else device
    if isinstance(resolved, str) and resolved.partition(":")[0] in ("cpu", "cuda"):
        resolved = torch.device(resolved)
    if not isinstance(resolved, torch.device) or resolved.type not in ("cpu", "cuda"):
        hint = "move the micro-batches of a cpu loader to another device yourself"
        raise ValueError(f"device is {reprlib.repr(device)}; expected cpu or cuda; {hint}")
    if resolved.type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (resolved.index or 0) >= found:
            raise UsageError(
                f"device is {resolved}, and torch finds {found} GPU{'s' * (found != 1)} here",
                hint="leave device out for the CPU; nvidia-smi and CUDA_VISIBLE_DEVICES say which GPUs there are",
            )
    return resolved


def resolve_end(end: Any, drop_last: Any) -> Any:
    """Resolve how epochs end, from `end` or from torch's name for it, `drop_last`.

    Raises:
        ValueError: unknown `end`, or the two contradict each other.
        TypeError: `drop_last` is neither None, True nor False.
    """
    check_choice("end", end, ("drop", "pad", "short", "wrap"))
    if drop_last is None:
        return end
    check_instance("drop_last", drop_last, bool, "True or False")
    if drop_last and end != "drop":
        raise ValueError(f"drop_last=True and end='{end}' contradict each other; pass only one of them")
    return "short" if end == "drop" and not drop_last else end
