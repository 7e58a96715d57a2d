"""Does a model honour the borders of documents? Change a document, and look whether its neighbours' logits move.

1. The clean run, twice: a model that answers the same question in two ways cannot be examined.
2. Runs in which a part of the sequences is poisoned, every token replaced by another id of the micro-batch. Sequence s
   is poisoned in run (b, v) if bit b of s is v, so every second one first: for S sequences 2·⌈log₂ S⌉ runs hold, for
   every two of them, one in which the first is poisoned and the second is not.
3. No logit of a sequence left alone may move, and those of the poisoned must: else the test has shown nothing.
4. What moved is traced: the poisoned half of a run is halved until one sequence is left.

Worked example: sequences 0 to 4 are poisoned as {0, 2, 4}, {1, 3}, {0, 1, 4}, {2, 3}, {0, 1, 2, 3}, {4}. If 3 moves in
the first run, then {2, 4} alone, then {2} alone tells that 2 leaks into 3.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from packer.errors import UsageError
from packer.load.adapters import huggingface
from packer.load.attention import Span, micro_batch_of, spans_of
from packer.load.poison_report import Alone, Leak, PoisonReport
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


MAX_TRACED = 4
"""Sequences that leaked into are traced to a source, at most: each costs about log₂ S runs."""

_TARGETS = ("labels", "shift_labels", "loss_weights", "shift_loss_weights")

_UNITS = 64  # in the last place of the largest logit: a difference this small may be rounding

# Of the largest logit: the room that other shapes and other kernels need for rounding. Eager attention in transformers
# takes its softmax in float32 also in a float64 model.
_ROUNDING = {torch.float64: 1e-5, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


def poison_test(
    model: Any,
    micro_batch: MicroBatch,
    *,
    logits: Logits | None = None,
    atol: float = 0.0,
    alone: bool = False,
) -> PoisonReport:
    """Whether the model keeps the sequences of this micro-batch apart.

    ``assert poison_test(model, micro_batch)`` suits a script; ``print(poison_test(...))`` says what to do.

    Runs the model 2 + 2·⌈log₂ S⌉ times for S sequences, some more where something leaks. It runs in eval mode, without
    gradients, and every time from the same random state; modes, gradients and random state (of the CPU and of CUDA) are
    afterwards what they were. Code that only runs in training mode (fused kernels of some state space models) is not
    seen. Under FSDP every rank has to call it.

    Args:
        model: a Hugging Face causal language model, or with `logits` anything; modules are put in eval mode.
        micro_batch: flattened, rows or padded, on the model's device, with at least two sequences. Padding counts as a
            sequence that nothing may attend to.
        logits: how to get logits [B, T, V] of a micro-batch, as training does it; by default
            ``model(**huggingface(micro_batch)).logits``.
        atol: the largest difference that is not a leak. 0 holds for most: the same shapes give the same rounding.
            Where the shapes inside a model depend on ids (mixture of experts), allow for rounding.
        alone: also run every sequence by itself (S more runs) and compare, with room for rounding. This shows what
            poison cannot: positions that do not restart, or a mask too narrow.

    Raises:
        UsageError: fewer than two sequences, logits of another shape, or what :func:`huggingface` refuses.
        ValueError: a micro-batch that tells no borders.

    """
    spans = spans_of(micro_batch)
    if len(spans) < 2:
        raise UsageError(
            "this micro-batch holds one sequence, so there is no border to test",
            hint="take another one, or a larger micro_batch_size",
        )
    with _evaluating(model):
        runs = Runs(logits or _huggingface_logits(model), micro_batch, spans, _cuda_devices(model, micro_batch))
        found = _examine(runs, atol)
        return PoisonReport(
            spans=spans,
            leaks=_traced(runs, found, atol),
            leaked_into=found.leaked_into,
            unmoved=found.unmoved,
            largest_difference=found.largest_difference,
            num_moved=found.num_moved,
            noise=runs.noise,
            has_nan=runs.has_nan,
            rounding=_UNITS * torch.finfo(runs.dtype).eps * runs.largest_logit,
            atol=atol,
            alone=_alone(runs) if alone else None,
            num_runs=runs.num_runs,
            attention=getattr(getattr(model, "config", None), "_attn_implementation", None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    leaked_into: tuple[int, ...]
    poisoned_then: tuple[Tensor, ...]  # for each of leaked_into, what was poisoned when it moved most, bool[S]
    unmoved: tuple[int, ...]
    largest_difference: float
    num_moved: int


def _examine(runs: Runs, atol: float) -> _Found:
    S = len(runs.spans)
    largest, own = torch.zeros(S, dtype=torch.float64), torch.zeros(S, dtype=torch.float64)
    then = [torch.zeros(S, dtype=torch.bool)] * S
    moved = torch.zeros(runs.numbers.shape, dtype=torch.bool)
    for sources in _rounds(S):
        differences = runs.poisoned(sources)
        by_sequence = _by_sequence(differences, runs.numbers, S)
        own = own.maximum(by_sequence.masked_fill(~sources, 0))  # a product would make NaN of an infinite leak
        left_alone = runs.real & ~sources
        moved |= (differences > atol) & left_alone[runs.numbers]
        for at in torch.nonzero(left_alone & (by_sequence > largest)).flatten().tolist():
            largest[at], then[at] = by_sequence[at], sources
    into = torch.nonzero(largest > atol).flatten().tolist()
    return _Found(
        leaked_into=tuple(into),
        poisoned_then=tuple(then[at] for at in into),
        unmoved=tuple(at for at, span in enumerate(runs.spans) if span.is_trained and not own[at] > atol),
        largest_difference=float(largest.max()),
        num_moved=int(moved.sum()),
    )


def _traced(runs: Runs, found: _Found, atol: float) -> tuple[Leak, ...]:
    """Leaks with their sources, for the first sequences leaked into that no source found so far explains."""
    leaks: list[Leak] = []
    num_traced = 0
    for target, sources in zip(found.leaked_into, found.poisoned_then, strict=True):
        if num_traced == MAX_TRACED:
            break
        if all(leak.target != target for leak in leaks):
            num_traced += 1
            leaks += _leaks_of(runs, _source(runs, target, sources, atol), atol)
    return tuple(leaks)


def _source(runs: Runs, target: int, sources: Tensor, atol: float) -> int:
    """One sequence of `sources` that moves the target, the near ones tried first."""
    candidates = sorted(torch.nonzero(sources).flatten().tolist(), key=lambda at: abs(at - target))
    while len(candidates) > 1:
        half = (len(candidates) + 1) // 2
        differences = runs.poisoned(_only(candidates[:half], len(runs.spans)))
        moves = bool((differences[runs.numbers == target] > atol).any())
        candidates = candidates[:half] if moves else candidates[half:]
    return int(candidates[0])


def _leaks_of(runs: Runs, source: int, atol: float) -> list[Leak]:
    differences = runs.poisoned(_only([source], len(runs.spans)))
    leaks = []
    for target, span in enumerate(runs.spans):
        moved = differences[runs.numbers == target]
        if target != source and not span.is_padding and bool((moved > atol).any()):
            leaks.append(
                Leak(
                    source=source,
                    target=target,
                    difference=float(moved.max()),
                    num_positions=int((moved > atol).sum()),
                    is_forward=runs.spans[source].row == span.row and source < target,
                )
            )
    return leaks


def _alone(runs: Runs) -> Alone:
    real = torch.nonzero(runs.real).flatten().tolist()
    return Alone(
        differences=tuple((at, runs.apart(at)) for at in real),
        tolerance=_ROUNDING.get(runs.dtype, _ROUNDING[torch.bfloat16]) * runs.largest_logit,
    )


def _rounds(num_sequences: int) -> Iterator[Tensor]:
    """Which sequences are poisoned, run by run; see the module.  # bool[S]"""
    numbers = torch.arange(num_sequences)
    for bit in range((num_sequences - 1).bit_length()):
        is_set = (numbers >> bit) & 1 == 1
        yield ~is_set
        yield is_set


