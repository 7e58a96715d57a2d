"""Who reads which rows of a step, and that all ranks read the same data: arithmetic that they do alike, and compared.

The order and the size alone say which rows a step has. Who reads them is free, and no result, state or count depends
on it; but the slowest rank sets the pace, and attention costs the square of a sequence's length. So rows are dealt by
estimated work, Σ (balance · n + n²) over sequences of n tokens: `balance` is the length at which attention costs as
much as everything else, 12 times the hidden size of a model like Llama.

1. The longest row first goes to the micro-batch with the least work that has room for it (Graham's LPT rule): for as
   many rows as each has, or for a budget of tokens. Padded micro-batches stay those of the order.
2. The ranks get the W micro-batches that take longest, then the next W, and so on, so that they wait for each other
   neither after a micro-batch nor after a step; each time, the rank with the least work so far gets the most.

Worked example, work 9 5 4 8 1 3 of six rows, one a micro-batch, for two ranks: 9 and 8, then 4 and 5, then 3 and 1, so
16 and 14; in the order's own order it would be 18 and 12.

R. L. Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17 (1969).

Ranks that would read different data are refused (:class:`Agreement`). What is compared is in the store through which
`torch.distributed` brought the processes together, and no collective is used. The first rank to begin an iteration
leaves what decides its steps there, and each later one compares its own. So nobody waits for anybody: a loader that
only some ranks open or iterate over cannot hang, whatever the backend is.

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
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import torch

from packer.batches import Int64
from packer.errors import UsageError
from packer.layout import offsets_of
from packer.load.arguments import LoaderOptions
from packer.load.ordered_rows import PADDING_ROW, OrderedRows
from packer.load.ordering import ReaderState


class Share(NamedTuple):
    """One rank's share of a step."""

    parts: list[Int64]
    """Rows of each of its micro-batches; PADDING_ROW for padding."""

    num_slots: int
    """Positions of the whole step, over all ranks, including padding."""


