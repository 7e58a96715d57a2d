"""The sequences of a micro-batch of any form: which position is whose, and each by itself."""

from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor

from packer.layout import MASKED
from packer.load.attention import documents_of
from packer.load.labels import MicroBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where a sequence lies: positions ``[start, stop)`` of a row."""

    row: int
    start: int
    stop: int
    is_padding: bool
    """Behind an ``attention_mask`` of 0. Padding that ends a packed block cannot be told from a document here."""

    is_trained: bool
    """Some position has a label; in a micro-batch where none has, every sequence that is not padding."""

    def __str__(self) -> str:
        kind = "padding, " if self.is_padding else ""
        return f"{kind}row {self.row}, positions {self.start} to {self.stop - 1}"


def spans_of(micro_batch: MicroBatch) -> tuple[Span, ...]:
    """The sequences in the order of rows and positions: maximal runs of one document number.

    Raises:
        ValueError: a micro-batch that tells no borders.

    """
    documents = documents_of(micro_batch).cpu()
    real = torch.ones(documents.shape, dtype=torch.bool)
    if _has_shape(mask := micro_batch.get("attention_mask"), documents.shape):
        real = mask.cpu() != 0
    trained = _trained(micro_batch, real)
    spans = []
    for row, numbers in enumerate(documents):
        changes = torch.nonzero(numbers.diff()).flatten().add(1).tolist()
        for start, stop in zip([0, *changes], [*changes, len(numbers)], strict=True):
            spans.append(
                Span(
                    row=row,
                    start=start,
                    stop=stop,
                    is_padding=not bool(real[row, start]),
                    is_trained=bool(trained[row, start:stop].any()),
                )
            )
    return tuple(spans)


def micro_batch_of(micro_batch: MicroBatch, span: Span) -> MicroBatch:
    """The micro-batch of one sequence: everything of the shape of ``input_ids`` is cut, the borders are made anew."""
    shape = micro_batch["input_ids"].shape
    rows, positions = slice(span.row, span.row + 1), slice(span.start, span.stop)
    single = {
        name: value[rows, positions] if _has_shape(value, shape) else value for name, value in micro_batch.items()
    }
    length = span.stop - span.start
    for side in ("q", "k"):
        if f"cu_seq_lens_{side}" in single:
            whole = micro_batch[f"cu_seq_lens_{side}"]
            single[f"cu_seq_lens_{side}"] = torch.tensor([0, length], dtype=whole.dtype, device=whole.device)
            single[f"max_length_{side}"] = length
    return single


def _trained(micro_batch: MicroBatch, real: Tensor) -> Tensor:
    for name in ("labels", "shift_labels"):
        if name in micro_batch:
            trained: Tensor = micro_batch[name].cpu() != MASKED
            return trained if trained.any() else real
    return real


def _has_shape(value: Any, shape: torch.Size) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.shape == shape
