"""The reader of a training loop: steps in a fixed order, resumable and elastic."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import EllipsisType, SimpleNamespace
from typing import Any, Literal, NoReturn, Self

import msgspec
import numpy as np
import torch

from packer.batches import Int64
from packer.errors import CheckError
from packer.load.arguments import MOST, instance, whole
from packer.load.batching import Batching
from packer.load.content import Content
from packer.load.figures import Figures, Pace, figures_of
from packer.load.mixture import Mixture, opened_source
from packer.load.options import Schedule, options_of
from packer.load.ordering import OrderKind
from packer.load.plan import End, StepPlan
from packer.load.read_ahead import Prefetch
from packer.load.reading import EpochSummary, StepReader
from packer.load.reference import Reference
from packer.load.row_source import RowSource
from packer.load.state import Counters, ReaderState, restore
from packer.load.step import Step
from packer.read_rules import BatchingName
from packer.store.cache import Cache

_OF_CACHE = {"self", "cache", "cache_dir", "cache_bytes"}


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
                checkpoint["reader"] = loader.state_dict()

    :meth:`endless` runs through epochs without a pause. One iteration at a time: beginning another ends the first. It
    pickles with its place, so that another process goes on where this one stands.

    Args:
        cache: folder or URL of a cache, an open one, or a :class:`packer.load.Mixture` of several.
        split: name of the split.
        micro_batch_size: blocks of a micro-batch; documents or tokens with another `batching`.
        global_batch_size: the same of a step over all ranks, a multiple of ``micro_batch_size * world_size``; None is
            one micro-batch a rank, and so another size on another number of ranks.
        schedule: from a step's index and the size of the one before it to its size, or to a tuple of its size and that
            of its micro-batches; step 0 is asked with `global_batch_size`. It must be pure: it is called ahead of time,
            in another thread.
        batching: ``packed``; or from documents ``padded``, ``padding_free``, ``token_budget``, or a value of
            :mod:`packer.load.batching` that says more. None is what the cache's recipe says under `read`, with its
            cutoff, by default ``packed``; another one than that gives a warning.
        cutoff_len: documents are read up to so many tokens. Those with no trained token there are part of no epoch:
            a warning counts them, and :attr:`untrained` names them.
        rank: this process; None takes `torch.distributed`'s, or 0 of 1 where that is not initialised.
        world_size: number of processes; given together with `rank`.
        seed: of the order.
        order: ``random``; ``sequential``, as stored; ``windowed``, some shards at a time, for a bucket; of documents
            ``length_bucketed``, neighbours of about one length; or a value of :mod:`packer.load.ordering`, as weights.
        end: what becomes of the blocks an epoch has left over when they are fewer than a step. ``drop`` leaves them
            out and names them in :attr:`left_out`. ``pad`` fills the step with fully masked rows of the pad id: sums of
            losses and `num_items_in_batch` do not change, a mean over rows does. ``short`` gives a smaller
            step, with no more such rows than make the micro-batches of all ranks whole: for evaluation. ``wrap`` takes
            the first blocks of the next epoch's order and does not give them again in that epoch.
        drop_last: torch's word for `end`: True is ``drop``, False is ``short``.
        device: ``cpu`` or ``cuda``; None is ``cpu``. For cuda, steps wait in pinned memory; the host waits for no copy.
        flatten: of blocks, True gives one row a micro-batch, for variable-length attention; False gives B rows.
        labels: ``unshifted``, for models that shift, or ``shifted``: under the name ``shift_labels``.
        weights: ``use`` adds ``loss_weights``; ``refuse`` raises where the cache holds fractional weights.
        columns: names of the columns that micro-batches have; None is those of the form, and so is ``...`` among names.
            On request all have ``attention_mask`` and ``special_tokens_mask`` (int64; padding counts as special) and
            ``document_ids`` (int32; each token's sequence). Without ``position_ids`` a third of the bytes is saved.
        prefetch: steps made ahead in one background thread; 0 makes them when asked for.
        reference: what :func:`packer.load.fill_reference` computed of pairs: adds ``ref_chosen_logps`` and its like.
        cache_dir: folder for the shards of a cache in a bucket, as in :meth:`packer.Cache.open`.
        cache_bytes: most bytes of them at a time, such as "200GB"; never more are there.

    Micro-batches, B rows of L tokens, S sequences, a padding run being one:

    | columns | packed | packed, not flattened | padded | padding_free |
    | --- | --- | --- | --- | --- |
    | input_ids, labels, position_ids | int64 [1, B·L] | int64 [B, L] | int64 [B, longest] | int64 [1, tokens] |
    | cu_seq_lens_q, cu_seq_lens_k | int32 [S + 1] | | | int32 [S + 1] |
    | max_length_q, max_length_k | int | | | int |
    | document_ids | | int32 [B, L] | | |
    | attention_mask | | | int64 [B, longest] | |
    | loss_weights, with ``weights="use"`` | float32, as input_ids | | | |

    With ``labels="shifted"``, shift_labels and shift_loss_weights stand in place of labels and loss_weights. Preference
    data has the columns of :mod:`packer.load.sides`, and the unit of everything is the pair.

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
        micro_batch_size: int = 1,
        global_batch_size: int | None = None,
        schedule: Schedule | None = None,
        batching: Batching | BatchingName | None = None,
        cutoff_len: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        order: OrderKind = "random",
        end: End = "drop",
        drop_last: bool | None = None,
        device: torch.device | str | None = None,
        flatten: bool = True,
        labels: Literal["unshifted", "shifted"] = "unshifted",
        weights: Literal["refuse", "use"] = "refuse",
        columns: Collection[str | EllipsisType] | None = None,
        prefetch: int = 2,
        reference: Reference | None = None,
        cache_dir: str | Path | None = None,
        cache_bytes: int | str | None = None,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name not in _OF_CACHE}
        self._cache = opened_source(cache, cache_dir=cache_dir, cache_bytes=cache_bytes)
        caches = self._cache.caches if isinstance(self._cache, Mixture) else (self._cache,)
        self._options = options_of(caches, SimpleNamespace(**self._arguments))
        self._source = RowSource(self._cache, self._options)
        self._reader = StepReader(self._source, self._options)
        self._state = self._source.beginning()
        self._epoch_end: ReaderState | None = None  # where the last epoch that ended did so
        self._ahead: Prefetch[tuple[Step | None, ReaderState]] | None = None
        self._iteration: object = None
        self._pace = Pace()

    @property
    def epoch(self) -> int:
        """The epoch the next step begins in, unless this one has none left."""
        return self._state.epoch

    @property
    def num_blocks(self) -> int:
        """Blocks of the current epoch; documents where steps are made of them."""
        return self._source.length(self._state.epoch)

    @property
    def global_batch_size(self) -> int:
        """Size of the last step that was returned, or of the next one where it was set since."""
        return self._state.batch_size

    @property
    def block_len(self) -> int:
        """Tokens of a block; 0 where steps are made of documents."""
        return self._source.rows.block_len

    @property
    def end(self) -> End:
        """What becomes of the blocks an epoch has left over."""
        return self._state.end

    @property
    def content(self) -> Content:
        """What is read: ``examples``, ``pairs`` or ``rated answers``."""
        return self._source.rows.content

    @property
    def world_size(self) -> int:
        """Number of processes that steps are divided among."""
        return self._options.world_size

    @property
    def counters(self) -> Counters:
        """What was returned since the beginning, over all ranks: steps, rows, trained targets, tokens, positions."""
        return self._state.counters

    def figures(self) -> Figures:
        """What was read so far and how fast: a line to print, numbers for a logger."""
        return figures_of(self._state, self.num_blocks, self._pace)

    @property
    def left_out(self) -> Int64:
        """The blocks that ``drop`` left out of the last epoch that ended.  # int64[n]"""
        return np.zeros(0, np.int64) if self._epoch_end is None else self._source.rest(self._epoch_end)

    @property
    def untrained(self) -> Int64:
        """The documents that `cutoff_len` leaves without a trained token, which no step holds.  # int64[n]"""
        return self._source.rows.untrained

    def __bool__(self) -> bool:
        return True  # `loader or other` is not to count steps

    def __len__(self) -> int:
        """Steps of the whole current epoch at the present global batch size, those already returned among them.

        Raises:
            TypeError: with a schedule, or with a token budget that wraps around: no number holds for every epoch.

        """
        return self._source.steps_of_epoch(self._state)

    @property
    def steps_left(self) -> int:
        """Steps that iterating gives from here: those left in the current epoch."""
        return self.steps_until(self._state.epoch + 1)

    def steps_until(self, epoch: int) -> int:
        """Steps from here on that begin before an epoch does: what training up to it takes. Nothing is read for it."""
        return self._source.steps_until(self._state, whole("epoch", epoch))

    def summary(self) -> EpochSummary:
        """What iterating from here gives, counted without reading rows."""
        return self._reader.summary(self.plans(last_epoch=self._state.epoch))

    def plans(self, *, last_epoch: int | None) -> Iterator[StepPlan]:
        """The steps from here to the end of an epoch, or without end, as plans: no row is read for them."""
        return self._source.steps(self._state, last_epoch=last_epoch)

    def __iter__(self) -> Iterator[Step]:
        return self._steps(through_epochs=False)

    def endless(self) -> Iterator[Step]:
        """Steps without end, from one epoch into the next."""
        return self._steps(through_epochs=True)

    def every(self, num_workers: int, *, worker: int, first: int) -> Iterator[Step]:
        """A worker's share of what iterating gives: every n-th step, from the step of index `first` + `worker` on."""
        return self._steps(through_epochs=False, worker=(first, worker, num_workers))

    def __getitem__(self, index: Any) -> NoReturn:
        """Refuse to be a dataset, as a DataLoader would have it, and say what to do instead."""
        raise TypeError(
            "a PackedLoader has no items, it gives steps: iterate over it without a DataLoader. A framework that wants "
            "a dataset takes packer.load.StepDataset(loader), one with a sampler packer.PackedDataset(cache)"
        )

    def __repr__(self) -> str:
        state, rank = self._state, self._options.rank
        return (
            f"<PackedLoader of {self._source.unit} of {self._cache!r}, split '{state.split}': rank {rank} of "
            f"{self.world_size}, global batch size {state.batch_size:,}, {state.counters.steps:,} steps returned, in "
            f"epoch {state.epoch}>"
        )

    def doc_ids(self, step: Step) -> list[Int64]:
        """Identity of the documents in each row of a step, in the order of ``step.block_ids``; of a padding row none.

        What :func:`packer.load.example_seed` wants: it is the document's own, whatever rank or cache it is read from.
        # int64[P] of a block of P pieces, int64[1] of a document, int64[2] of a pair
        """
        return self._source.rows.doc_ids(instance("step", step, Step, "a step of this loader").block_ids)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, counting the steps it has returned, not those made ahead. The same on every rank."""
        return self._state.to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state was saved, with any world size and micro-batch size. Ends a running iteration.

        A size that a call or a schedule had changed is taken over, unless this loader was opened with another one than
        the loader that saved the state: then that was the wish. A size of micro-batches that does not divide a step
        among these ranks is left for this loader's own. With other padding or another schedule it goes on its own way,
        and warns.

        Raises:
            CheckError: the state is damaged, or belongs to other data, another split, batching, cutoff_len, order, seed
                or end.
            UsageError: the size cannot be divided among these ranks.

        """
        restored = restore(state, reader=self._state, length=self._source.length)
        if restored.batch_size % (restored.micro_batch_size * self.world_size):
            restored = msgspec.structs.replace(restored, micro_batch_size=restored.opened_micro_batch_size)
        self._source.check_sizes(restored.batch_size, restored.micro_batch_size)
        try:
            self._source.order_at(restored)
        except ValueError as error:
            raise CheckError(f"reader state: {error}", hint="pass what state_dict() returned, unchanged") from None
        self.close()
        self._state, self._epoch_end = restored, None

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch, and end a running iteration; in the current epoch, go on where it stands.

        What loops over epochs call on torch's samplers. Going on needs no call, and a resumed epoch is not begun anew.
        """
        epoch = whole("epoch", epoch, least=0, most=MOST)
        if epoch != self._state.epoch:
            self.close()
            self._state = self._source.at_epoch(self._state, epoch)

    def set_global_batch_size(self, global_batch_size: int) -> None:
        """Change the size from the next step on; steps made ahead are made again. A schedule goes on from it.

        Raises:
            UsageError: the size is no whole number of micro-batches.

        """
        size = whole("global_batch_size", global_batch_size, most=MOST)
        self._source.check_sizes(size, self._state.micro_batch_size)
        self._stop_ahead()
        self._state = msgspec.structs.replace(self._state, batch_size=size)

    def set_micro_batch_size(self, micro_batch_size: int) -> None:
        """Change the size of micro-batches from the next step on; what a step holds stays as it is.

        Raises:
            UsageError: the global batch size is no whole number of such micro-batches, or a document has no room.

        """
        size = whole("micro_batch_size", micro_batch_size, least=1, most=MOST)
        self._source.check_sizes(self._state.batch_size, size)
        self._stop_ahead()
        self._state = msgspec.structs.replace(self._state, micro_batch_size=size)

    def set_shares(self, proportions: Sequence[float]) -> None:
        """Change the proportions of a mixture, one for each cache, from the next step on; 0 leaves a cache out.

        The state holds them, so that a run that adapts its mix resumes with it. Epochs stay as long as they were.

        Raises:
            UsageError: no mixture, or one with a schedule; a proportion that is none; or windows sorted by length,
                which are mixed already.

        """
        state = self._source.with_shares(self._state, proportions)
        self._stop_ahead()
        self._state = state

    def close(self) -> None:
        """Stop the background threads and end the running iteration. The loader can be iterated again."""
        self._iteration = None
        self._stop_ahead()
        self._source.orders.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"cache": self._cache, "arguments": self._arguments, "state": self.state_dict()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__(saved["cache"], **saved["arguments"])  # type: ignore[misc]
        self.load_state_dict(saved["state"])

    def _steps(self, *, through_epochs: bool, worker: tuple[int, int, int] = (0, 0, 1)) -> Iterator[Step]:
        self._stop_ahead()
        iteration = self._iteration = object()
        last_epoch = None if through_epochs else self._state.epoch
        while True:  # once, and once more after each change of the batch size
            made = self._reader.steps(self.plans(last_epoch=last_epoch), self._state, worker=worker)
            ahead = self._ahead = Prefetch(made, depth=self._options.prefetch)
            try:
                self._pace.ask()
                for step, state in ahead:
                    if self._ahead is ahead:  # else it was ended while this waited, by a signal's handler
                        if step is not None and step.epoch > self._state.epoch:
                            self._epoch_end = self._state
                        self._state = state
                        if step is None:
                            continue
                        self._pace.give(step.num_tokens)
                        device = self._options.device
                        yield step if device.type == "cpu" else step.to(device, non_blocking=True)
                    if self._ahead is not ahead:
                        break
                    self._pace.ask()
            finally:
                self._pace.end()
                ahead.close()
            if self._iteration is not iteration:
                raise RuntimeError("this iteration was ended by close, load_state_dict or another one")
            if self._ahead is ahead:
                break
        if last_epoch is not None and self._state.epoch == last_epoch:
            self._epoch_end = self._state
            self._state = self._source.at_epoch(self._state, last_epoch + 1)

    def _stop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
