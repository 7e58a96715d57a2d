"""The reader as datasets, for frameworks with their own sampler or loop: blocks by number, steps, evaluations.

Frameworks that iterate over a dataset of steps expect two things that a :class:`~packer.load.PackedLoader` does
differently:

- They ask for the length of a whole epoch, and after a resume continue counting from their own saved number. A loader
  reports how many steps are left.
- They stop after that many steps and never request another one. A loader learns that its epoch is over only when one
  more step is requested.
"""

import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data._utils.collate import default_collate_fn_map

from packer.errors import CheckError, UsageError
from packer.load.arguments import check_instance, checked, open_cache
from packer.load.attention import boundaries
from packer.load.layouts import PREFIX, asked_columns
from packer.load.loader import PackedLoader, loader_of_examples
from packer.load.ordered_rows import content_of, require_examples
from packer.load.ordering import UNCHANGED
from packer.load.step import MicroBatch, Step
from packer.store.cache import Cache
from packer.store.shards import block_values


class Item(dict[str, Tensor]):
    """A block as named tensors; torch's default collation passes several to :func:`collate`."""


class PackedDataset(Dataset[Item]):
    """Block `i` of a split as a dict of tensors.

    | name | type |
    | --- | --- |
    | input_ids, labels, position_ids | int64 [L] |
    | seq_lengths | int64 [S], sums to L; a padding run is its last entry |
    | num_trained | int64 [] |
    | columns.NAME, of `columns` that the recipe declares | int64 or float32 [L] or [L, width] |

    It pickles as the cache's folder and fingerprint, so workers reopen the same bytes. A DataLoader turns it into
    flattened micro-batches, see :func:`collate`. A sampler offers none of the order, resume and global step of
    :class:`PackedLoader`.
    """

    def __init__(
        self,
        cache: str | Path | Cache,
        split: str = "train",
        *,
        columns: Sequence[str] = (),
    ) -> None:
        self._cache = open_cache(cache)
        require_examples(content_of(self._cache), "PackedDataset")
        self._cache.refuse_images("PackedDataset")
        self._split = checked("split", split, str)
        self._rows = self._cache.blocks(split)
        self._declared = asked_columns([self._cache], checked("columns", columns, tuple[str, ...]))

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<PackedDataset of {self._cache!r}, split '{self._split}': {len(self):,} blocks>"

    def __getitem__(self, index: int) -> Item:
        """Return one block; a negative index counts from the end.

        Raises:
            IndexError: there is none with this number.
            CheckError: the row does not match its digest.
        """
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """Return several in one read, in the order of `indices`."""
        requested = np.array([operator.index(index) for index in indices], np.int64)
        size = len(self)
        if np.any((requested < -size) | (requested >= size)):
            raise IndexError(f"index out of range for {size} blocks")
        found = self._rows.locate(np.where(requested < 0, requested + size, requested))
        names = ("input_ids", "labels", "position_ids", "seq_lengths")
        columns: dict[str, Any] = {name: [values.astype(np.int64) for values in found.values(name)] for name in names}
        columns["num_trained"] = np.array(found.values("num_trained"), np.int64)
        columns |= self._values_beside(found)
        rows_of_columns = zip(*columns.values(), strict=True)
        return [Item(zip(columns, map(torch.as_tensor, values), strict=True)) for values in rows_of_columns]

    def __reduce__(self) -> tuple[Any, ...]:
        names = [each.name for each in self._declared]
        return partial(type(self), columns=names), (self._cache, self._split)

    def _values_beside(self, found: Any) -> dict[str, Any]:
        columns = self._declared
        if not columns:
            return {}
        values = block_values(found, self._rows.block_len, self._cache.documents(self._split), columns)
        wide = {each.name: np.int64 if each.rule.kind == "int32" else np.float32 for each in columns}
        return {f"{PREFIX}{name}": [each.astype(wide[name]) for each in own] for name, own in values.items()}


def collate(items: Sequence[Item]) -> dict[str, Any]:
    """Collate items of :class:`PackedDataset` into one flattened micro-batch, as a DataLoader does by default.

    The format is that of :class:`PackedLoader` with ``flatten=True``. For trainers that require a ``collate_fn``.

    Raises:
        ValueError: no items, or items of other columns.
    """
    if not items:
        raise ValueError("items is empty; expected blocks of a PackedDataset")
    beside = [name for name in items[0] if name.startswith(PREFIX)]
    names = ("input_ids", "labels", "position_ids", *beside)
    missing = {name for item in items for name in (*names, "seq_lengths") if name not in item}
    if missing:
        raise ValueError(
            f"items lack {', '.join(sorted(missing))}; expected a list of items of a PackedDataset, whole and all with "
            "the same columns: a transformers Trainer removes some unless remove_unused_columns=False"
        )
    flat: dict[str, Any] = {name: torch.cat([item[name] for item in items]).unsqueeze(0) for name in names}
    if beside:
        flat["columns"] = {name.removeprefix(PREFIX): flat.pop(name) for name in beside}
    return flat | boundaries(torch.cat([item["seq_lengths"] for item in items]))


