"""A loader's micro-batches one by one, in the format of torchtitan's ``BaseDataLoader``.

torchtitan requests ``gradient_accumulation_steps`` batches for each optimizer step. Each is a pair of a dict with
``input`` and ``positions``, and of labels that are already shifted; document boundaries are where positions are 0.
Version 0.3 takes rows of one length, the main branch one flat row of ``num_tokens_per_batch``. torchtitan sums the
losses and divides them by the number of labels it counted over all ranks, which equals the loader's
``num_items_in_batch``.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from packer.errors import CheckError, UsageError
from packer.load.loader import PackedLoader, loader_of_examples

Batch = tuple[dict[str, Tensor], Tensor]
"""``input``, ``positions`` and shifted labels: int64 [B, L], or [T] of a loader that flattens."""

_TAKEN = {"input_ids", "position_ids", "shift_labels", "document_ids"}
_TAKEN |= {f"{name}_{of}" for name in ("cu_seq_lens", "max_length") for of in "qk"}
"""What a batch has, or what only repeats its positions. Anything else would be lost: images, columns."""


class StepBatches:
    """Endless pairs of inputs and labels; the state can be saved between steps.

    Args:
        loader: opened with ``labels="shifted"``, for 0.3 also ``flatten=False``, and the sizes that torchtitan trains
            with.
    """

    def __init__(self, loader: PackedLoader) -> None:
        self.loader = loader_of_examples("loader", loader, "torchtitan")
        self._is_mid_step = False

    def __iter__(self) -> Iterator[Batch]:
        """Continue from the loader's position.

        Raises:
            UsageError: micro-batches of another form, or with what torchtitan does not take, such as columns.
        """
        self._is_mid_step = False
        for step in self.loader.endless():
            for number, micro_batch in enumerate(step, start=1):
                if "shift_labels" not in micro_batch or "attention_mask" in micro_batch:
                    raise UsageError(
                        "torchtitan takes shifted labels, of blocks or of documents without padding",
                        hint="open the loader with labels='shifted', and flatten=False for torchtitan 0.3",
                    )
                if lost := sorted(micro_batch.keys() - _TAKEN):
                    raise UsageError(
                        f"torchtitan takes ids, positions and labels; {', '.join(lost)} would be lost",
                        hint="open the loader without columns or images",
                    )
                self._is_mid_step = number < len(step)
                ids, positions, labels = (micro_batch[name] for name in ("input_ids", "position_ids", "shift_labels"))
                if "cu_seq_lens_q" in micro_batch:
                    ids, positions, labels = ids[0], positions[0], labels[0]
                yield {"input": ids, "positions": positions}, labels

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position, the same on every rank.

        Raises:
            UsageError: called within a step, which the state cannot represent.
        """
        if self._is_mid_step:
            raise UsageError(
                "a state within a step: torchtitan takes another number of micro-batches for a step than the loader",
                hint="open the loader with the global_batch_size of torchtitan's training",
            )
        return {"reader": self.loader.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a saved state, on any number of ranks; an empty one changes nothing.

        Raises:
            CheckError: the state is damaged, or not one of a loader like this.
        """
        if not state_dict:
            return
        if set(state_dict) != {"reader"}:
            raise CheckError("state of batches: expected reader", hint="pass what state_dict() returned, unchanged")
        self._is_mid_step = False
        self.loader.load_state_dict(state_dict["reader"])
