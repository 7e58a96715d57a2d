"""Where a loader's rows come from: one cache or a mixture, their order, and the steps that are cut from it."""

from collections.abc import Callable, Iterator

import numpy as np

from packer.batches import Int64
from packer.errors import InputError, UsageError
from packer.load.batching import Batching, Packed, TokenBudget, padded_of
from packer.load.mixture import Mixture, MixtureOrder
from packer.load.order import Ahead, EpochOrder, LengthBucketed, Order, OrderKind
from packer.load.rows import RowKind, Rows, SplitRows
from packer.load.state import ReaderState
from packer.load.steps import End, Planned, StepPlan, check_fits, plan_step
from packer.store.cache import Cache
from packer.store.manifest import Manifest


class RowSource:
    """The rows of a split in the order of every epoch, and the steps in it. Not for two threads at a time.

    Args:
        source: a cache, or several mixed.
        split: name of the split.
        batching: decides whether rows are blocks or documents, and what sizes count.
        cutoff_len: documents are read up to so many tokens; None reads them whole.
        seed: of the order.
        order: its kind.
        end: what becomes of the rows an epoch has left over.

    Raises:
        UsageError: caches that cannot be mixed; a batching or an order the rows do not have.
        InputError: the split has no rows, or a cutoff leaves none.

    """

    def __init__(
        self,
        source: Cache | Mixture,
        split: str,
        *,
        batching: Batching,
        cutoff_len: int | None,
        seed: int,
        order: OrderKind,
        end: End,
    ) -> None:
        self.kind: RowKind = "blocks" if isinstance(batching, Packed) else "documents"
        caches = source.caches if isinstance(source, Mixture) else (source,)
        _check(self.kind, cutoff_len, order, mixed=isinstance(source, Mixture))
        self._parts = [_split_rows(cache, split, self.kind, cutoff_len) for cache in caches]
        self.rows = Rows(self._parts)
        self.block_len = _block_len(caches, split) if self.kind == "blocks" else 0
        self.pad_id = _pad_id(caches[0].manifest)
        self._end: End = end
        self._by_tokens = isinstance(batching, TokenBudget)
        self._mixture: MixtureOrder | None = None
        orders = [
            EpochOrder(
                fingerprint=cache.manifest.content_fingerprint,
                seed=seed,
                num_items=len(part) - len(part.untrained),
                shuffled=order != "sequential",
                rows=Rows([part]).ordered() if len(part.untrained) else None,
            )
            for cache, part in zip(caches, self._parts, strict=True)
        ]
        whole: Order = orders[0]
        self.fingerprint = orders[0].fingerprint
        self.shares: tuple[str, ...] | None = None
        if isinstance(source, Mixture):
            self.shares = tuple(str(share) for share in source.shares)
            num_items = source.num_items([order.num_items for order in orders])
            bases = self.rows.bounds[:-1].tolist()
            whole = self._mixture = MixtureOrder(orders, source.shares, num_items, bases=bases)
            self.fingerprint = source.fingerprint
        elif order == "length_bucketed":
            whole = LengthBucketed(orders[0], self.rows.lengths)
        self._order = Ahead(whole)

    @property
    def num_items(self) -> int:
        """Rows of an epoch."""
        return self._order.num_items

    @property
    def mean_length(self) -> float:
        """Tokens of a row, on average, as the manifests have them."""
        shards = [shard for part in self._parts for shard in part.shards.shards]
        return sum(shard.num_tokens for shard in shards) / sum(shard.num_rows for shard in shards)

    def steps(
        self, state: ReaderState, *, size_of: Callable[[int, int], int] | None, last_epoch: int | None
    ) -> Iterator[Planned]:
        """Steps from a state on, up to the end of an epoch or without end, without reading them.

        Args:
            state: where to begin.
            size_of: from a step's index and the size before it to its size; None keeps the state's.
            last_epoch: the last one that steps begin in.

        """
        index, size, epoch, cursor = state.counters.steps, state.batch_size, state.epoch, state.cursor
        left_out: Int64 | None = None
        asked = -1  # the schedule, for the step of this index: once, whether or not an epoch ends before it
        while last_epoch is None or epoch <= last_epoch:
            if size_of is not None and asked != index:
                size, asked = size_of(index, size), index
            plan = self.plan(epoch=epoch, cursor=cursor, size=size)
            if plan is None:
                if epoch == last_epoch:
                    return
                left_out = self.rest(epoch=epoch, cursor=cursor)
                epoch, cursor = epoch + 1, 0
                continue
            taken = self.taken(epoch=plan.next_epoch, cursor=plan.next_cursor)
            yield Planned(plan, size, left_out, taken)
            index, epoch, cursor, left_out = index + 1, plan.next_epoch, plan.next_cursor, None

    def plan(self, *, epoch: int, cursor: int, size: int) -> StepPlan | None:
        """The step of `size` rows or tokens that begins at a cursor, or None where the epoch has none left."""
        lengths = self.rows.lengths if self._by_tokens else None
        return plan_step(self._order, epoch=epoch, cursor=cursor, size=size, end=self._end, lengths=lengths)

    def rest(self, *, epoch: int, cursor: int) -> Int64:
        """The rows of an epoch from a cursor on.  # int64[num_items - cursor]"""
        return self._order.slice(epoch=epoch, start=cursor, stop=self.num_items).copy()

    def taken(self, *, epoch: int, cursor: int) -> tuple[int, ...] | None:
        """Of a mixture: rows of each cache before a place, over all epochs."""
        return None if self._mixture is None else self._mixture.taken(epoch=epoch, cursor=cursor)

    def resume(self, state: ReaderState) -> None:
        """Go on from a place.

        Raises:
            ValueError: not as many rows of each cache can have been taken there.

        """
        if self._mixture is not None:
            self._mixture.resume(epoch=state.epoch, cursor=state.cursor, taken=state.taken or ())
        elif state.taken is not None:
            raise ValueError(f"rows taken of each cache, {list(state.taken)}, where there is one cache")

    def check_size(self, size: int) -> None:
        """Refuse a step that no epoch fills.

        Raises:
            UsageError: every row would be dropped.

        """
        if self._end != "drop":
            return
        if not self._by_tokens:
            check_fits(size=size, num_items=self.num_items, unit=self.kind)
        elif self._mixture is None:
            tokens = self.rows.lengths(self.rows.ordered()).sum(dtype=np.int64)
            check_fits(size=size, num_items=int(tokens), unit="tokens")


