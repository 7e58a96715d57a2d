"""The reader as torch's datasets, for frameworks with a sampler or a loop of their own: blocks by number, and steps.

What iterates over a dataset of steps expects three things that a :class:`~packer.load.PackedLoader` does otherwise:

- It asks for the length of a whole epoch, and goes on counting from its own saved number after a resume. A loader
  says how many steps are left.
- It stops after that many steps and never asks for the one that is not there. A loader learns from being asked that
  its epoch is over.
- It may run in workers, which must share the steps. A loader reads ahead in a thread of its own.
"""

import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from packer.batches import Int64
from packer.errors import CheckError
from packer.load.arguments import function, instance, one_of, opened
from packer.load.content import content_of, refuse_preference
from packer.load.loader import PackedLoader
from packer.load.rows import RowKind, check_weights
from packer.load.step import Step
from packer.store.cache import Cache

_HINT = "pass what state_dict() returned, unchanged"


class Item(dict[str, Tensor]):
    """A block by names. Torch's default collation makes of several what :func:`collate` does."""


class PackedDataset(Dataset[Item]):
    """Block or document `i` of a split as a dict of tensors.

    | name | type |
    | --- | --- |
    | input_ids, labels, position_ids | int64 [L] |
    | seq_lengths | int64 [S], sums to L; a padding run is its last entry; of a document its length |
    | num_trained | int64 [] |
    | loss_weights, with ``weights="use"`` | float32 [L] |
    | of a document: doc_id, source, row | int64 []; `source` is the number of the manifest's input it comes from |

    It pickles as the cache's folder and fingerprint, so workers open the same bytes for themselves. A DataLoader gives
    flattened micro-batches of it, see :func:`collate`. What :class:`PackedLoader` knows of order, resume and the global
    step, a sampler does not.

    Args:
        cache: folder of a cache, or an open one.
        split: name of the split.
        kind: ``blocks`` or ``documents``.
        weights: ``use`` adds ``loss_weights``; ``refuse`` raises where the cache holds fractional weights.

    Raises:
        UsageError: the cache holds fractional weights and `weights` is ``refuse``.

    """

    def __init__(
        self,
        cache: str | Path | Cache,
        split: str = "train",
        *,
        kind: RowKind = "blocks",
        weights: Literal["refuse", "use"] = "refuse",
    ) -> None:
        one_of("weights", weights, ("refuse", "use"))
        self._kind: RowKind = one_of("kind", kind, ("blocks", "documents"))
        self._cache = opened(cache)
        refuse_preference(content_of(self._cache), "PackedDataset")
        instance("split", split, str, "the name of a split")
        self._split = split
        self._weighted = weights == "use"
        self._rows: Any = self._cache.blocks(split) if kind == "blocks" else self._cache.documents(split)
        check_weights(weighted=self._rows.weighted, wanted=self._weighted)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<PackedDataset of {self._cache!r}, split '{self._split}': {len(self):,} {self._kind}>"

    def __getitem__(self, index: int) -> Item:
        """One block or document; a negative index counts from the end.

        Raises:
            IndexError: there is none of this number.
            CheckError: the row is not what its digest says.

        """
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """Several in one read, in the order asked."""
        asked = np.array([operator.index(index) for index in indices], np.int64)
        size = len(self)
        if np.any((asked < -size) | (asked >= size)):
            raise IndexError(f"index out of range for {size} {self._kind}")
        numbers = np.where(asked < 0, asked + size, asked)
        found = self._rows.locate(numbers)
        columns: dict[str, Any] = {
            name: [values.astype(np.int64) for values in found.values(name)] for name in ("input_ids", "labels")
        }
        if self._weighted:
            columns["loss_weights"] = [values.astype(np.float32) for values in found.values("loss_weights")]
        columns["num_trained"] = np.array(found.values("num_trained"), np.int64)
        if self._kind == "blocks":
            for name in ("position_ids", "seq_lengths"):
                columns[name] = [values.astype(np.int64) for values in found.values(name)]
        else:
            lengths = np.array(found.values("length"), np.int64)
            sources, rows = (column[numbers] for column in self._origins)
            columns |= {"position_ids": [np.arange(length) for length in lengths], "seq_lengths": lengths[:, None]}
            columns |= {"doc_id": np.array(found.values("doc_id"), np.int64), "row": rows, "source": sources}
        of_rows = zip(*columns.values(), strict=True)
        return [Item(zip(columns, map(torch.as_tensor, values), strict=True)) for values in of_rows]

    def __getstate__(self) -> dict[str, Any]:
        weights = "use" if self._weighted else "refuse"
        return {"cache": self._cache, "split": self._split, "kind": self._kind, "weights": weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @cached_property
    def _origins(self) -> tuple[Int64, Int64]:
        found: tuple[Int64, Int64] = self._rows.origins()
        return found


def collate(items: Sequence[Item]) -> dict[str, Any]:
    """Blocks or documents of :class:`PackedDataset` as one flattened micro-batch, as a DataLoader makes it by itself.

    The form is that of :class:`PackedLoader` with ``flatten=True``. For a ``collate_fn`` that other trainers ask for.

    Raises:
        ValueError: no blocks.

    """
    if not items:
        raise ValueError("items is empty; expected blocks of a PackedDataset")
    flat: dict[str, Any] = {
        name: torch.cat([item[name] for item in items]).unsqueeze(0)
        for name in ("input_ids", "labels", "position_ids", "loss_weights")
        if name in items[0]
    }
    lengths = torch.cat([item["seq_lengths"] for item in items])
    bounds = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    longest = int(lengths.max())
    return {
        **flat,
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds.clone(),
        "max_length_q": longest,
        "max_length_k": longest,
    }


class StepDataset(IterableDataset[Any]):
    """Steps of a loader; ``state_dict`` and ``load_state_dict`` are what stateful frameworks look for.

    Iterating gives the rest of the current epoch, or the next epoch where nothing is left of it: never an empty pass.
    Leave the loader's own iteration alone meanwhile; its other methods may be used.

    Workers of a DataLoader share the steps, and every number of workers gives the same steps in the same order: of W
    workers, worker w makes every W-th step from the w-th on. Each keeps its own state, so use torchdata's
    ``StatefulDataLoader``, which saves and restores the states of as many workers. Workers that persist go on with the
    next epoch; others begin where the dataset stands, so call ``loader.set_epoch(n)`` before each.

    Example:
        >>> StatefulDataLoader(StepDataset(loader), batch_size=None)  # torchdata  # doctest: +SKIP
        >>> Trainer().fit(module, StepDataset(loader))  # Lightning: without a DataLoader around it  # doctest: +SKIP

    A Lightning module loops over a step's micro-batches under manual optimization.

    Args:
        loader: says everything else: sizes, rank, order, form. Where workers have none of `torch.distributed`, as those
            that are spawned, it is opened with `rank` and `world_size`.
        transform: makes of each step what is given in its place, in the worker that read it. Without one, reading needs
            no workers: the loader reads ahead in a thread.

    """

    def __init__(self, loader: PackedLoader, transform: Callable[[Step], Any] | None = None) -> None:
        self.loader = instance("loader", loader, PackedLoader, "a PackedLoader")
        if transform is not None:
            function("transform", transform, "a function of a step")
        self._transform = transform
        self._epoch = loader.epoch
        self._taken = 0  # steps returned of that epoch
        self._first: int | None = None  # in a worker, index of the step that its iteration began with

    def __iter__(self) -> Iterator[Any]:
        """Begin or go on with an epoch."""
        if self._first is None and not self.loader.steps_left:
            deque(self.loader, maxlen=0)  # being asked once more, it goes on to the next epoch
        return self._steps(get_worker_info())

    def __len__(self) -> int:
        """Steps of the whole current epoch, those already returned among them; the global batch size of now is used."""
        return self._taken_of_epoch() + self.loader.steps_left

    def __repr__(self) -> str:
        return f"<StepDataset of {self.loader!r}>"

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, and how many steps of its epoch were returned. The same on every rank."""
        return {"reader": self.loader.state_dict(), "taken": self._taken_of_epoch(), "first": self._first}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state was saved; see :meth:`PackedLoader.load_state_dict`.

        Raises:
            CheckError: the state is damaged, or not one of a loader like this.

        """
        if not isinstance(state, dict) or set(state) != {"reader", "taken", "first"}:
            raise CheckError("state of steps: expected reader, taken and first", hint=_HINT)
        for name, least in (("taken", 0), ("first", None)):
            number = state[name]
            if number != least and (type(number) is not int or not 0 <= number < 2**63):
                raise CheckError(f"state of steps: expected a number of steps as {name}, found {number!r}", hint=_HINT)
        self.loader.load_state_dict(state["reader"])
        self._epoch, self._taken, self._first = self.loader.epoch, state["taken"], state["first"]

    def _steps(self, worker: Any) -> Iterator[Any]:
        steps: Iterator[Step] = iter(self.loader)
        if worker is not None:
            self._first = self.loader.counters.steps if self._first is None else self._first
            steps = self.loader.every(worker.num_workers, worker=worker.id, first=self._first)
        for step in steps:
            self._taken = self._taken + 1 if step.epoch == self._epoch else 1
            self._epoch = step.epoch
            yield step if self._transform is None else self._transform(step)
        self._first = None

    def _taken_of_epoch(self) -> int:
        """Steps returned of the epoch the loader is in, which is a new one once the old one ended."""
        return self._taken if self.loader.epoch == self._epoch else 0


def _collated(items: Sequence[Item], **_: Any) -> dict[str, Any]:
    return collate(items)


def _refuse_collation(_: Any, **__: Any) -> NoReturn:
    raise TypeError("a step is a batch already: DataLoader(StepDataset(loader), batch_size=None)")


# What a DataLoader makes of several items where it is given no function of its own.
default_collate_fn_map[Item] = _collated
default_collate_fn_map[Step] = _refuse_collation
