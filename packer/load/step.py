"""One optimiser step as a rank sees it: its micro-batches, and what it must know of the whole.

A cache holds unshifted labels and Hugging Face models shift them. To shift twice trains the token after the next,
quietly. So shifted labels go by other names: a micro-batch has either ``labels`` or ``shift_labels``, and a model that
shifts for itself finds nothing it could shift again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from packer.batches import Int64
from packer.layout import MASKED

MicroBatch: TypeAlias = dict[str, Any]
"""Tensors and ints by name. Models of particular libraries take it through :mod:`packer.load.adapters`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """Micro-batches: ``for micro_batch in step``, ``step[i]``, ``len(step)``."""

    micro_batches: tuple[MicroBatch, ...]
    index: int
    """Number of the step since the beginning of training, from 0."""

    epoch: int
    """Epoch the step begins in."""

    block_ids: Int64
    """int64[n]: the blocks of this rank, in the order of its micro-batches; -1 is a padding row. Where batches are made
    of documents, the documents. Of a mixture, numbered through its caches."""

    num_items_in_batch: int | float
    """Trained targets of the whole step, over all ranks and micro-batches; with ``weights="use"`` their summed weights.

    Divide summed losses by it. The mean of micro-batch means is another number: it weighs tokens by how few share
    their micro-batch."""

    coverage: float
    """Share of `epoch` taken after this step, 0 to 1."""

    num_tokens: int
    """Tokens of the whole step, over all ranks; padding is not counted."""

    num_slots: int
    """Positions of all micro-batches of all ranks, padding included: ``1 - num_tokens / num_slots`` is wasted."""

    def __len__(self) -> int:
        return len(self.micro_batches)

    def __getitem__(self, index: int) -> MicroBatch:
        return self.micro_batches[index]

    def __iter__(self) -> Iterator[MicroBatch]:
        return iter(self.micro_batches)


def shift_labels(micro_batch: MicroBatch) -> MicroBatch:
    """The micro-batch with ``shift_labels`` (and ``shift_loss_weights``) in place of ``labels`` (and ``loss_weights``).

    ``shift_labels[..., t] == labels[..., t + 1]``; the last position has no target. The first label of a document is
    -100 in every cache, so no target crosses a boundary, flattened or not.

    Raises:
        ValueError: the labels are shifted already, or there are none.

    """
    if "shift_labels" in micro_batch:
        raise ValueError("the labels of this micro-batch are shifted already")
    if "labels" not in micro_batch:
        raise ValueError("this micro-batch has no labels")
    shifted = {name: value for name, value in micro_batch.items() if name not in ("labels", "loss_weights")}
    shifted["shift_labels"] = _shifted(micro_batch["labels"], MASKED)
    if "loss_weights" in micro_batch:
        shifted["shift_loss_weights"] = _shifted(micro_batch["loss_weights"], 0)
    return shifted


def pinned(micro_batch: MicroBatch) -> MicroBatch:
    """The micro-batch in page-locked memory, from which it is copied to a device while the host goes on."""
    return {name: value.pin_memory() if isinstance(value, Tensor) else value for name, value in micro_batch.items()}


def on_device(step: Step, device: torch.device) -> Step:
    """The step with its tensors copied to a device, on the stream that is current there."""
    micro_batches = tuple(
        {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in micro_batch.items()
        }
        for micro_batch in step
    )
    return replace(step, micro_batches=micro_batches)


def _shifted(values: Tensor, last: int) -> Tensor:
    return torch.cat([values[..., 1:], torch.full_like(values[..., :1], last)], dim=-1)
