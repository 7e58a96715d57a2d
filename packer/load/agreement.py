"""Ranks that would read different data are refused, where before each of them read on as it was opened.

What is compared is in the store through which `torch.distributed` brought the processes together, and no collective is
used. The first rank to begin an iteration leaves what decides its steps there, and each later one compares its own. So
nobody waits for anybody: a loader that only some ranks open or iterate over cannot hang, whatever the backend is.

A rank that was first, and so found nothing to compare with, looks again with each of its next steps, until all ranks
have begun or one of them has refused. Where steps are synchronized, as by gradients, that is its second step, before
which the ranks that came later have raised.

Loaders of different ranks belong together by their number, counted among the loaders of a process that read for several
ranks, in the order in which they begin; comparisons of a loader by their number too. An iteration that begins where the
one before it began is the same comparison.
"""

import json
import os
import reprlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
import torch

from packer.errors import UsageError
from packer.load.arguments import LoaderOptions
from packer.load.state import ReaderState

T = TypeVar("T")

_num_loaders: Counter[int] = Counter()
"""Loaders of this process that were compared, by their rank."""

_is_store_inherited = False
"""Whether this process was forked from one that was connected: its connection then belongs to the other."""


class Agreement:
    """Compares one loader with those of the other ranks.

    Where `world_size` is not that of `torch.distributed`, as with tensor parallelism, only the user knows which
    processes train together: a difference is a warning there.
    """

    def __init__(self, options: LoaderOptions) -> None:
        self._rank, self._world_size = options.rank, options.world_size
        names = ("world_size", "micro_batch_size", "global_batch_size", "padded", "balance", "flatten")
        self._form = msgspec.to_builtins({name: getattr(options, name) for name in (*names, "labels", "weights")})
        self._loader: int | None = None
        self._begun: ReaderState | None = None
        self._num_begun = 0
        self._awaited: str | None = None  # the comparison that some ranks have not come to yet

    def checked(self, steps: Iterable[T], state: ReaderState) -> Iterator[T]:
        """Yield the steps of an iteration that begins at a state."""
        if state != self._begun:
            self._compare(str(self._num_begun), state)
            self._begun = state
            self._num_begun += 1
        for step in steps:
            if self._awaited is not None and (store := _store()) is not None:
                self._look(store, self._awaited)
            yield step

    def _compare(self, name: str, state: ReaderState) -> None:
        store = _store() if self._world_size > 1 else None
        if store is None:
            return
        if self._loader is None:
            self._loader = _num_loaders[self._rank]
            _num_loaders[self._rank] += 1
        key = f"packer/{self._loader}/{name}"
        own = {"rank": self._rank, **self._form, **state.to_dict()}
        first = json.loads(store.compare_set(f"{key}/first", "", json.dumps(own)))
        different = [name for name in own if name != "rank" and own[name] != first[name]]
        if different:
            shown = (f"{name} {reprlib.repr(first[name])} and {reprlib.repr(own[name])}" for name in different)
            found = f"the loaders of ranks {first['rank']} and {own['rank']} differ: {'; '.join(shown)}"
            store.compare_set(self._refused, "", found)
        store.add(f"{key}/num_ranks", 1)
        self._look(store, key)

    @property
    def _refused(self) -> str:
        """Key of what a rank found to differ: once there, it holds for all comparisons of these loaders."""
        return f"packer/{self._loader}/refused"

    def _look(self, store: Any, key: str) -> None:
        """Refuse if a rank has found a difference; look no more once all have come."""
        is_complete = store.add(f"{key}/num_ranks", 0) >= self._world_size
        is_refused = store.check([self._refused])
        self._awaited = None if is_complete or is_refused else key
        if not is_refused:
            return
        what = store.get(self._refused).decode()
        hint = (
            "open the loaders of all ranks alike and resume them from one state; one that a single rank reads alone "
            "takes rank=0, world_size=1"
        )
        if self._world_size == torch.distributed.get_world_size():
            raise UsageError(what, hint=hint)
        warnings.warn(f"{what}; {hint}", stacklevel=4)


def _store() -> Any:
    """Return the store of `torch.distributed`; None if this process has none of its own."""
    distributed = torch.distributed
    if _is_store_inherited or not (distributed.is_available() and distributed.is_initialized()):
        return None
    if distributed.get_backend() == "fake":
        return None  # the other ranks do not exist
    return distributed.distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no public name for it


def _note_fork() -> None:
    global _is_store_inherited  # noqa: PLW0603 - a fact of the process
    _is_store_inherited = torch.distributed.is_available() and torch.distributed.is_initialized()


os.register_at_fork(after_in_child=_note_fork)
