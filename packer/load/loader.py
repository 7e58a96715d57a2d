"""The reader of a training loop: steps in a fixed order, resumable and elastic."""

import warnings
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, TypeAlias

import msgspec
import numpy as np
import torch

from packer.batches import Int64
from packer.errors import CheckError, UsageError
from packer.load.arguments import MOST, function, instance, one_of, opened, resolve_rank, whole
from packer.load.batch_format import batch_format
from packer.load.batching import Batching, BatchingName, name_of, named
from packer.load.layouts import layout_of
from packer.load.mixture import Mixture
from packer.load.order import OrderKind
from packer.load.placement import placement_for
from packer.load.read_ahead import MadeStep, Prefetch, StepMaker
from packer.load.reading import Assignment, EpochSummary, StepReader, check_weights
from packer.load.row_source import RowSource, check_room
from packer.load.state import Counters, ReaderState, restore
from packer.load.step import Step
from packer.load.steps import PADDING_ROW, End, Planned, check_batch_size, steps_left
from packer.store.cache import Cache

Schedule: TypeAlias = Callable[[int, int], int]
"""From the index of a step and the size of the one before it to its size."""


class PackedLoader:
    """Steps of packed blocks, the same for any number of ranks, micro-batches, workers and any prefetch.

    Sizes are counted in blocks. The order of an epoch depends on the cache's content, `seed` and the epoch, nothing
    else; a step takes the next `global_batch_size` blocks of it, each rank a contiguous share, each micro-batch a
    contiguous part of the share. With another `batching`, steps are made of documents and everything else stays.

    Iterating gives the rest of the current epoch and then stops; iterating again gives the next epoch. A loader that
    was restored at the very end of an epoch gives no step the first time. So the loop that resumes exactly is::

        while loader.epoch < num_epochs:
            for step in loader:
                for micro_batch in step:
                    loss = summed_loss(model, micro_batch) / step.num_items_in_batch
                    loss.backward()
                ...
                checkpoint["reader"] = loader.state_dict()

    :meth:`endless` runs through epochs without a pause. One iteration at a time: beginning another ends the first. It
    pickles with its place, so that another process goes on where this one stands.

    Args:
        cache: folder of a cache, an open one, or a :class:`packer.load.Mixture` of several.
        split: name of the split.
        micro_batch_size: blocks of a micro-batch; documents or tokens with another `batching`.
        global_batch_size: the same of a step over all ranks, a multiple of ``micro_batch_size * world_size``.
        schedule: from a step's index and the size of the one before it to its size; step 0 is asked with
            `global_batch_size`. It must be pure: it is called ahead of time, in another thread.
        batching: ``packed``; or from documents ``padded``, ``padding_free``, ``token_budget``, or a value of
            :mod:`packer.load.batching` that says more.
        cutoff_len: documents are read up to so many tokens. What is cut has no terminator. Documents with no trained
            token among them are part of no epoch: a warning counts them, and :attr:`untrained` names them.
        rank: this process; None takes `torch.distributed`'s, or 0 of 1 where that is not initialised.
        world_size: number of processes; given together with `rank`.
        seed: of the order.
        order: ``random``; ``sequential``, as stored, every epoch alike; or of documents ``length_bucketed``, random
            with neighbours of about one length.
        end: what becomes of the blocks an epoch has left over when they are fewer than a step. ``drop`` leaves them
            out and names them in :attr:`left_out`. ``pad`` fills the step with fully masked rows of the pad id: sums of
            losses and `num_items_in_batch` do not change, a mean over rows does, and the mean over a micro-batch of
            nothing but such rows is not a number. ``wrap`` takes the first blocks of the next epoch's order and does
            not give them again in that epoch.
        device: ``cpu`` or ``cuda``; None is ``cpu``. For cuda, copies run from pinned memory on a side stream.
        flatten: of blocks, True gives one row a micro-batch, for variable-length attention; False gives B rows.
        labels: ``unshifted``, for models that shift, or ``shifted``: under the name ``shift_labels``.
        weights: ``use`` adds ``loss_weights``; ``refuse`` raises where the cache holds fractional weights.
        columns: names of the columns that micro-batches have; None is all of the form. Without ``position_ids`` a third
            of the bytes is saved, where the model needs no positions or makes its own.
        prefetch: steps made ahead in one background thread; 0 makes them when asked for. Small steps are made several
            at a time.

    Micro-batches, B rows of L tokens, S sequences, a padding run being one:

    | columns | packed | packed, not flattened | padded | padding_free |
    | --- | --- | --- | --- | --- |
    | input_ids, labels, position_ids | int64 [1, B·L] | int64 [B, L] | int64 [B, longest] | int64 [1, tokens] |
    | cu_seq_lens_q, cu_seq_lens_k | int32 [S + 1] | | | int32 [S + 1] |
    | max_length_q, max_length_k | int | | | int |
    | document_ids | | int32 [B, L] | | |
    | attention_mask | | | int64 [B, longest] | |
    | loss_weights, with ``weights="use"`` | float32, as input_ids | | | |

    With ``labels="shifted"``, shift_labels and shift_loss_weights stand in place of labels and loss_weights.

    Raises:
        UsageError: sizes that cannot be divided among ranks, loss weights nobody uses, several processes that would
            read the same, caches that cannot be mixed, documents no micro-batch has room for.
        InputError: the split has no blocks.
        ValueError, TypeError: an argument outside its values, or of another type.

    """

    def __init__(
        self,
        cache: str | Path | Cache | Mixture,
        *,
        split: str = "train",
        micro_batch_size: int,
        global_batch_size: int,
        schedule: Schedule | None = None,
        batching: Batching | BatchingName = "packed",
        cutoff_len: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        order: OrderKind = "random",
        end: End = "drop",
        device: torch.device | str | None = None,
        flatten: bool = True,
        labels: Literal["unshifted", "shifted"] = "unshifted",
        weights: Literal["refuse", "use"] = "refuse",
        columns: Collection[str] | None = None,
        prefetch: int = 2,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name not in {"self", "cache"}}
        one_of("order", order, ("random", "sequential", "length_bucketed"))
        one_of("end", end, ("drop", "pad", "wrap"))
        one_of("labels", labels, ("unshifted", "shifted"))
        one_of("weights", weights, ("refuse", "use"))
        instance("split", split, str, "the name of a split")
        instance("flatten", flatten, bool, "True or False")
        if schedule is not None:
            function("schedule", schedule, "a function of a step's index and the size before it")
        micro_batch_size = whole("micro_batch_size", micro_batch_size, least=1, most=MOST)
        global_batch_size = whole("global_batch_size", global_batch_size, most=MOST)
        prefetch = whole("prefetch", prefetch, least=0)
        seed = whole("seed", seed)
        cutoff_len = None if cutoff_len is None else whole("cutoff_len", cutoff_len, least=2, most=MOST)
        made = named(batching)
        form = batch_format(made, flatten=flatten, labels=labels, weighted=weights == "use", columns=columns)
        self._cache = cache if isinstance(cache, Mixture) else opened(cache)
        self._new_source = partial(
            RowSource, self._cache, split, batching=made, cutoff_len=cutoff_len, seed=seed, order=order, end=end
        )
        self._source = self._new_source()
        rows = self._source.rows
        check_weights(weighted=rows.weighted, wanted=form.weighted)
        check_room(rows, made, micro_batch_size=micro_batch_size)
        own_rank, ranks = resolve_rank(rank, world_size)
        self._assignment = Assignment(rank=own_rank, world_size=ranks, micro_batch_size=micro_batch_size)
        self._depth = prefetch
        self._size_of = None if schedule is None else partial(self._schedule_size, schedule)
        self._placement = placement_for(device)
        self._reader = StepReader(
            rows,
            layout_of(made, block_len=self._source.block_len, pad_id=self._source.pad_id, form=form),
            batching=made,
            assignment=self._assignment,
            form=form,
            placement=self._placement,
        )
        self._maker = StepMaker(self._source, self._reader, self._placement, size_of=self._size_of, world_size=ranks)
        self._state = ReaderState(
            fingerprint=self._source.fingerprint,
            split=split,
            batching=name_of(made),
            cutoff_len=cutoff_len,
            order=order,
            seed=seed,
            end=end,
            batch_size=self._checked(global_batch_size),
            opened_batch_size=global_batch_size,
            shares=self._source.shares,
            taken=self._source.taken(epoch=0, cursor=0),
        )
        if len(self.untrained):
            warnings.warn(
                f"{len(self.untrained)} of {len(rows)} documents of split '{split}' have no trained token among their "
                f"first {cutoff_len} and are left out; loader.untrained names them",
                stacklevel=2,
            )
        self._left_out: Int64 = np.zeros(0, np.int64)
        self._ahead: Prefetch[MadeStep] | None = None
        self._iteration: object = None

    @property
    def epoch(self) -> int:
        """The epoch the next step begins in, unless this one has none left."""
        return self._state.epoch

    @property
    def num_blocks(self) -> int:
        """Blocks of an epoch; documents where steps are made of them."""
        return self._source.num_items

    @property
    def global_batch_size(self) -> int:
        """Size of the last step that was returned, or of the next one where it was set since."""
        return self._state.batch_size

    @property
    def block_len(self) -> int:
        """Tokens of a block; 0 where steps are made of documents."""
        return self._source.block_len

    @property
    def end(self) -> End:
        """What becomes of the blocks an epoch has left over."""
        return self._state.end

    @property
    def world_size(self) -> int:
        """Number of processes that steps are divided among."""
        return self._assignment.world_size

    @property
    def counters(self) -> Counters:
        """What was returned since the beginning, over all ranks: steps, rows, trained targets, tokens, positions."""
        return self._state.counters

    @property
    def left_out(self) -> Int64:
        """The blocks that ``drop`` left out of the last epoch that ended.  # int64[n]"""
        return self._left_out

    @property
    def untrained(self) -> Int64:
        """The documents that no step holds, as `cutoff_len` leaves them without a trained token.  # int64[n]"""
        return self._source.rows.untrained

    def __len__(self) -> int:
        """Steps that iterating gives from here: those left in the current epoch."""
        return self.steps_until(self._state.epoch + 1)

    def steps_until(self, epoch: int) -> int:
        """Steps from here on that begin before an epoch does: what training up to it takes.

        Nothing is read for it. With a schedule or a token budget every step is planned; else it is arithmetic.
        """
        epoch, state = whole("epoch", epoch), self._state
        if self._size_of is not None or state.batching == "token_budget":
            return sum(1 for _ in self._planned_anew(last_epoch=epoch - 1))
        left = epoch - state.epoch
        return steps_left(
            num_items=self.num_blocks, cursor=state.cursor, size=state.batch_size, end=state.end, num_epochs=left
        )

    def outlook(self) -> EpochSummary:
        """What iterating from here gives, counted without reading rows. Ends a running iteration."""
        self.close()
        return self._reader.summary(planned.plan for planned in self._planned_anew(last_epoch=self._state.epoch))

    def __iter__(self) -> Iterator[Step]:
        return self._steps(through_epochs=False)

    def endless(self) -> Iterator[Step]:
        """Steps without end, from one epoch into the next."""
        return self._steps(through_epochs=True)

    def __getitem__(self, index: object) -> NoReturn:
        """What a DataLoader around a loader asks for, and there is not.

        Raises:
            UsageError: steps have no number to ask for.

        """
        raise UsageError(
            "a PackedLoader gives steps by iterating, not by number: it takes no DataLoader around it",
            hint="write `for step in loader`; a framework that needs a DataLoader takes "
            "DataLoader(packer.load.StepDataset(loader), batch_size=None)",
        )

    def doc_ids(self, step: Step) -> list[Int64]:
        """Identity of the documents in each row of a step, in the order of ``step.block_ids``; of a padding row none.

        What :func:`packer.load.example_seed` wants: it is the document's own, whatever rank or cache it is read from.

        Returns:
            int64[P] for a block of P pieces, int64[1] for a document

        """
        real = instance("step", step, Step, "a step of this loader").block_ids != PADDING_ROW
        found = iter(self._source.rows.locate(step.block_ids[real]).doc_ids())
        return [next(found) if is_real else np.zeros(0, np.int64) for is_real in real.tolist()]

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, counting the steps it has returned, not those made ahead. The same on every rank."""
        return self._state.to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state was saved, with any world size and micro-batch size. Ends a running iteration.

        A size that :meth:`set_global_batch_size` or a schedule had changed is taken over, unless this loader was opened
        with another `global_batch_size` than the one that saved the state: then that was the wish.

        Raises:
            CheckError: the state is damaged, or belongs to other data, another split, batching, cutoff_len, order, seed
                or end.
            UsageError: the size cannot be divided among these ranks.

        """
        restored = restore(state, reader=self._state, num_items=self.num_blocks)
        try:
            self._checked(restored.batch_size)
        except UsageError as error:
            hint = f"{error.hint}; a loader opened with another global_batch_size goes on with that one"
            raise UsageError(f"reader state: {error.message}", hint=hint) from None
        self.close()
        try:
            self._source.resume(restored)
        except ValueError as error:
            raise CheckError(f"reader state: {error}", hint="pass what state_dict() returned, unchanged") from None
        self._state = restored
        self._left_out = np.zeros(0, np.int64)

    def set_global_batch_size(self, global_batch_size: int) -> None:
        """Change the size from the next step on; steps made ahead are made again. A schedule goes on from it.

        Raises:
            UsageError: the size is no whole number of micro-batches.

        """
        size = self._checked(whole("global_batch_size", global_batch_size, most=MOST))
        self._stop_ahead()
        self._state = msgspec.structs.replace(self._state, batch_size=size)

    def close(self) -> None:
        """Stop the background thread and end the running iteration. The loader can be iterated again."""
        self._iteration = None
        self._stop_ahead()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"cache": self._cache, "arguments": self._arguments, "state": self.state_dict()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__(saved["cache"], **saved["arguments"])  # type: ignore[misc]
        self.load_state_dict(saved["state"])

    def _steps(self, *, through_epochs: bool) -> Iterator[Step]:
        self.close()
        iteration = self._iteration = object()
        last_epoch = None if through_epochs else self._state.epoch
        while True:  # once, and once more after each change of the batch size
            ahead = self._ahead = Prefetch(self._maker.made(self._state, last_epoch=last_epoch), depth=self._depth)
            try:
                for made in ahead:
                    if self._iteration is not iteration or self._ahead is not ahead:
                        break  # changed while this waited, by a signal's handler
                    self._placement.receive(made.step.micro_batches, made.mark)
                    self._state = made.state
                    if made.left_out is not None:
                        self._left_out = made.left_out
                    yield made.step
                    if self._iteration is not iteration or self._ahead is not ahead:
                        break
                else:
                    if self._iteration is iteration and self._ahead is ahead:
                        break
            finally:
                ahead.close()
            if self._iteration is not iteration:
                raise RuntimeError("this iteration was ended by close, load_state_dict or another one")
        if last_epoch is not None and self._state.epoch == last_epoch:
            self._left_out = self._source.rest(epoch=last_epoch, cursor=self._state.cursor)
            taken = self._source.taken(epoch=last_epoch + 1, cursor=0)
            self._state = msgspec.structs.replace(self._state, epoch=last_epoch + 1, cursor=0, taken=taken)

    def _planned_anew(self, *, last_epoch: int) -> Iterator[Planned]:
        """Steps from here on; the background thread may be using the source of this loader."""
        source = self._new_source()
        source.resume(self._state)
        return source.steps(self._state, size_of=self._size_of, last_epoch=last_epoch)

    def _schedule_size(self, schedule: Schedule, index: int, size: int) -> int:
        return self._divisible(whole("the schedule's size", schedule(index, size), most=MOST))

    def _checked(self, size: int) -> int:
        self._source.check_size(size)
        return self._divisible(size)

    def _divisible(self, size: int) -> int:
        own = self._assignment
        check_batch_size(size, micro_batch_size=own.micro_batch_size, world_size=own.world_size)
        return size

    def _stop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
