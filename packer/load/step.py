"""One optimizer step as a rank sees it: its micro-batches, and the totals of the whole step.

A cache stores unshifted labels, and Hugging Face models shift them. Shifting twice would silently train the token after
the next one. So shifted labels have other names: a micro-batch has either ``labels`` or ``shift_labels``, and a model
that shifts labels itself finds none to shift a second time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from packer.batches import Int64
from packer.layout import MASKED

MicroBatch: TypeAlias = dict[str, Any]
"""Tensors and ints by name. :mod:`packer.load.adapters` converts it for particular model libraries."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """A sequence of micro-batches: ``for micro_batch in step``, ``step[i]``, ``len(step)``."""

    micro_batches: tuple[MicroBatch, ...]
    index: int
    """Number of the step since the beginning of training, from 0."""

    epoch: int
    """Epoch the step begins in."""

    block_ids: Int64
    """int64[n]: the blocks of this rank, in the order of its micro-batches; -1 is a padding row. With batches of
    documents these are document numbers, with pairs pair numbers. In a mixture they are numbered consecutively across
    its caches."""

    num_items_in_batch: int
    """Trained targets of the whole step, over all ranks and micro-batches.

    Divide summed losses by it. A mean of micro-batch means is a different number: it gives tokens of micro-batches with
    few trained targets more weight.
    """

    coverage: float
    """Fraction of `epoch` taken after this step, 0 to 1."""

    size: int
    """Size of the step over all ranks, in the unit of batch sizes: rows without padding rows, or tokens."""

    num_tokens: int
    """Tokens of the whole step, over all ranks; padding is not counted."""

    num_slots: int
    """Positions of all micro-batches of all ranks, including padding: ``1 - num_tokens / num_slots`` is wasted."""

    num_pairs: int | None = None
    """Pairs of the whole step, over all ranks: the divisor of a mean over pairs. None for other data."""

    def __len__(self) -> int:
        return len(self.micro_batches)

    def __getitem__(self, index: Any) -> MicroBatch:
        if isinstance(index, str):
            raise _no_columns()
        micro_batch: MicroBatch = self.micro_batches[index]
        return micro_batch

    def __contains__(self, name: object) -> NoReturn:
        """Refuse to look for a column, as code does that takes this for a micro-batch."""
        raise _no_columns()

    def __iter__(self) -> Iterator[MicroBatch]:
        return iter(self.micro_batches)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {_tensor_repr(value)}" for name, value in (self[0] if len(self) else {}).items())
        micro_batches = f"{len(self)} micro-batch{'es' * (len(self) != 1)}"
        return (
            f"<Step {self.index} of epoch {self.epoch}: {micro_batches} of {columns}; {self.num_tokens:,} tokens, "
            f"{self.num_items_in_batch:,} trained>"
        )

    def pin_memory(self) -> "Step":
        """Return the step in page-locked memory; a DataLoader with ``pin_memory=True`` calls this."""
        return replace(self, micro_batches=tree_map_only(Tensor, Tensor.pin_memory, self.micro_batches))

    def to(self, device: torch.device | str | int, *, non_blocking: bool = False) -> "Step":
        """Return the step with its tensors on a device, including nested dicts, lists and tuples; dtypes do not change.

        Args:
            device: a torch device or its name.
            non_blocking: do not wait for copies from pinned memory.

        Raises:
            TypeError: `device` is something else, such as a dtype.
        """
        if not isinstance(device, torch.device | str | int) or isinstance(device, bool):
            raise TypeError(f"device is {device!r}; expected a device, as a step keeps its dtypes")
        place = torch.device(device)
        moved = tree_map_only(Tensor, lambda tensor: tensor.to(place, non_blocking=non_blocking), self.micro_batches)
        return replace(self, micro_batches=moved)


def shift_labels(micro_batch: MicroBatch) -> MicroBatch:
    """Return a copy with ``shift_labels`` and ``shift_columns`` for ``labels`` and ``columns``.

    ``shift_labels[..., t] == labels[..., t + 1]``; the last one has no target, and 0 in columns. The first label of
    a document is -100 in every cache, so no target crosses a document boundary, flattened or not.

    Raises:
        ValueError: the labels are already shifted, or there are none.
    """
    if "shift_labels" in micro_batch:
        raise ValueError("the labels of this micro-batch are shifted already")
    if "labels" not in micro_batch:
        raise ValueError("this micro-batch has no labels")
    shifted = {name: value for name, value in micro_batch.items() if name not in ("labels", "columns")}
    shifted["shift_labels"] = _shifted(micro_batch["labels"], MASKED)
    if "columns" in micro_batch:
        columns = micro_batch["columns"].items()
        shifted["shift_columns"] = {
            name: torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1) for name, values in columns
        }
    return shifted


def _tensor_repr(value: Any) -> str:
    """Return ``int64 [1, 4096]`` for such a tensor, the repr of anything else."""
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_tensor_repr(each)}" for name, each in value.items()) + ")"
    is_tensor = isinstance(value, Tensor)
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}" if is_tensor else repr(value)


def _shifted(values: Tensor, last: int) -> Tensor:
    return torch.cat([values[..., 1:], torch.full_like(values[..., :1], last)], dim=-1)


def _no_columns() -> TypeError:
    return TypeError("a step has no columns, its micro-batches have them: for micro_batch in step")