class StepDataset(IterableDataset[Any]):
    """Steps of a loader as a dataset; stateful frameworks look for its ``state_dict`` and ``load_state_dict``.

    Iterating yields the rest of the current epoch, or the next epoch if nothing is left of it: never an empty pass.
    Do not iterate over the loader itself meanwhile; its other methods may be used.

    Workers of a DataLoader cannot share steps, so ``num_workers`` stays 0: the loader prefetches in its own thread.

    Example:
        >>> StatefulDataLoader(StepDataset(loader), batch_size=None)  # torchdata  # doctest: +SKIP
        >>> Trainer().fit(module, StepDataset(loader))  # Lightning: without a DataLoader around it  # doctest: +SKIP

    A Lightning module loops over a step's micro-batches under manual optimization.

    Args:
        loader: determines everything else: sizes, rank, order, layout.
        transform: applied to each step; its result is yielded instead.
    """

    def __init__(self, loader: PackedLoader, transform: Callable[[Step], Any] | None = None) -> None:
        self.loader = check_instance("loader", loader, PackedLoader, "a PackedLoader")
        self._transform = checked("transform", transform, Callable[[Step], Any] | None)
        self._epoch = loader.epoch
        self._taken = 0  # steps returned of that epoch so far

    def __iter__(self) -> Iterator[Any]:
        """Begin or continue an epoch."""
        if not self.loader.steps_left:
            deque(self.loader, maxlen=0)  # exhausting it moves it on to the next epoch
        return self._steps()

    def __len__(self) -> int:
        """Steps of the whole current epoch, including those already returned."""
        return self._num_taken() + self.loader.steps_left

    def __repr__(self) -> str:
        return f"<StepDataset of {self.loader!r}>"

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position, and how many steps of its epoch were returned. The same on every rank."""
        return {"reader": self.loader.state_dict(), "taken": self._num_taken()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state; see :meth:`PackedLoader.load_state_dict`.

        Raises:
            CheckError: the state is damaged, or not one of a loader like this.
        """
        if not isinstance(state, dict) or {*state} != {"reader", "taken"}:
            raise CheckError("state of steps: expected reader and taken", hint=UNCHANGED)
        taken = state["taken"]
        if type(taken) is not int or not 0 <= taken < 2**63:
            raise CheckError(f"state of steps: expected a number of steps as taken, found {taken!r}", hint=UNCHANGED)
        self.loader.load_state_dict(state["reader"])
        self._epoch, self._taken = self.loader.epoch, taken

    def _steps(self) -> Iterator[Any]:
        for step in self.loader:
            self._taken = self._taken + 1 if step.epoch == self._epoch else 1
            self._epoch = step.epoch
            yield step if self._transform is None else self._transform(step)

    def _num_taken(self) -> int:
        """Count the steps returned of the loader's current epoch."""
        return self._taken if self.loader.epoch == self._epoch else 0


def _collated(items: Sequence[Item], **_: Any) -> dict[str, Any]:
    return collate(items)


def _refuse_collation(_: Any, **__: Any) -> NoReturn:
    raise TypeError("a step is a batch already: DataLoader(StepDataset(loader), batch_size=None)")


# How a DataLoader collates items by default.
default_collate_fn_map[Item] = _collated
default_collate_fn_map[Step] = _refuse_collation


Adapter = Callable[[MicroBatch], MicroBatch]
"""Maps a micro-batch to the keyword arguments of a model."""


class EvaluationBatches:
    """A loader's micro-batches, restarted for each iteration, with ``num_items_in_batch`` among their arguments.

    For trainers that average the losses of micro-batches: the average is then the mean over tokens. A mean of means
    would give tokens in small micro-batches more weight. Each loss is a sum, divided by the average number of trained
    targets of a micro-batch: T / K for T targets in K micro-batches. With W ranks, each has K, and a loss divided by
    T / K and multiplied by W, as trainers do, averages to the same over all W · K.

    Worked example, two micro-batches of 3 and 1 targets with summed losses 6 and 4: T / K = 2, so 3 and 2, on average
    2.5, which is 10 / 4. The mean of means would be (2 + 4) / 2 = 3.

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
