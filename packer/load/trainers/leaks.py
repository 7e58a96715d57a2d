"""Refuses a model that lets packed documents see each other, gets them wrong, or is not that of the cache."""

import warnings
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from packer.errors import UsageError
from packer.load.attention import flattened
from packer.load.datasets import Adapter
from packer.load.pixels import BatchImages
from packer.load.poison import evaluating, poison_test, rounding
from packer.load.step import MicroBatch

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
