"""Finds the layer through which one document first reaches another: its outputs change there, and its inputs do not.

A module is judged by what it is given and what it returns at single places of the micro-batch: where the changed
document first moved the logits of another. Before such a place, nothing of that other document has moved, so what
changes at it came through a boundary. Modules are asked in the order in which they finish, so that the innermost one
is named.

Worked example: attention leaks in layer 1. Layer 0 returns at the place what it did before. In layer 1, ``q_proj`` does
too; ``o_proj`` does not, but it was already given something else; ``self_attn`` was given the same, and returns
something else.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


class Places(NamedTuple):
    """Places of a micro-batch [B, T]."""

    shape: torch.Size  # B, T
    numbers: Tensor  # int64 [N] row · T + position


_Call: TypeAlias = tuple[str, int]
"""A module by its name, and which of its calls."""

_States: TypeAlias = dict[_Call, tuple[list[Tensor], list[Tensor]]]
"""What modules are given and what they return at some places, in the order in which they finish."""


def first_leaking_layer(
    model: nn.Module, clean: Callable[[], Tensor], poisoned: Callable[[], Tensor], places: Places, *, tolerance: float
) -> str | None:
    """Return the name of the first module whose outputs move at one of these places, and whose inputs do not.

    None if no module that takes and returns tensors [B, T, …] or [B·T, …] is such a one.

    Args:
        model: whose modules are asked.
        clean: runs the unchanged micro-batch, through whatever calls the model.
        poisoned: the same for the one with a changed document.
        places: where that has moved the logits of other documents.
        tolerance: share of the largest value at these places that counts as no difference.
    """
    known, moved = (_states(model, run, places) for run in (clean, poisoned))
    for call in (each for each in moved if each in known):
        inputs, outputs = (
            _moves(before, after, tolerance) for before, after in zip(known[call], moved[call], strict=True)
        )
        if known[call][0] and bool((outputs & ~inputs).any()):
            return call[0] or type(model).__name__
    return None


def largest_difference(first: Tensor, second: Tensor) -> Tensor:
    """Return the largest difference along the last dimension; infinite if only one is NaN.  # float64, on the CPU"""
    same = (first == second) | (first.isnan() & second.isnan())  # inf - inf is not a number
    differences = (first.double() - second.double()).abs().masked_fill(same, 0)
    return differences.nan_to_num(torch.inf, torch.inf).amax(-1).cpu()


def _states(model: nn.Module, run: Callable[[], Tensor], places: Places) -> _States:
    found: _States = {}
    calls: Counter[str] = Counter()
    inputs: list[list[Tensor]] = []  # of the modules that are running, which may write over them

    def begin(_: nn.Module, *given: Any) -> None:
        inputs.append(list(_at(given, places)))

    def end(name: str, _: nn.Module, __: Any, returned: Any) -> None:
        found[name, calls[name]] = inputs.pop(), list(_at(returned, places))
        calls[name] += 1

    hooks = [module.register_forward_pre_hook(begin, with_kwargs=True) for module in model.modules()]
    hooks += [module.register_forward_hook(partial(end, name)) for name, module in model.named_modules()]
    as_written = getattr(torch.compiler, "set_stance", nullcontext)  # torch 2.6; compiled code calls no hooks
    try:
        with as_written("force_eager"):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _at(values: Any, places: Places) -> Iterator[Tensor]:
    """Yield a copy of what tensors with a value for each position hold at some places.  # [N, …]"""
    total = places.shape.numel()
    for value in tree_leaves(values):
        if type(value) is not Tensor or value.ndim < 2 or value.is_complex():
            continue
        if value.shape[:2] == places.shape or len(value) == total:  # experts take [B·T, …]
            yield value.reshape(total, -1)[places.numbers]


def _moves(before: list[Tensor], after: list[Tensor], tolerance: float) -> Tensor:
    """Return at which places some tensor differs.  # bool [N]"""
    moves = torch.zeros(1, dtype=torch.bool)
    for one, other in zip(before, after, strict=False):
        if one.shape == other.shape:
            room = tolerance * float(one.double().nan_to_num(0, 0, 0).abs().max())
            moves = moves | (largest_difference(one, other) > room)
    return moves
