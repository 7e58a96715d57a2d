"""A loader as a Lightning data module, whose state Lightning saves in every checkpoint and restores."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import LightningDataModule

from packer.load.arguments import check_callable
from packer.load.datasets import StepDataset
from packer.load.figures import Figures
from packer.load.loader import PackedLoader
from packer.load.trainers.evaluation import Adapter, EvaluationBatches


class PackedDataModule(LightningDataModule):  # type: ignore[misc]
    """Steps to train on, micro-batches to validate with.

    A training batch is a :class:`packer.load.Step`: the module loops over its micro-batches under manual optimization.
    A validation batch is a dict of a model's arguments, with a ``num_items_in_batch`` by which losses, times the number
    of ranks, average to the mean over all tokens.

    Loaders must be opened after Lightning's processes have connected to each other, so they are passed as functions.

    Args:
        train: opens the training loader.
        validate: opens the validation loader, with ``end="short"``.
        adapter: converts a validation micro-batch to a model's arguments, such as
            ``lambda micro_batch: huggingface(micro_batch, model.config)``; needed for validation.

    Example:
        >>> PackedDataModule(lambda: PackedLoader("cache", micro_batch_size=1, global_batch_size=8))  # doctest: +SKIP
    """

    def __init__(
        self,
        train: Callable[[], PackedLoader],
        validate: Callable[[], PackedLoader] | None = None,
        *,
        adapter: Adapter | None = None,
    ) -> None:
        super().__init__()
        check_callable("train", train, "a function that opens a PackedLoader")
        if validate is not None:
            check_callable("validate", validate, "a function that opens a PackedLoader")
            check_callable("adapter", adapter, "a function of a micro-batch, for validation")
        self._open_train, self._open_validate, self._adapter = train, validate, adapter
        self._steps: StepDataset | None = None
        self._held_out: EvaluationBatches | None = None

    def setup(self, stage: str) -> None:
        del stage
        if self._steps is None:
            self._steps = StepDataset(self._open_train())
        if self._held_out is None and self._open_validate is not None and self._adapter is not None:
            self._held_out = EvaluationBatches(self._open_validate(), self._adapter)

    def train_dataloader(self) -> StepDataset | None:
        return self._steps

    def val_dataloader(self) -> Any:
        return [] if self._held_out is None else self._held_out

    def figures(self) -> Figures:
        """Return how much training data was read, and how fast; only after the trainer has opened the loader."""
        assert self._steps is not None, "there are figures only once training has begun"
        return self._steps.loader.figures()

    def state_dict(self) -> dict[str, Any]:
        return {} if self._steps is None else self._steps.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a checkpoint.

        Raises:
            CheckError: the state is damaged, or not one of a loader like this.
        """
        self.setup("fit")
        assert self._steps is not None
        self._steps.load_state_dict(state_dict)
