"""The reader for a training loop: steps in a fixed order, resumable and elastic."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

import torch
from msgspec import Meta
from torch.utils.data import get_worker_info

from packer.batches import Int64
from packer.errors import CheckError, UsageError, answers_names
from packer.load.arguments import Batching, check_instance, checked, open_cache, resolve_options
from packer.load.mixture import Mixture
from packer.load.ordered_rows import Content, require_examples
from packer.load.ordering import UNCHANGED, Counters, End, Ordering, ReaderState, restore
from packer.load.pixels import BatchImages
from packer.load.ranks import Agreement
from packer.load.reading import EpochSummary, Prefetch, StepReader
from packer.load.row_source import RowSource, StepPlan
from packer.load.step import Step
from packer.store.cache import Cache


class PackedLoader:
    """Training steps of packed blocks, the same for any number of ranks, micro-batches and workers and any prefetch.

    Sizes are counted in blocks. The order of an epoch depends only on the cache's content, `seed` and the epoch. Each
    step takes the next `global_batch_size` blocks of that order, and each rank its share of the step. With another
    `batching`, steps consist of documents; everything else stays the same.

    Iterating yields the rest of the current epoch and then stops; iterating again yields the next epoch. A loader that
    was restored at the very end of an epoch yields no step the first time. This loop therefore resumes exactly::

        while loader.epoch < num_epochs:
            for step in loader:
                for micro_batch in step:
                    loss = summed_loss(model, micro_batch) / step.num_items_in_batch
                    loss.backward()
                checkpoint["reader"] = loader.state_dict()

    :meth:`endless` continues across epochs without stopping. Only one iteration can be active: starting another ends
    the first. Pickling keeps the position, so another process can continue where this one is. Where `torch.distributed`
    connects the ranks, iterating raises UsageError if they do not read the same: see :mod:`packer.load.ranks`.

    Args:
        cache: folder or URL of a cache; what :meth:`packer.Cache.open` gave, which says where copies of a cache in a
            bucket and images beside a cache are; or a :class:`packer.load.Mixture` of several.
        split: name of the split.
        micro_batch_size: blocks per micro-batch; documents or tokens with another `batching`.
        global_batch_size: blocks (documents, tokens) per step over all ranks, a multiple of
            ``micro_batch_size * world_size``. None means one micro-batch per rank, so the size then changes with the
            number of ranks.
        batching: ``packed``; or, made of documents, ``padded``, ``padding_free``, ``token_budget``, or a
            :class:`packer.load.Padded`. None uses what the cache's recipe sets under `read`, by default
            ``packed``; departing from the recipe gives a warning.
        rank: rank of this process; None uses `torch.distributed`'s, or 0 of 1 if that is not initialized.
        world_size: number of processes; must be given together with `rank`.
        seed: seed of the order.
        order: ``random``; ``sequential``, as stored; for documents ``length_bucketed``, which keeps documents of
            similar length together; or a pure function from an epoch to its row numbers. Of a mixture ``random`` or
            ``sequential``.
        end: what happens to the blocks left at the end of an epoch when they are fewer than a step. ``drop`` leaves
            them out. ``pad`` fills the step with fully masked rows of the pad id: summed losses and
            `num_items_in_batch` do not change, a mean over rows does. ``short`` yields a smaller step, with only as
            many masked rows as the micro-batches of all ranks need: for evaluation.
        balance: rows of a step are dealt to ranks and micro-batches so that they finish together, by work that counts
            attention: the length at which it costs as much as everything else, about 12 times the hidden size. 0
            gives each rank a contiguous share. No result and no state depends on it: see :mod:`packer.load.ranks`.
        device: ``cpu`` or ``cuda``; None is ``cpu``. For cuda, steps wait in pinned memory; the host waits for no copy.
        flatten: for blocks, True lays a micro-batch out as one row, for variable-length attention; False as B rows.
        static_shapes: for blocks: every micro-batch has equal shapes and ``max_length_*``, as CUDA graphs and compiled
            models want them. ``cu_seq_lens_*`` end in empty sequences; opening looks at all blocks for the most.
        labels: ``unshifted``, for models that shift, or ``shifted``: under the name ``shift_labels``.
        prefetch: steps prepared ahead in one background thread; 0 prepares them on demand. From a bucket, an iteration
            begins once all shards of the split are here; with 0, each is fetched when it is needed.
        images: add the tensors of images, if the cache has any; False gives the tokens alone.
        columns: names of columns that the recipe declares: ``micro_batch["columns"]`` has them, int64 or float32 in the
            shape of ``input_ids``, then the width; position t is about the token there, as in unshifted labels.

    Micro-batches of B rows, L tokens per row, and S sequences, where a run of padding counts as one sequence:

    | columns | packed | packed, not flattened | padded | padding_free |
    | --- | --- | --- | --- | --- |
    | input_ids, labels, position_ids | int64 [1, B·L] | int64 [B, L] | int64 [B, longest] | int64 [1, tokens] |
    | cu_seq_lens_q, cu_seq_lens_k | int32 [S + 1] | | | int32 [S + 1] |
    | max_length_q, max_length_k | int | | | int |
    | document_ids | | int32 [B, L] | | |
    | attention_mask | | | int64 [B, longest] | |

    With ``labels="shifted"``, labels and columns become shift_labels and shift_columns. Of pairs and rated
    answers, there are also ``sides``, ``pair_ids`` and ``completion_mask``, and all sizes count pairs.

    Raises:
        UsageError: sizes that cannot be divided among ranks, several processes that would
            read the same rows, caches that cannot be mixed, documents that fit into no micro-batch.
        InputError: the split has no blocks.
        ValueError: an argument is out of range, or of the wrong type.
    """

    @answers_names
    def __init__(
        self,
        cache: str | Path | Cache | Mixture,
        *,
        split: str = "train",
        micro_batch_size: int = 1,
        global_batch_size: int | None = None,
        batching: Batching | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        order: Ordering = "random",
        end: End = "drop",
        balance: int = 24_576,
        device: torch.device | str | None = None,
        flatten: bool = True,
        static_shapes: bool = False,
        labels: Literal["unshifted", "shifted"] = "unshifted",
        prefetch: int = 2,
        images: bool = True,
        columns: Sequence[str] = (),
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "cache")}
        self._cache = cache if isinstance(cache, Mixture) else open_cache(cache)
        caches = self._cache.caches if isinstance(self._cache, Mixture) else (self._cache,)
        self._options = resolve_options(caches, self._arguments)
        self._source = RowSource(self._cache, self._options)
        self._reader = StepReader(self._source, self._options)
        self._state = self._source.initial_state()
        self._agreement = Agreement(self._options) if self.world_size > 1 else None
        self._prefetch: Prefetch[tuple[Step, ReaderState]] | None = None
        self._own: tuple[object, Iterator[Step]] = (None, iter(()))  # that of calls of next(loader)

    @property
    def epoch(self) -> int:
        """The epoch the next step begins in, unless this one has no steps left."""
        return self._state.epoch

    @property
    def num_blocks(self) -> int:
        """Blocks of the current epoch; documents if steps consist of documents."""
        return self._source.length(self._state.epoch)

    @property
    def global_batch_size(self) -> int:
        """Size of a step, over all ranks."""
        return self._options.global_batch_size

    @property
    def block_len(self) -> int:
        """Tokens per block; 0 if steps consist of documents."""
        return self._source.rows.block_len

    @property
    def vocab_size(self) -> int:
        """Ids of the tokenizer that the cache was built with."""
        return self._source.caches[0].manifest.model.vocab_size

    @property
    def end(self) -> End:
        """What happens to the blocks left at the end of an epoch."""
        return self._state.end

    @property
    def content(self) -> Content:
        """Kind of data: ``examples``, ``pairs`` or ``rated answers``."""
        return self._source.rows.content

    @property
    def images(self) -> BatchImages | None:
        """What adds the tensors of images to micro-batches; None if they have none."""
        return self._reader.images

    @property
    def world_size(self) -> int:
        """Number of processes that steps are divided among."""
        return self._options.world_size

    @property
    def counters(self) -> Counters:
        """Totals returned since the beginning, over all ranks: steps, rows, trained targets, tokens, positions; and the
        share of padding.
        """
        return self._state.counters

    def __bool__(self) -> bool:
        return True  # so that `loader or other` does not count steps

    def __len__(self) -> int:
        """Steps of the whole current epoch, including those already returned."""
        return self._source.steps_of_epoch(self._state)

    @property
    def steps_left(self) -> int:
        """Steps left in the current epoch, which is what iterating yields from here."""
        return self.steps_until(self._state.epoch + 1)

    def steps_until(self, epoch: int) -> int:
        """Count the steps from here that begin before `epoch`: those needed to train up to it. Reads no rows."""
        return self._source.steps_until(self._state, checked("epoch", epoch, int))

    def summary(self) -> EpochSummary:
        """Return totals over the steps that iterating yields from here, counted without reading rows."""
        return self._reader.summary(self.plans(last_epoch=self._state.epoch))

    def plans(self, *, last_epoch: int | None) -> Iterator[StepPlan]:
        """Yield the plans of the steps from here to the end of `last_epoch`, or endlessly if None. Reads no rows."""
        return self._source.steps(self._state, last_epoch=last_epoch)

    def __iter__(self) -> Iterator[Step]:
        return self._steps(through_epochs=False)

    def __next__(self) -> Step:
        """Return the next step, as ``next(iter(loader))`` does, without beginning anew each time."""
        prefetch, steps = self._own
        if prefetch is None or prefetch is not self._prefetch:
            steps = iter(self)
        step = next(steps, None)
        self._own = (self._prefetch, steps)
        if step is None:
            self.close()
            raise StopIteration
        return step

    def endless(self) -> Iterator[Step]:
        """Yield steps endlessly, continuing from each epoch into the next."""
        return self._steps(through_epochs=True)

    def __getitem__(self, index: Any) -> NoReturn:
        """Refuse indexing, as by a DataLoader that takes this for a dataset, and say what to do instead."""
        raise TypeError(
            "a PackedLoader has no items, it gives steps: iterate over it without a DataLoader. A framework that wants "
            "a dataset takes packer.load.StepDataset(loader), one with a sampler packer.PackedDataset(cache)"
        )

    def __repr__(self) -> str:
        state, rank = self._state, self._options.rank
        return (
            f"<PackedLoader of {self._source.unit} of {self._cache!r}, split '{state.split}': rank {rank} of "
            f"{self.world_size}, global batch size {self.global_batch_size:,}, {state.counters.steps:,} steps "
            f"returned, in epoch {state.epoch}>"
        )

    def doc_ids(self, step: Step) -> list[Int64]:
        """Return the document ids of each row of a step, in the order of ``step.block_ids``; empty for a padding row.

        A document has the same one on any rank, in any cache: what is drawn for it may be seeded by it.
        # int64[P] for a block of P pieces, int64[1] for a document, int64[2] for a pair
        """
        return self._source.rows.doc_ids(check_instance("step", step, Step, "a step of this loader").block_ids)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, counting the steps returned, not those prefetched. It is the same on every rank."""
        return self._state.to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state, with any world size, sizes and padding. Ends a running iteration.

        Raises:
            CheckError: the state is damaged, or of other data, split, batching, order, seed or end.
        """
        restored = restore(state, reader=self._state, length=self._source.length)
        try:
            self._source.order_at(restored)
        except ValueError as error:
            raise CheckError(f"reader state: {error}", hint=UNCHANGED) from None
        self.close()
        self._state = restored

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch and end a running iteration; for the current epoch this is a no-op.

        Loops over epochs call this on torch's samplers. It does not restart an epoch that was resumed.
        """
        epoch = checked("epoch", epoch, Annotated[int, Meta(ge=0, le=2**31 - 1)])
        if epoch != self._state.epoch:
            self.close()
            self._state = self._source.state_at_epoch(self._state, epoch)

    def close(self) -> None:
        """Stop the background thread and end the running iteration. The loader can be iterated again."""
        prefetch, self._prefetch = self._prefetch, None
        if prefetch is not None:
            prefetch.close()

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
        if get_worker_info() is not None:
            raise UsageError(
                "a PackedLoader does not read in a worker of a DataLoader",
                hint="DataLoader(StepDataset(loader), batch_size=None, num_workers=0); it reads ahead by itself",
            )
        self.close()
        self._source.fetch()
        last_epoch = None if through_epochs else self._state.epoch
        steps = self._reader.steps(self.plans(last_epoch=last_epoch), self._state)
        prefetch = self._prefetch = Prefetch(steps, depth=self._options.prefetch)
        try:
            for step, state in self._agreement.checked(prefetch, self._state) if self._agreement else prefetch:
                if self._prefetch is prefetch:  # else a signal handler ended it while this waited
                    self._state = state
                    device = self._options.device
                    yield step if device.type == "cpu" else step.to(device, non_blocking=True)
                if self._prefetch is not prefetch:
                    break
        finally:
            prefetch.close()
        if self._prefetch is not prefetch:
            raise RuntimeError("this iteration was ended by close, load_state_dict or another one")
        if last_epoch is not None and self._state.epoch == last_epoch:
            self._state = self._source.state_at_epoch(self._state, last_epoch + 1)


def loader_of_examples(name: str, value: Any, what: str) -> PackedLoader:
    """Return an argument that is a loader of examples to imitate, for a consumer that trains on every answer."""
    loader = check_instance(name, value, PackedLoader, "a PackedLoader")
    require_examples(loader.content, what)
    return loader
