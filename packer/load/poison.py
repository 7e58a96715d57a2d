"""Tests whether a model respects document boundaries: change one document, and check that its neighbors' logits stay.

1. Run the model twice unchanged: a model that answers the same input in two ways cannot be tested.
2. Run it once for each sequence, with every token of it replaced by another id of the micro-batch.
3. No logit of another sequence may change. Those of the changed one must: otherwise the test has shown nothing.

Worked example: sequences 0, 1 and 2 are in one row, and attention ignores the boundaries. Changing 0 moves 1 and 2,
changing 1 moves 2, changing 2 moves no other: three leaks, all from earlier positions.

A trainer refuses a model that fails, gets packed documents wrong, or is not that of the cache.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from packer.errors import UsageError
from packer.layout import MASKED
from packer.load.adapters import huggingface
from packer.load.attention import boundaries, documents_of, flattened
from packer.load.datasets import Adapter
from packer.load.pixels import BatchImages
from packer.load.poison_report import Leak, PoisonReport, Span
from packer.load.step import MicroBatch

Logits: TypeAlias = Callable[[MicroBatch], Tensor]
"""Returns the logits [B, T, V] of a micro-batch; [B·T, V] is accepted as well."""

_CHUNK_POSITIONS = 1024  # logits are compared in chunks, so that the differences take little memory
_SEED = 20  # for the replacement ids; arbitrary

# Rounding tolerance for other shapes and kernels, as a fraction of the largest logit. Eager attention in transformers
# computes its softmax in float32 even in a float64 model.
_ROUNDING = {torch.float64: 1e-5, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}

_TARGETS = ("labels", "shift_labels")


def poison_test(
    model: Any,
    micro_batch: MicroBatch,
    *,
    logits: Logits | None = None,
    atol: float | None = 0.0,
    alone: bool = False,
) -> PoisonReport:
    """Test whether the model keeps the sequences of this micro-batch apart.

    Use ``assert poison_test(model, micro_batch)`` in a script; ``print(poison_test(...))`` explains what to do.

    Runs the model S + 2 times for S sequences, in eval mode, without gradients, and every time from the same random
    state; modes, gradients and random state (of the CPU and of CUDA) are restored afterwards. Code that only runs
    in training mode (fused kernels of some state space models) is not tested. Under FSDP every rank has to call it.

    Args:
        model: a Hugging Face causal language model, or anything if `logits` is given; modules are put in eval mode.
            Under pipeline parallelism, the stages of this rank.
        micro_batch: flattened, rows or padded, on the model's device, with at least two sequences. Padding counts as a
            sequence: nothing may attend to it.
        logits: how the model is called in training. The default is a correct call,
            ``model(**huggingface(micro_batch, model.config)).logits``; pass your own call to test your training code.
        atol: largest difference of a logit that counts as none. The default requires bitwise equal outputs for bitwise
            equal inputs, which holds for one kernel over inputs of one shape; None allows for the dtype's rounding.
        alone: also run each sequence alone and compare, which detects positions that do not restart. Takes S more runs;
            other shapes and kernels round differently, so a tolerance by dtype applies.

    Raises:
        UsageError: nothing to test, or a function that does not return logits.
        ValueError: a micro-batch that does not say where its sequences begin.
    """
    spans = spans_of(micro_batch)
    if len(spans) < 2:
        raise UsageError(
            "this micro-batch holds one sequence, so there is no boundary to test",
            hint="take another one, or a larger micro_batch_size",
        )
    module = next((each for each in (model, logits) if isinstance(each, nn.Module)), None)
    with evaluating(module):
        runs = _Runs(logits or _huggingface_logits(model), micro_batch, spans, module)
        atol = runs.rounding if atol is None else atol
        moved = torch.stack([runs.logit_changes(at) for at in range(len(spans))])  # [source, target]
        leaks = tuple(
            Leak(
                source=source,
                target=target,
                difference=float(moved[source, target]),
                is_forward=spans[source].row == spans[target].row and source < target,
            )
            for source, target in torch.nonzero(moved > atol).tolist()
            if source != target and not spans[target].is_padding
        )
        return PoisonReport(
            spans=spans,
            leaks=leaks,
            unmoved=tuple(at for at, span in enumerate(spans) if span.is_trained and not moved[at, at] > atol),
            noise=runs.noise,
            has_nan=runs.has_nan,
            atol=atol,
            alone={at: runs.difference_alone(at) for at, span in enumerate(spans) if not span.is_padding}
            if alone
            else None,
            alone_tolerance=runs.rounding,
            attention=getattr(getattr(model, "config", None), "_attn_implementation", None),
        )


def rounding(logits: Tensor, model: Any) -> float:
    """Return how far apart logits may be that are the same but for other shapes and kernels.

    The coarsest dtype decides, of logits, parameters and autocast: logits are often raised to float32 at the end.
    """
    dtypes = {logits.dtype, *(each.dtype for each in _parameters(model) if each.is_floating_point())}
    if torch.is_autocast_enabled(logits.device.type):
        dtypes.add(torch.get_autocast_dtype(logits.device.type))
    share = max(_ROUNDING.get(each, _ROUNDING[torch.bfloat16]) for each in dtypes)
    return share * float(logits.nan_to_num(0, 0, 0).abs().max())


def spans_of(micro_batch: MicroBatch) -> tuple[Span, ...]:
    """Return the sequences in the order of rows and positions: maximal runs of one document number.

    Raises:
        ValueError: a micro-batch that does not say where its sequences begin.
    """
    documents = documents_of(micro_batch).cpu()
    real = torch.ones(documents.shape, dtype=torch.bool)
    if _has_shape(mask := micro_batch.get("attention_mask"), documents.shape):
        real = mask.cpu() != 0
    labels = micro_batch.get("labels", micro_batch.get("shift_labels"))
    trained = real if labels is None or (labels == MASKED).all() else labels.cpu() != MASKED
    spans = []
    for row, numbers in enumerate(documents):
        changes = torch.nonzero(numbers.diff()).flatten().add(1).tolist()
        for start, stop in zip([0, *changes], [*changes, len(numbers)], strict=True):
            is_trained = bool(trained[row, start:stop].any())
            is_padding = not bool(real[row, start])
            spans.append(Span(row=row, start=start, stop=stop, is_padding=is_padding, is_trained=is_trained))
    return tuple(spans)


class _Runs:
    """Runs of the model on this micro-batch, compared with the unchanged run."""

    def __init__(self, logits: Logits, micro_batch: MicroBatch, spans: tuple[Span, ...], model: Any) -> None:
        self._logits, self._micro_batch, self._spans = logits, micro_batch, spans
        self._cuda = _cuda_devices(model, micro_batch)
        self._poison = _poison(micro_batch["input_ids"])
        # A copy: a compiled model may overwrite this output with the next one.
        self._baseline = self._run(micro_batch).clone()
        real = [at for at, span in enumerate(spans) if not span.is_padding]
        self.noise = float(self._difference_by_sequence(micro_batch)[real].max())
        clean = torch.cat([self._slice(self._baseline, spans[at]).flatten() for at in real])
        self.has_nan = bool(clean.isnan().any())
        self.rounding = rounding(clean, model)

    def logit_changes(self, at: int) -> Tensor:
        """Return the largest difference of a logit of each sequence when sequence `at` is changed.  # float64[S]"""
        return self._difference_by_sequence(self._poisoned(at))

    def difference_alone(self, at: int) -> float:
        """Return the largest difference of a logit between a sequence among the others and alone."""
        among = self._slice(self._baseline, self._spans[at])
        return float(_differences(among, self._run(_single_sequence(self._micro_batch, self._spans[at]))).max())

    def _poisoned(self, at: int) -> MicroBatch:
        ids = self._micro_batch["input_ids"].clone()
        self._slice(ids, self._spans[at])[:] = self._slice(self._poison, self._spans[at])
        return {**self._micro_batch, "input_ids": ids}

    def _difference_by_sequence(self, micro_batch: MicroBatch) -> Tensor:
        differences = _differences(self._baseline, self._run(micro_batch))
        return torch.stack([self._slice(differences, span).max() for span in self._spans])

    def _run(self, micro_batch: MicroBatch) -> Tensor:
        """Run the model from the same random state every time, and restore it afterwards.  # [B, T, V]"""
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

    @staticmethod
    def _slice(values: Tensor, span: Span) -> Tensor:
        return values[span.row : span.row + 1, span.start : span.stop]


