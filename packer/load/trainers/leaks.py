"""Refuses a model that lets packed documents see each other, before its first step."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from packer.errors import UsageError
from packer.load.poison import evaluating, poison_test, rounding
from packer.load.step import MicroBatch
from packer.load.trainers.evaluation import Adapter

Probe: TypeAlias = Callable[[], tuple[MicroBatch, MicroBatch] | None]
"""Makes documents with images, packed and padded; None if a loader has no images."""

_TOLD = 0.75
"""Fewer than a quarter of the tokens may differ: in low precision, rounding may lead a token to another expert."""

_LENGTHS = (12, 9, 15)
"""Of the documents that are tested: together they take five forward passes of 36 tokens."""


def refuse_leaks(model: Any, adapter: Adapter, micro_batch: MicroBatch, probe: Probe, *, name: str) -> None:
    """Test a model, as it is called in training, on three short documents of ids of a packed micro-batch.

    With images, also on the documents of `probe`, packed and padded: of both it must say the same.

    Padded micro-batches are not tested, nor are models that return no logits. Until something leaks, every rank runs
    the same number of forward passes, so that parameters may be spread over ranks.

    Raises:
        UsageError: what one document says moves the logits of another, or packing moves those of documents with images,
            by more than the dtype's rounding.
    """
    if "cu_seq_lens_q" not in micro_batch:
        return

    def logits(given: MicroBatch) -> Tensor:
        arguments = {name: value for name, value in adapter(given).items() if name != "labels"}
        found: Tensor = model(**arguments).logits  # with labels, a fused loss gives none
        return found

    ids = micro_batch["input_ids"]
    try:
        report = poison_test(model, _small(ids.flatten()), logits=logits, atol=None)
        with evaluating(model), torch.no_grad():
            moved = tree_map_only(Tensor, lambda each: each.to(ids.device), probe() or ())
            of_images = [logits(each)[each.get("attention_mask", each["input_ids"] >= 0).bool()] for each in moved]
    except (AttributeError, TypeError, UsageError):
        return  # a model that only its own loss can call, or what its adapter refuses
    if report.leaks:
        difference = max(leak.difference for leak in report.leaks)
        where = f", first in {report.layer}" if report.layer else ""
        raise UsageError(
            f"{name} lets packed documents see each other{where}: other words in one move the logits of its neighbors "
            f"by up to {difference:.2g}",
            hint="train one document a row, PackedLoader(..., batching='padded'); "
            "print(poison_test(model, micro_batch)) shows which leaks where",
        )
    if not of_images:
        return
    of_tokens = (of_images[0] - of_images[1]).abs().amax(-1).float()
    apart = float(of_tokens.quantile(_TOLD))
    if apart > rounding(of_images[1]):
        raise UsageError(
            f"{name} gets packed documents with images wrong: a quarter of the tokens has logits off by {apart:.2g}",
            hint="train one document a row, PackedLoader(..., batching='padded')",
        )


def _small(ids: Tensor) -> MicroBatch:
    """Return a flattened micro-batch of three documents of these ids."""
    total = sum(_LENGTHS)
    ids = ids.repeat(-(-total // len(ids)))[:total][None]
    places = torch.cat([torch.arange(length, device=ids.device) for length in _LENGTHS])[None]
    ends = torch.tensor([0, *accumulate(_LENGTHS)], dtype=torch.int32, device=ids.device)
    found: MicroBatch = {"input_ids": ids, "labels": ids.clone(), "position_ids": places}
    for side in "qk":
        found |= {f"cu_seq_lens_{side}": ends, f"max_length_{side}": max(_LENGTHS)}
    return found
