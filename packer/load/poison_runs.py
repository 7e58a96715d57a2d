"""Runs of a model on one micro-batch in which some sequences are poisoned, held against the clean run."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from packer.errors import UsageError
from packer.load.attention import Span, micro_batch_of
from packer.load.step import MicroBatch

Logits: TypeAlias = Callable[[MicroBatch], Tensor]
"""Logits [B, T, V] of a micro-batch; [B·T, V] will do."""

_POSITIONS_AT_ONCE = 1024  # logits are compared in pieces, so that differences take little memory beside them
_SEED = 20  # of the poison; any number would do


class Runs:
    """Runs of the model on this micro-batch with some sequences poisoned, held against the clean run."""

    def __init__(self, logits: Logits, micro_batch: MicroBatch, spans: tuple[Span, ...], cuda: list[int]) -> None:
        self.spans = spans
        self.micro_batch = micro_batch
        self.num_runs = 0
        self._logits, self._cuda = logits, cuda
        self._poison = _poison(micro_batch["input_ids"])
        self.numbers = _numbers(spans, micro_batch["input_ids"].shape)  # int64[B, T]: whose each position is
        self.real = ~torch.tensor([span.is_padding for span in spans])  # bool[S]
        # A copy: a compiled model may write its next answer over this one.
        self._clean = self.logits_of(micro_batch).clone()
        self.dtype = self._clean.dtype
        self.noise = float(self._moved(micro_batch)[self.real[self.numbers]].max())
        clean = self._clean[self.real[self.numbers].to(self._clean.device)]
        self.has_nan = bool(clean.isnan().any())
        self.largest_logit = float(clean.nan_to_num(0, 0, 0).abs().max())

    def poisoned(self, sources: Tensor) -> Tensor:
        """Largest difference of a logit at each position when `sources`, bool[S], are poisoned.  # float64[B, T]"""
        ids = self.micro_batch["input_ids"]
        replaced = sources[self.numbers].to(ids.device)
        return self._moved({**self.micro_batch, "input_ids": torch.where(replaced, self._poison, ids)})

    def apart(self, at: int) -> float:
        """Largest difference of a logit between sequence `at` among the others and by itself."""
        span = self.spans[at]
        among = self._clean[span.row : span.row + 1, span.start : span.stop]
        return float(_differences(among, self.logits_of(micro_batch_of(self.micro_batch, span))).max())

    def logits_of(self, micro_batch: MicroBatch) -> Tensor:
        """Each run starts from the same random state, and leaves it as it was.  # [B, T, V]"""
        self.num_runs += 1
        shape = micro_batch["input_ids"].shape
        with torch.no_grad(), torch.random.fork_rng(devices=self._cuda):
            logits = self._logits(dict(micro_batch))
        if logits.is_floating_point() and logits.shape[:-1] == shape:
            return logits
        if logits.is_floating_point() and logits.ndim == 2 and len(logits) == shape.numel():
            return logits.view(*shape, -1)
        raise UsageError(
            f"logits are {logits.dtype} {list(logits.shape)} for input_ids {list(shape)}; expected floating numbers "
            f"[{', '.join(map(str, shape))}, V]",
            hint="pass logits=..., a function of the micro-batch that returns the logits of every position",
        )

    def _moved(self, micro_batch: MicroBatch) -> Tensor:
        return _differences(self._clean, self.logits_of(micro_batch))


def _numbers(spans: tuple[Span, ...], shape: torch.Size) -> Tensor:
    numbers = torch.empty(shape, dtype=torch.int64)
    for number, span in enumerate(spans):
        numbers[span.row, span.start : span.stop] = number
    return numbers


def _poison(input_ids: Tensor) -> Tensor:
    """Another id of this micro-batch for every position, drawn anew at each.

    One and the same exchange of ids everywhere would leave the mean over a sequence that holds each of them once as
    it was. Where there is but one id, its neighbour in the vocabulary.
    """
    known, rank = torch.unique(input_ids, return_inverse=True)
    if len(known) == 1:
        return torch.where(input_ids > 0, input_ids - 1, input_ids + 1)
    shift = torch.randint(1, len(known), input_ids.shape, generator=torch.Generator().manual_seed(_SEED))
    others: Tensor = known[(rank + shift.to(rank.device)) % len(known)]
    return others


def _differences(first: Tensor, second: Tensor) -> Tensor:
    """Largest difference of a logit at each position; infinite where one of two is not a number.  # float64[B, T]"""
    pieces = [torch.split(logits.flatten(0, 1), _POSITIONS_AT_ONCE) for logits in (first, second)]
    return torch.cat([_largest(one, other) for one, other in zip(*pieces, strict=True)]).view(first.shape[:-1])


def _largest(first: Tensor, second: Tensor) -> Tensor:
    same = (first == second) | (first.isnan() & second.isnan())  # inf - inf is not a number
    differences = (first.double() - second.double()).abs().masked_fill(same, 0)
    return differences.nan_to_num(torch.inf, torch.inf).amax(-1).cpu()