def _poison(input_ids: Tensor) -> Tensor:
    """Draw another id of this micro-batch for every position, independently.

    A fixed exchange of ids would leave the mean over a sequence that has each of them once unchanged. If there is only
    one id, its neighbor in the vocabulary is used.
    """
    known, rank = torch.unique(input_ids, return_inverse=True)
    if len(known) == 1:
        return torch.where(input_ids > 0, input_ids - 1, input_ids + 1)
    shift = torch.randint(1, len(known), input_ids.shape, generator=torch.Generator().manual_seed(_SEED))
    others: Tensor = known[(rank + shift.to(rank.device)) % len(known)]
    return others


def _single_sequence(micro_batch: MicroBatch, span: Span) -> MicroBatch:
    """Return a micro-batch of one sequence: columns of the shape of ``input_ids`` are cut, boundaries rebuilt."""
    shape = micro_batch["input_ids"].shape
    rows, positions = slice(span.row, span.row + 1), slice(span.start, span.stop)
    single = {
        name: value[rows, positions] if _has_shape(value, shape) else value for name, value in micro_batch.items()
    }
    if "cu_seq_lens_q" not in single:
        return single
    length = torch.tensor([span.stop - span.start], device=micro_batch["cu_seq_lens_q"].device)
    return single | boundaries(length)