class Dealer:
    """Divides the rows of steps into micro-batches, the same number for each rank."""

    def __init__(self, rows: OrderedRows, options: LoaderOptions) -> None:
        self._rows, self._padded = rows, options.padded
        self._counts_tokens = options.batching == "token_budget"
        self._rank, self._world_size = options.rank, options.world_size
        self._micro_batch_size = options.micro_batch_size
        self._balance = options.balance if options.world_size > 1 else 0

    def share(self, rows: Int64) -> Share:
        """Return this rank's share of the rows of a step, with padding rows at their end."""
        if self._balance or self._counts_tokens:
            groups, of_ranks, num_slots = self._divided(rows)
            return Share([groups[number] for number in of_ranks[self._rank].tolist()], num_slots)
        size = self._micro_batch_size
        if missing := -len(rows) % (size * self._world_size):
            rows = np.append(rows, np.full(missing, PADDING_ROW))
        share = len(rows) // self._world_size
        own = range(self._rank * share, (self._rank + 1) * share, size)
        return Share([rows[first : first + size] for first in own], self._num_slots(rows))

    def _divided(self, rows: Int64) -> tuple[list[Int64], Int64, int]:
        """Return the rows of each micro-batch, those of each rank int64[W, n], and the positions of the whole step."""
        rows = np.append(rows, PADDING_ROW)  # that of place -1
        sides = self._rows.lengths_of_each(rows)
        tokens = sides[:, 0] if self._rows.num_sides == 1 else sides.sum(1)
        of_rows = None  # work of each row; that of padded micro-batches depends on their longest row instead
        if self._balance and self._padded is None:
            of_rows = self._balance * tokens + self._rows.squares(rows, sides)
        groups = self._groups(tokens, of_rows)
        places, sizes = np.concatenate(groups), np.array([len(group) for group in groups])
        firsts = offsets_of(sizes)[:-1]
        if self._padded is None:
            num_slots = int(tokens[places].sum())
            work = None if of_rows is None else np.add.reduceat(of_rows[places], firsts)
        else:
            longest = np.maximum.reduceat(sides.max(1)[places], firsts)
            widths = np.array([self._padded.rounded(each) for each in longest.tolist()])
            slots = self._rows.num_sides * sizes * widths
            num_slots = int(slots.sum())
            work = slots * (self._balance + widths) if self._balance else None
        in_order = np.arange(len(groups)).reshape(-1, self._world_size).T
        of_ranks = in_order if work is None else dealt(work, self._world_size)
        return [rows[group] for group in groups], of_ranks, num_slots

    def num_micro_batches(self, rows: Int64) -> int:
        """Count the micro-batches of one rank."""
        if self._counts_tokens:
            return int(self._divided(rows)[1].shape[1])
        return -(-len(rows) // (self._micro_batch_size * self._world_size))

    def _groups(self, tokens: Int64, work: Int64 | None) -> Sequence[Int64]:
        """Return the places of the rows of each micro-batch, -1 for a padding row; the last row is that of place -1."""
        size, num_ranks, num_rows = self._micro_batch_size, self._world_size, len(tokens) - 1
        if self._counts_tokens:
            work = None if work is None else work[:-1]
            return split_by_tokens(tokens[:-1], work, budget=size, multiple=num_ranks)
        places = np.append(np.arange(num_rows), np.full(-num_rows % (size * num_ranks), -1))
        if work is None or size == 1:
            return [*places.reshape(-1, size)]
        found = filled(work[places], np.ones(len(places), np.int64), room=size, number=len(places) // size)
        assert found is not None, "there is room for every row"
        return [places[group] for group in found]

    def _num_slots(self, rows: Int64) -> int:
        """Count the positions of micro-batches of consecutive rows."""
        if self._rows.block_len:
            return len(rows) * self._rows.block_len
        sides, num_sides, size = self._rows.lengths_of_each(rows), self._rows.num_sides, self._micro_batch_size
        if self._padded is None:
            return int(sides.sum())
        longest = sides.reshape(-1, size * num_sides).max(1)
        return num_sides * size * sum(map(self._padded.rounded, longest.tolist()))


def dealt(work: Int64, world_size: int) -> Int64:
    """Return each rank's micro-batches, a multiple of the ranks.  # int64[W, number of one rank]"""
    descending = np.argsort(-work, kind="stable").reshape(-1, world_size)
    ranks, loads = np.empty_like(descending), np.zeros(world_size, np.int64)
    for of_ranks, groups in zip(ranks, descending, strict=True):
        least_first = np.argsort(loads, kind="stable")
        of_ranks[least_first] = groups
        loads[least_first] += work[groups]
    return ranks.T


def filled(work: Int64, sizes: Int64, *, room: int, number: int) -> list[Int64] | None:
    """Put the row with the most work first into the micro-batch with the least that has room for its size.

    Returns:
        the places of each micro-batch, ascending, that with the most work first; None if not all rows found room
    """
    groups: list[list[int]] = [[] for _ in range(number)]
    loads, full = [(0, i) for i in range(number)], []  # the work of groups with room, as a heap, and of those without
    left, work_of, size_of = [room] * number, work.tolist(), sizes.tolist()
    for place in np.argsort(-work, kind="stable").tolist():
        size, too_full = size_of[place], []
        while loads and left[loads[0][1]] < size:
            too_full.append(heappop(loads))
        if not loads:
            return None
        load, i = loads[0]
        groups[i].append(place)
        left[i] -= size
        if left[i]:
            heapreplace(loads, (load + work_of[place], i))
        else:
            heappop(loads)
            full.append((load + work_of[place], i))
        for each in too_full:
            heappush(loads, each)
    order = sorted(full + loads, key=lambda pair: (-pair[0], pair[1]))
    return [np.array(sorted(groups[i]), np.int64) for _, i in order]


_MOST_PARTS = 16
"""Parts of a budget up to which lengths are rounded to bound the number of micro-batches."""


def split_by_tokens(lengths: Int64, work: Int64 | None, *, budget: int, multiple: int) -> list[Int64]:
    """Divide a step into as few micro-batches of at most `budget` tokens as LPT finds, a `multiple` of the ranks.

    They are filled by `work`, if it is given and all rows then find room; otherwise by tokens. If there are fewer rows
    than micro-batches, some get one padding row.

    Returns:
        for each micro-batch, fullest first, places in the step, ascending; -1 for a padding row
    """
    # Without these bounds, rows of just over half a budget would need about as many attempts as there are rows. Counted
    # in (k + 1)-ths of the budget, rounded down and one less if that is exact, the rows of a micro-batch are less than
    # k + 1 in total, so at most k: of k = 1, at most one row longer than half the budget.
    k = np.arange(1, _MOST_PARTS)
    parts = (((k[:, None] + 1) * lengths - 1) // budget).sum(1)
    number = max(-(-int(lengths.sum()) // budget), 1, *(-(-parts // k)).tolist())
    number += -number % multiple
    while (groups := filled(lengths, lengths, room=budget, number=number)) is None:
        number += multiple
    if work is not None:
        groups = filled(work, lengths, room=budget, number=number) or groups
    return [group if len(group) else np.array([PADDING_ROW]) for group in groups]


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
        self._form = msgspec.to_builtins({name: getattr(options, name) for name in (*names, "labels")})
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
