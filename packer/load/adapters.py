"""Micro-batches as particular model libraries take them."""

from packer.errors import UsageError
from packer.load.labels import MicroBatch


def huggingface(micro_batch: MicroBatch, *, num_items_in_batch: int | None = None) -> MicroBatch:
    """Keyword arguments for a Hugging Face causal language model: ``model(**huggingface(micro_batch))``.

    transformers keeps packed documents apart in two ways, and a flattened micro-batch serves both. Flash attention
    takes ``cu_seq_lens_*`` and ``max_length_*``. Eager, SDPA and FlexAttention find the borders where ``position_ids``
    do not go up by one, but only without an attention mask and without a key-value cache. With either, the mask is
    plainly causal and neighbours attend to each other without a word. Hence ``use_cache=False``, and no mask.

    Args:
        micro_batch: from a loader with ``flatten=True`` and unshifted labels.
        num_items_in_batch: ``step.num_items_in_batch``; the model's loss is then the sum over this micro-batch divided
            by it, so that the losses of a step's micro-batches add up to its mean over trained tokens. Where gradients
            are averaged over W ranks (DDP, FSDP), multiply the loss by W. None leaves the model's own mean over this
            micro-batch.

    Raises:
        UsageError: the micro-batch is not flattened, holds shifted labels, or holds loss weights, which these
            models do not use.

    """
    if "cu_seq_lens_q" not in micro_batch:
        raise UsageError(
            "a micro-batch of several rows: flash attention ignores position_ids where the batch is not 1",
            hint="open the loader with flatten=True",
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
    arguments = {**micro_batch, "use_cache": False}
    if num_items_in_batch is not None:
        arguments["num_items_in_batch"] = num_items_in_batch
    return arguments
