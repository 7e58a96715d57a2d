"""A loader as torch's `IterableDataset`, for frameworks that take nothing else and save its state by themselves.

Three things a framework expects of what it iterates over, and a :class:`~packer.load.PackedLoader` does otherwise:

- It asks for the length of a whole epoch, and goes on counting from its own saved number after a resume. A loader
  says how many steps are left.
- It stops after that many steps and never asks for the one that is not there. A loader learns from being asked that
  its epoch is over.
- It would rather run in a worker. A loader reads ahead in a thread of its own.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, NoReturn

from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from packer.errors import CheckError, UsageError
from packer.load.arguments import instance
from packer.load.loader import PackedLoader
from packer.load.step import Step


class StepDataset(IterableDataset[Step]):
    """Steps of a loader; ``state_dict`` and ``load_state_dict`` are what stateful frameworks look for.

    Iterating gives the rest of the current epoch, or the next epoch where nothing is left of it: never an empty pass.
    Leave the loader's own iteration alone meanwhile; its other methods may be used.

    Example:
        >>> StatefulDataLoader(StepDataset(loader), batch_size=None)  # torchdata  # doctest: +SKIP
        >>> Trainer().fit(module, StepDataset(loader))  # Lightning: without a DataLoader around it  # doctest: +SKIP

    A Lightning module loops over a step's micro-batches under manual optimization.

    Args:
        loader: says everything else: sizes, rank, order, form.

    """

    def __init__(self, loader: PackedLoader) -> None:
        self.loader = instance("loader", loader, PackedLoader, "a PackedLoader")
        self._epoch = loader.epoch
        self._taken = 0  # steps returned of that epoch

    def __iter__(self) -> Iterator[Step]:
        """Begin or go on with an epoch.

        Raises:
            UsageError: in a worker of a DataLoader.

        """
        _refuse_workers()
        if not self.loader.steps_left:
            deque(self.loader, maxlen=0)  # being asked once more, it goes on to the next epoch
        return self._steps()

    def __len__(self) -> int:
        """Steps of the whole current epoch, those already returned among them; the global batch size of now is used."""
        return self._taken_of_epoch() + self.loader.steps_left

    def __repr__(self) -> str:
        return f"<StepDataset of {self.loader!r}>"

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, and how many steps of its epoch were returned. The same on every rank."""
        return {"reader": self.loader.state_dict(), "taken": self._taken_of_epoch()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state was saved; see :meth:`PackedLoader.load_state_dict`.

        Raises:
            CheckError: the state is damaged, or not one of a loader like this.

        """
        if not isinstance(state, dict) or set(state) != {"reader", "taken"}:
            raise CheckError("state of steps: expected reader and taken", hint=_HINT)
        taken = state["taken"]
        if type(taken) is not int or not 0 <= taken < 2**63:
            raise CheckError(f"state of steps: expected a number of steps as taken, found {taken!r}", hint=_HINT)
        self.loader.load_state_dict(state["reader"])
        self._epoch, self._taken = self.loader.epoch, taken

    def _steps(self) -> Iterator[Step]:
        for step in self.loader:
            self._taken = self._taken + 1 if step.epoch == self._epoch else 1
            self._epoch = step.epoch
            yield step

    def _taken_of_epoch(self) -> int:
        """Steps returned of the epoch the loader is in, which is a new one once the old one ended."""
        return self._taken if self.loader.epoch == self._epoch else 0


def _refuse_workers() -> None:
    """Refuse to be read in a worker, where nothing can be exact.

    A worker has a copy of the loader. The process that saves keeps the one that never moves; several workers give every
    step several times; a worker that is started for each epoch gives the first epoch each time.

    Raises:
        UsageError: in a worker of a DataLoader.

    """
    worker = get_worker_info()
    if worker is not None:
        raise UsageError(
            f"a loader's steps cannot come from {worker.num_workers} worker(s): each would read a copy of its own, and "
            "the state saved would not be the one of what was read; pass num_workers=0, the loader reads ahead in a "
            "thread (prefetch=)"
        )


def _refuse_collation(_: Any, *, collate_fn_map: Any = None) -> NoReturn:
    """What a DataLoader calls that would make a batch of steps."""
    del collate_fn_map  # what torch hands to every entry of its map
    raise TypeError("a step is a batch already: DataLoader(StepDataset(loader), batch_size=None)")


default_collate_fn_map[Step] = _refuse_collation

_HINT = "pass what state_dict() returned, unchanged"
