"""Micro-batches as particular model libraries take them."""

import torch

from packer.errors import UsageError
from packer.load.attention import documents_of, mask_4d
from packer.load.step import MicroBatch


def huggingface(
    micro_batch: MicroBatch,
    *,
    num_items_in_batch: int | None = None,
    seq_idx: bool = False,
    mask_dtype: torch.dtype | None = None,
) -> MicroBatch:
    """Keyword arguments for a Hugging Face causal language model: ``model(**huggingface(micro_batch))``.

    transformers keeps packed documents apart in two ways, and a flattened micro-batch serves both. Flash attention
    takes ``cu_seq_lens_*`` and ``max_length_*``. Eager, SDPA and FlexAttention find the boundaries where
    ``position_ids`` do not go up by one, but only without an attention mask and without a key-value cache. With
    either, the mask is plainly causal and neighbours attend to each other unnoticed. Hence ``use_cache=False``, and no
    mask.

    A padded micro-batch has one document a row and keeps its 2-D ``attention_mask``, which all of them take.

    Args:
        micro_batch: flattened or padded, with unshifted labels; rows (``flatten=False``) only with `mask_dtype`.
        num_items_in_batch: ``step.num_items_in_batch``; the model's loss is then the sum over this micro-batch divided
            by it, so that the losses of a step's micro-batches add up to its mean over trained tokens. Where gradients
            are averaged over W ranks (DDP, FSDP), multiply the loss by W. None leaves the model's own mean over this
            micro-batch.
        seq_idx: add ``seq_idx`` int32 [1, T], by which convolution and state space layers (Bamba, Granite 4,
            Qwen3-Next) start anew at a boundary. They need their kernels for it: without, transformers refuses. Mamba,
            Mamba-2 and Jamba make no use of it, and leak in packed rows with it as without: give them padded ones.
        mask_dtype: add the 4-D mask of :func:`packer.load.attention.mask_4d`: ``torch.bool`` for SDPA, the model's
            dtype for eager or SDPA. For models that build no mask of their own from ``position_ids``.

    Raises:
        UsageError: what these models would get wrong in silence: rows without a mask, a flattened micro-batch with
            one, shifted labels, loss weights, ``seq_idx`` for padded rows.

    """
    _check(micro_batch, seq_idx=seq_idx, explicit_mask=mask_dtype is not None)
    arguments = {name: value for name, value in micro_batch.items() if name != "document_ids"}
    arguments["use_cache"] = False
    documents = documents_of(micro_batch)
    if mask_dtype is not None:
        arguments["attention_mask"] = mask_4d(documents, mask_dtype)
    if seq_idx:
        arguments["seq_idx"] = documents
    if num_items_in_batch is not None:
        arguments["num_items_in_batch"] = num_items_in_batch
    return arguments


def _check(micro_batch: MicroBatch, *, seq_idx: bool, explicit_mask: bool) -> None:
    if "cu_seq_lens_q" in micro_batch:
        _check_flattened(micro_batch)
    elif "document_ids" in micro_batch and not explicit_mask:
        raise UsageError(
            "a micro-batch of several rows: flash attention ignores position_ids where the batch is not 1",
            hint="open the loader with flatten=True, or pass mask_dtype for a 4-D mask (eager and SDPA)",
        )
    elif "document_ids" not in micro_batch and "attention_mask" not in micro_batch:
        raise UsageError(
            "a micro-batch that does not say where documents begin: no cu_seq_lens_q, document_ids or attention_mask",
            hint="hand over a micro-batch as the loader gives it",
        )
    elif "document_ids" not in micro_batch and seq_idx:
        raise UsageError(
            "seq_idx for a padded micro-batch, whose rows hold one document each", hint="leave seq_idx out"
        )
    if "shift_labels" in micro_batch:
        raise UsageError(
            "the labels are shifted, and Hugging Face models shift them again",
            hint="open the loader with labels='unshifted'",
        )
    if "loss_weights" in micro_batch:
        raise UsageError(
            "Hugging Face models compute their loss without loss_weights",
            hint="compute the loss from the logits, or remove loss_weights to train all turns alike",
        )


def _check_flattened(micro_batch: MicroBatch) -> None:
    num_rows = micro_batch["input_ids"].shape[0]
    if num_rows != 1:
        raise UsageError(
            f"cu_seq_lens_q beside {num_rows} rows; a flattened micro-batch has one",
            hint="do not add a batch dimension: hand over the micro-batch as the loader gives it",
        )
    if "position_ids" not in micro_batch:
        raise UsageError(
            "a flattened micro-batch without position_ids, where eager and SDPA find the boundaries",
            hint="open the loader with columns that have position_ids",
        )
    if "attention_mask" in micro_batch:
        raise UsageError(
            "a flattened micro-batch with an attention_mask: transformers then overlooks the boundaries",
            hint="remove attention_mask, or pass mask_dtype for a 4-D mask that has the boundaries",
        )
