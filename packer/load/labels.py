"""Shifting labels for consumers that want ``shift_labels[t]`` to be the target of position t.

A cache holds unshifted labels and Hugging Face models shift them. To shift twice trains the token after the next,
quietly. So shifted labels go by other names: a micro-batch has either ``labels`` or ``shift_labels``, and a model that
shifts for itself finds nothing it could shift again.
"""

from typing import Any, TypeAlias

import torch
from torch import Tensor

from packer.layout import MASKED

MicroBatch: TypeAlias = dict[str, Any]
"""Tensors and ints by name. Models of particular libraries take it through :mod:`packer.load.adapters`."""


def shift_labels(micro_batch: MicroBatch) -> MicroBatch:
    """The micro-batch with ``shift_labels`` (and ``shift_loss_weights``) in place of ``labels`` (and ``loss_weights``).

    ``shift_labels[..., t] == labels[..., t + 1]``; the last position has no target. The first label of a document is
    -100 in every cache, so no target crosses a border, flattened or not.

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


def _shifted(values: Tensor, last: int) -> Tensor:
    return torch.cat([values[..., 1:], torch.full_like(values[..., :1], last)], dim=-1)
