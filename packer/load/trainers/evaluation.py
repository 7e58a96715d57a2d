"""Evaluation by trainers that average the losses of micro-batches: here their average is the mean over tokens.

A mean of micro-batch means gives tokens in small micro-batches more weight. So each loss is a sum, divided by the
average number of trained targets per micro-batch: T / K for T targets in K micro-batches. With W ranks, each has K, and
a loss divided by T / K and multiplied by W, as trainers do, averages to the same over all W · K.

Worked example, two micro-batches of 3 and 1 targets with summed losses 6 and 4: T / K = 2, so 3 and 2, on average 2.5,
which is 10 / 4. The mean of means would be (2 + 4) / 2 = 3.
"""

from collections.abc import Callable, Iterator

from packer.errors import UsageError
from packer.load.loader import PackedLoader, loader_of_examples
from packer.load.step import MicroBatch

Adapter = Callable[[MicroBatch], MicroBatch]
"""Maps a micro-batch to the keyword arguments of a model."""


class EvaluationBatches:
    """A loader's micro-batches, restarted for each iteration, with ``num_items_in_batch`` among their arguments.

    Args:
        loader: of the split to evaluate, not to be used elsewhere. Every iteration is the same pass over it: its
            current epoch, or the next one if an evaluation that was cut short left it within an epoch.
        adapter: converts a micro-batch to a model's arguments.

    Raises:
        UsageError: the loader's `end` is ``drop``, which may leave blocks out.
    """

    def __init__(self, loader: PackedLoader, adapter: Adapter) -> None:
        self.loader = loader_of_examples("loader", loader, "an evaluation by losses")
        if loader.end == "drop":
            raise UsageError(
                "an evaluation with end='drop' need not be one pass over the split",
                hint="open the evaluation loader with end='short'",
            )
        self._adapter = adapter
        if loader.state_dict()["cursor"]:
            loader.set_epoch(loader.epoch + 1)
        self._initial_state = loader.state_dict()
        self._summary = loader.summary()

    def __len__(self) -> int:
        """Micro-batches of this rank."""
        return self._summary.micro_batches

    def __iter__(self) -> Iterator[MicroBatch]:
        self.loader.load_state_dict(self._initial_state)
        per_micro_batch = self._summary.num_items / self._summary.micro_batches
        for step in self.loader:
            for micro_batch in step:
                yield {**self._adapter(micro_batch), "num_items_in_batch": per_micro_batch}