def _differences(first: Tensor, second: Tensor) -> Tensor:
    """Return the largest difference of a logit at each position; infinite if only one is NaN.  # float64[B, T]"""
    pieces = [torch.split(logits.flatten(0, 1), _CHUNK_POSITIONS) for logits in (first, second)]
    return torch.cat([_largest(one, other) for one, other in zip(*pieces, strict=True)]).view(first.shape[:-1])


def _largest(first: Tensor, second: Tensor) -> Tensor:
    same = (first == second) | (first.isnan() & second.isnan())  # inf - inf is not a number
    differences = (first.double() - second.double()).abs().masked_fill(same, 0)
    return differences.nan_to_num(torch.inf, torch.inf).amax(-1).cpu()


def _huggingface_logits(model: Any) -> Logits:
    def logits(micro_batch: MicroBatch) -> Tensor:
        inputs = {name: value for name, value in micro_batch.items() if name not in _TARGETS}
        found = getattr(model(**huggingface(inputs, getattr(model, "config", None))), "logits", None)
        if isinstance(found, Tensor):
            return found
        raise UsageError(
            "the model's output has no logits",
            hint="pass logits=..., a function of the micro-batch that returns the logits of every position",
        )

    return logits


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Switch to eval mode, and restore every module's own mode afterwards, which may differ between modules."""
    modes = [(module, module.training) for module in model.modules()] if isinstance(model, nn.Module) else []
    if modes:
        model.eval()
    try:
        yield
    finally:
        for module, was_training in modes:
            module.training = was_training


def _cuda_devices(model: Any, micro_batch: MicroBatch) -> list[int]:
    tensors = [micro_batch["input_ids"], *_parameters(model)]
    return sorted({tensor.device.index for tensor in tensors if tensor.is_cuda})


def _parameters(model: Any) -> Iterable[Tensor]:
    return model.parameters() if isinstance(model, nn.Module) else ()


def _has_shape(value: Any, shape: torch.Size) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.shape == shape