def _only(sequences: Iterable[int], num_sequences: int) -> Tensor:
    chosen = torch.zeros(num_sequences, dtype=torch.bool)
    chosen[list(sequences)] = True
    return chosen


def _by_sequence(differences: Tensor, numbers: Tensor, num_sequences: int) -> Tensor:
    largest = torch.zeros(num_sequences, dtype=differences.dtype)
    return largest.scatter_reduce(0, numbers.flatten(), differences.flatten(), "amax")


def _huggingface_logits(model: Any) -> Logits:
    def logits(micro_batch: MicroBatch) -> Tensor:
        inputs = {name: value for name, value in micro_batch.items() if name not in _TARGETS}
        found = getattr(model(**huggingface(inputs)), "logits", None)
        if isinstance(found, Tensor):
            return found
        raise UsageError(
            "the model's output has no logits",
            hint="pass logits=..., a function of the micro-batch that returns the logits of every position",
        )

    return logits


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Eval mode inside; afterwards every module has the mode it had, which need not be one for all."""
    modes = [(module, module.training) for module in model.modules()] if isinstance(model, nn.Module) else []
    if modes:
        model.eval()
    try:
        yield
    finally:
        for module, was_training in modes:
            module.training = was_training


def _cuda_devices(model: Any, micro_batch: MicroBatch) -> list[int]:
    tensors = [micro_batch["input_ids"], *(model.parameters() if isinstance(model, nn.Module) else ())]
    return sorted({tensor.device.index for tensor in tensors if tensor.is_cuda})
