"""The reader of a training loop: steps in a fixed order, resumable and elastic."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import msgspec
import torch

from packer.errors import InputError
from packer.load.device import placement_for
from packer.load.order import (
    End,
    EpochOrder,
    OrderKind,
    StepPlan,
    check_batch_size,
    check_fits,
    plan_step,
    steps_left,
)
from packer.load.prefetch import Prefetch
from packer.load.ranks import resolve_rank
from packer.load.reading import Deal, Form, StepReader, check_weights
from packer.load.state import Counters, ReaderState, restore
from packer.load.step import Step
from packer.store.cache import Cache

BatchSize: TypeAlias = int | Callable[[int], int]
"""Blocks of a step over all ranks: a number, or a schedule from the step's index to a number."""


class PackedLoader:
    """Steps of packed blocks, the same for any number of ranks, micro-batches, workers and any prefetch.

    Sizes are counted in blocks. The order of an epoch depends on the cache's content, `seed` and the epoch, nothing
    else; a step takes the next `global_batch_size` blocks of it, each rank a contiguous share, each micro-batch a
    contiguous part of the share.

    Iterating gives the rest of the current epoch and then stops; iterating again gives the next epoch. A loader that
    was restored at the very end of an epoch gives no step the first time. So the loop that resumes exactly is::

        while loader.epoch < num_epochs:
            for step in loader:
                for micro_batch in step:
                    loss = summed_loss(model, micro_batch) / step.num_items_in_batch
                    loss.backward()
                ...
                checkpoint["reader"] = loader.state_dict()

    :meth:`endless` runs through epochs without a pause. One iteration at a time: beginning another ends the first.

    Args:
        cache: folder of a cache, or an open one.
        split: name of the split.
        micro_batch_size: blocks of a micro-batch.
        global_batch_size: blocks of a step over all ranks, a multiple of ``micro_batch_size * world_size``; or a
            function from the index of a step to that number. It must be pure: it is called ahead of time, in the
            background thread, and after a resume with later indices only.
        rank: this process; None takes `torch.distributed`'s, or 0 of 1 where that is not initialised.
        world_size: number of processes; given together with `rank`.
        seed: of the order.
        order: ``random``, or ``sequential``: as stored, every epoch alike.
        end: what becomes of the blocks an epoch has left over when they are fewer than a step. ``drop`` leaves them
            out. ``pad`` fills the step with fully masked rows of the pad id: sums of losses and `num_items_in_batch`
            do not change, a mean over rows does, and the mean over a micro-batch of nothing but such rows is not a
            number. ``wrap`` takes the first blocks of the next epoch's order and does not give them again in that
            epoch.
        device: ``cpu`` or ``cuda``; None is ``cpu``. For cuda, copies run from pinned memory on a side stream.
        flatten: True gives one row a micro-batch, for variable-length attention; False gives B rows. See Returns.
        labels: ``unshifted``, for models that shift, or ``shifted``: under the name ``shift_labels``.
        weights: ``use`` adds ``loss_weights``; ``refuse`` raises where the cache holds fractional weights.
        prefetch: steps made ahead in one background thread; 0 makes them when asked for.

    Flattened micro-batches, L the block length, S the sequences of the micro-batch, a padding run being one:

    | name | type |
    | --- | --- |
    | input_ids, labels, position_ids | int64 [1, B·L] |
    | cu_seq_lens_q, cu_seq_lens_k | int32 [S + 1] |
    | max_length_q, max_length_k | int |
    | loss_weights, with ``weights="use"`` | float32 [1, B·L] |

    Otherwise: input_ids, labels, position_ids int64 [B, L], document_ids int32 [B, L], loss_weights float32 [B, L].
    With ``labels="shifted"``, shift_labels and shift_loss_weights stand in place of labels and loss_weights.

    Raises:
        UsageError: sizes that cannot be dealt, loss weights nobody uses, several processes that would read the same.
        InputError: the split has no blocks.
        ValueError: an argument outside its values.

    """

    def __init__(
        self,
        cache: str | Path | Cache,
        *,
        split: str = "train",
        micro_batch_size: int,
        global_batch_size: BatchSize,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        order: OrderKind = "random",
        end: End = "drop",
        device: torch.device | str | None = None,
        flatten: bool = True,
        labels: Literal["unshifted", "shifted"] = "unshifted",
        weights: Literal["refuse", "use"] = "refuse",
        prefetch: int = 2,
    ) -> None:
        _check_arguments(order=order, end=end, labels=labels, weights=weights)
        if micro_batch_size < 1 or prefetch < 0:
            raise ValueError("micro_batch_size must be at least 1 and prefetch at least 0")
        opened = Cache.open(Path(cache)) if isinstance(cache, str | Path) else cache
        blocks = opened.blocks(split)
        if not len(blocks):
            raise InputError(f"split '{split}' of this cache has no blocks")
        check_weights(blocks, weighted=weights == "use")
        own_rank, ranks = resolve_rank(rank, world_size)
        self._deal = Deal(rank=own_rank, world_size=ranks, micro_batch_size=micro_batch_size)
        self._order = EpochOrder(
            fingerprint=opened.manifest.content_fingerprint, seed=seed, num_blocks=len(blocks), kind=order
        )
        self._end: End = end
        self._depth = prefetch
        self._state = ReaderState(fingerprint=self._order.fingerprint, split=split, order=order, seed=seed)
        self._placement = placement_for(device)
        form = Form(flatten=flatten, shifted=labels == "shifted", weighted=weights == "use")
        self._reader = StepReader(opened, split, deal=self._deal, form=form, placement=self._placement)
        self._batch_size = self._checked(global_batch_size)
        self._feed: Prefetch[_Made] | None = None
        self._iteration: object = None

    @property
    def epoch(self) -> int:
        """The epoch the next step begins in, unless this one has none left."""
        return self._state.epoch

    @property
    def num_blocks(self) -> int:
        """Blocks of an epoch."""
        return self._order.num_blocks

    def __len__(self) -> int:
        """Steps that iterating gives from here: those left in the current epoch."""
        state = self._state
        if callable(self._batch_size):
            return sum(1 for _ in self._plans(state, last_epoch=state.epoch))
        return steps_left(num_blocks=self.num_blocks, cursor=state.cursor, size=self._batch_size, end=self._end)

    def __iter__(self) -> Iterator[Step]:
        return self._steps(through_epochs=False)

    def endless(self) -> Iterator[Step]:
        """Steps without end, from one epoch into the next."""
        return self._steps(through_epochs=True)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, counting the steps it has returned, not those made ahead. The same on every rank."""
        return self._state.to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state was saved, with any world size and batch sizes. Ends a running iteration.

        Raises:
            CheckError: the state is damaged, or belongs to other data, another split, order or seed.

        """
        restored = restore(state, reader=self._state, num_blocks=self.num_blocks)
        self.close()
        self._state = restored

    def set_global_batch_size(self, global_batch_size: BatchSize) -> None:
        """Change the size from the next step on; steps made ahead are made again.

        Raises:
            UsageError: the size cannot be dealt into whole micro-batches.

        """
        self._batch_size = self._checked(global_batch_size)
        self._stop_feed()

    def close(self) -> None:
        """Stop the background thread and end the running iteration. The loader can be iterated again."""
        self._iteration = None
        self._stop_feed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _steps(self, *, through_epochs: bool) -> Iterator[Step]:
        self.close()
        iteration = self._iteration = object()
        last_epoch = None if through_epochs else self._state.epoch
        while True:  # once, and once more after each change of the batch size
            feed = self._feed = Prefetch(self._made(self._state, last_epoch), depth=self._depth)
            try:
                for step, mark, state in feed:
                    self._placement.receive(step.micro_batches, mark)
                    self._state = state
                    yield step
                    if self._iteration is not iteration:
                        raise RuntimeError("this iteration was ended by close, load_state_dict or another one")
                    if self._feed is not feed:
                        break
                else:
                    break
            finally:
                feed.close()
        if self._state.epoch == last_epoch:
            self._state = self._state.at_next_epoch()

    def _made(self, state: ReaderState, last_epoch: int | None) -> Iterator["_Made"]:
        """Runs in the background thread; touches nothing the consumer writes."""
        for plan, after in self._plans(state, last_epoch=last_epoch):
            step = self._reader.read(plan, index=after.counters.steps - 1)
            yield _Made(step, self._placement.mark(), after)

    def _plans(self, state: ReaderState, *, last_epoch: int | None) -> Iterator[tuple[StepPlan, ReaderState]]:
        """Plans from a state on, each with the state after it."""
        batch_size = self._batch_size
        while last_epoch is None or state.epoch == last_epoch:
            size = self._dealable(batch_size(state.counters.steps)) if callable(batch_size) else batch_size
            plan = plan_step(self._order, epoch=state.epoch, cursor=state.cursor, size=size, end=self._end)
            if plan is None:
                if last_epoch is not None:
                    return
                state = state.at_next_epoch()
                continue
            state = self._after(state, plan)
            yield plan, state

    def _after(self, state: ReaderState, plan: StepPlan) -> ReaderState:
        counters = Counters(
            steps=state.counters.steps + 1,
            blocks=state.counters.blocks + plan.num_blocks,
            trained=state.counters.trained + self._reader.trained(plan),
        )
        return msgspec.structs.replace(state, epoch=plan.next_epoch, cursor=plan.next_cursor, counters=counters)

    def _checked(self, batch_size: BatchSize) -> BatchSize:
        if callable(batch_size):
            return batch_size
        if self._end == "drop":
            check_fits(size=batch_size, num_blocks=self.num_blocks)
        return self._dealable(batch_size)

    def _dealable(self, size: int) -> int:
        check_batch_size(size, micro_batch_size=self._deal.micro_batch_size, world_size=self._deal.world_size)
        return size

    def _stop_feed(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()


class _Made(NamedTuple):
    step: Step
    mark: Any
    """The placement's: what the consumer waits for."""

    state: ReaderState
    """Where the loader stands once the step was returned."""


def _check_arguments(**arguments: str) -> None:
    for name, value in arguments.items():
        if value not in _VALUES[name]:
            raise ValueError(f"{name} {value!r}: expected one of {', '.join(_VALUES[name])}")


_VALUES = {
    "order": ("random", "sequential"),
    "end": ("drop", "pad", "wrap"),
    "labels": ("unshifted", "shifted"),
    "weights": ("refuse", "use"),
}