def _split_rows(cache: Cache, split: str, kind: RowKind, cutoff_len: int | None) -> SplitRows:
    rows = SplitRows(cache.blocks(split) if kind == "blocks" else cache.documents(split), cutoff_len)
    if not len(rows):
        raise InputError(f"split '{split}' of {cache.folder} has no {kind}")
    if len(rows) == len(rows.untrained):
        raise InputError(
            f"no document of split '{split}' of {cache.folder} has a trained token among its first {cutoff_len}",
            hint="set a larger cutoff_len",
        )
    return rows


def _check(kind: RowKind, cutoff_len: int | None, order: OrderKind, *, mixed: bool) -> None:
    if kind == "blocks" and cutoff_len is not None:
        raise UsageError(
            "cutoff_len is for documents; blocks were cut when they were packed",
            hint="choose a batching of documents, or packer pack --block-len",
        )
    if kind == "blocks" and order == "length_bucketed":
        raise UsageError(
            "order='length_bucketed' is for documents; all blocks are of one length",
            hint="choose batching='padded', 'padding_free' or 'token_budget'",
        )
    if mixed and order == "length_bucketed":
        raise UsageError(
            "order='length_bucketed' is for one cache: a mixture decides by proportion which row comes next",
            hint="batching='token_budget' keeps padding small in a mixture too",
        )


def check_room(rows: Rows, batching: Batching, *, micro_batch_size: int) -> None:
    """Refuse documents that no micro-batch has room for.

    Raises:
        UsageError: names how many there are and how long the longest is.

    """
    padded = padded_of(batching)
    if padded is not None and padded.length is not None:
        _check_longest(rows, padded.length, f"micro-batches are padded to {padded.length}")
    if isinstance(batching, TokenBudget):
        _check_longest(rows, micro_batch_size, "a micro-batch holds no more")
        if padded is not None:
            widest = padded.rounded(int(rows.lengths(rows.ordered()).max()))
            if widest > micro_batch_size:
                raise UsageError(
                    f"a row padded to {widest} tokens does not fit into a micro-batch of {micro_batch_size}",
                    hint="make the micro-batch larger, or multiple_of smaller",
                )


def _check_longest(rows: Rows, longest: int, reason: str) -> None:
    lengths = rows.lengths(rows.ordered())
    too_long = int(np.count_nonzero(lengths > longest))
    if too_long:
        raise UsageError(
            f"{too_long} of {len(lengths)} documents have more than {longest} tokens, the longest {lengths.max()}: "
            f"{reason}",
            hint="make the micro-batch larger, or set cutoff_len, which trains their beginning alone",
        )


def _block_len(caches: tuple[Cache, ...], split: str) -> int:
    lengths = {cache.blocks(split).block_len for cache in caches}
    if len(lengths) > 1:
        raise UsageError(
            f"caches of different block lengths cannot be mixed: {', '.join(map(str, sorted(lengths)))}",
            hint="packer pack CACHE -o OTHER --block-len N packs one of them again, without tokenizing",
        )
    return lengths.pop()


def _pad_id(manifest: Manifest) -> int:
    """The id blocks are padded with: the recipe's, else the tokenizer's."""
    named = manifest.recipe.get("pack", {}).get("pad_id")
    return manifest.model.pad_id if named is None else int(named)