_QUANTILE = 0.75
"""Fewer than a quarter of the tokens may differ: in low precision, rounding may lead a token to another expert."""

_LENGTHS = (12, 9, 15)
"""Of the documents that are tested: together they take six forward passes of 36 tokens, and alone one each."""

_MOST_PER_TOKEN = 2
"""Embeddings that a model may have for each id of its tokenizer: tables are filled up to a round number."""


def refuse_other_model(model: Any, micro_batch: MicroBatch, vocab_size: int, *, name: str) -> None:
    """Refuse a model that lacks embeddings of ids in a micro-batch, and warn of one made for a larger tokenizer.

    Models may have fewer embeddings than their tokenizer has ids, if nobody uses those.
    """
    num_embeddings = None
    with suppress(AttributeError, NotImplementedError):  # as models without such a table have it
        num_embeddings = model.get_input_embeddings().num_embeddings
    if not isinstance(num_embeddings, int):
        return
    highest = int(micro_batch["input_ids"].max())
    if highest >= num_embeddings:
        raise UsageError(
            f"{name} has {num_embeddings:,} embeddings, and the cache has token {highest:,}",
            hint="build the cache with the tokenizer of this model",
        )
    if num_embeddings > _MOST_PER_TOKEN * vocab_size:
        warnings.warn(
            f"{name} has {num_embeddings:,} embeddings, and the tokenizer of the cache only {vocab_size:,} tokens: it "
            "is that of another model",
            stacklevel=2,
        )


def refuse_leaks(
    model: Any, adapter: Adapter, micro_batch: MicroBatch, images: BatchImages | None, *, name: str
) -> None:
    """Test a model, as it is called in training, on three short documents of ids of a packed micro-batch.

    They must not see each other, and be to the model what they are alone. With images, so must the documents of their
    probe be packed what they are padded.

    Padded micro-batches are not tested, nor are models that return no logits. Until something is wrong, every rank runs
    the same number of forward passes, so that parameters may be spread over ranks.
    """
    if "cu_seq_lens_q" not in micro_batch:
        return

    def logits(given: MicroBatch) -> Tensor:
        arguments = {name: value for name, value in adapter(given).items() if name != "labels"}
        found: Tensor = model(**arguments).logits  # with labels, a fused loss gives none
        return found

    def of_tokens(given: MicroBatch) -> Tensor:
        given = tree_map_only(Tensor, lambda each: each.to(ids.device), given)
        return logits(given)[given.get("attention_mask", given["input_ids"] >= 0).bool()]

    ids = micro_batch["input_ids"]
    total = sum(_LENGTHS)
    short = ids.flatten().repeat(-(-total // ids.numel()))[:total]
    packed, alone = flattened(short.split(_LENGTHS)), [flattened([each]) for each in short.split(_LENGTHS)]
    try:
        report = poison_test(model, packed, logits=logits, atol=None)
        with evaluating(model), torch.no_grad():
            compared = {"": (of_tokens(packed), torch.cat([of_tokens(each) for each in alone]))}
            if images is not None:
                probe, padded = images.probe()
                compared[" with images"] = (of_tokens(probe), of_tokens(padded))
    except (AttributeError, TypeError, UsageError):
        return  # a model that only its own loss can call, or what its adapter refuses
    if report.leaks:
        difference = max(leak.difference for leak in report.leaks)
        raise UsageError(
            f"{name} lets packed documents see each other: other words in one move the logits of its neighbors "
            f"by up to {difference:.2g}",
            hint="train one document a row, PackedLoader(..., batching='padded'); "
            "print(poison_test(model, micro_batch)) shows which leaks where",
        )
    for what, (together, apart) in compared.items():
        difference = float((together - apart).abs().amax(-1).float().quantile(_QUANTILE))
        if difference > rounding(apart, model):
            raise UsageError(
                f"{name} gets packed documents{what} wrong: a quarter of the tokens has logits off by {difference:.2g}",
                hint="train one document a row, PackedLoader(..., batching='padded')",
            )
