"""The order of a loader's rows: the requested order, built for each cache and mixed if there are several."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.mixture import Mixture, MixtureOrder, Shares
from packer.load.options import Options
from packer.load.ordering import (
    WINDOW,
    BucketedOrder,
    Curriculum,
    CurriculumOrder,
    EpochOrder,
    Float64,
    LengthBucketed,
    Order,
    Weighted,
    WeightedOrder,
    Windowed,
    order_name,
)
from packer.load.plan import StepPlan
from packer.load.rows import RowKind, Rows
from packer.load.state import ReaderState
from packer.load.windows import ShardPrefetcher, WindowedOrder, check_window_fits, default_window
from packer.store.cache import Cache
from packer.store.files import CacheFiles


class RowOrders:
    """The order of the rows of some caches, built for each iteration, as iterations run in different threads.

    Raises:
        UsageError: the order needs more shards at a time than a bounded cache may keep.
        ValueError: invalid weights or row numbers.
    """

    def __init__(self, rows: Rows, source: Cache | Mixture, options: Options) -> None:
        self._rows, self._options = rows, options
        self._mixture = source if isinstance(source, Mixture) else None
        self._caches = source.caches if isinstance(source, Mixture) else (source,)
        self.fingerprint = self._mixture.fingerprint if self._mixture else self._caches[0].manifest.content_fingerprint
        self._ordered = [rows.ordered_rows(number) for number in range(len(self._caches))]
        self._weights = self._checked_weights(options.order.by) if isinstance(options.order, Weighted) else None
        self._windows = [self._shards_per_window(number) for number in range(len(self._caches))]
        self._prefetchers = {
            number: ShardPrefetcher(rows, number, self._windowed_order(number), fetcher)
            for number, cache in enumerate(self._caches)
            if self._windows[number] and (fetcher := CacheFiles(cache.folder).fetch_ahead()) is not None
        }
        self._mean_lengths = [Fraction(1)] * len(self._caches)
        if self._mixture is not None and self._mixture.by == "tokens":
            self._mean_lengths = [
                Fraction(rows.num_tokens(number), self._num_ordered(number)) for number in range(len(self._caches))
            ]

    def build(
        self, epoch: int = 0, cursor: int = 0, taken: tuple[int, ...] | None = None, mix: Shares | None = None
    ) -> Order:
        """Return the order, ready to continue from a position.

        Raises:
            ValueError: `taken` or `mix` of a state are impossible for this source.
        """
        order, seed = self._options.order, self._options.seed
        if self._mixture is None and (taken is not None or mix is not None):
            raise ValueError("rows taken of each cache, but there is only one cache")
        if isinstance(order, Curriculum):
            return CurriculumOrder(lambda epoch: self._curriculum_rows(order.by, epoch))
        orders = [self._cache_order(number) for number in range(len(self._caches))]
        start = cursor - cursor % order.window if isinstance(order, LengthBucketed) else cursor
        mixed = orders[0] if self._mixture is None else self._mixture_order(orders, epoch, start, taken, mix)
        if isinstance(order, LengthBucketed):
            lengths, fingerprint = self._rows.lengths, self.fingerprint
            return BucketedOrder(mixed, lengths, fingerprint=fingerprint, seed=seed, window=order.window)
        return mixed

    def prefetch_from(self, state: ReaderState) -> None:
        """Announce that rows from a state on are read next, so that their shards are fetched from a bucket."""
        for prefetcher, position in self._bucket_positions(state.epoch, state.cursor, state.taken):
            prefetcher.prefetch_from(*position)

    def window_after(self, plan: StepPlan) -> list[tuple[int, int]]:
        """Return the window of shards, for each cache in a bucket, that a step leads to."""
        positions = self._bucket_positions(plan.next_epoch, plan.next_cursor, plan.taken)
        return [prefetcher.window(*position) for prefetcher, position in positions]

    def _bucket_positions(
        self, epoch: int, cursor: int, taken: tuple[int, ...] | None
    ) -> Iterator[tuple[ShardPrefetcher, tuple[int, int]]]:
        """Yield the prefetcher of each cache in a bucket that is read by shards, with the position in its order."""
        for number, prefetcher in self._prefetchers.items():
            yield prefetcher, (epoch, cursor) if taken is None else divmod(taken[number], self._num_ordered(number))

    def close(self) -> None:
        """Stop fetching."""
        for prefetcher in self._prefetchers.values():
            prefetcher.close()

    def _mixture_order(
        self,
        orders: list[EpochOrder],
        epoch: int,
        cursor: int,
        taken: tuple[int, ...] | None,
        mix: Shares | None,
    ) -> MixtureOrder:
        mixture = self._mixture
        assert mixture is not None
        initial_shares = mixture.of_rows(mixture.shares, self._mean_lengths)
        num_items = mixture.num_items(initial_shares, [order.num_items for order in orders])
        shares = initial_shares if mix is None else mixture.of_rows(mix.fractions(len(orders)), self._mean_lengths)
        return MixtureOrder(
            orders,
            shares,
            num_items,
            bases=self._rows.bounds[:-1].tolist(),
            start=epoch * num_items + cursor,
            taken=taken,
            mix=mix,
        )

    def _cache_order(self, number: int) -> EpochOrder:
        """Build the order of the rows of one cache."""
        seed, rows = self._options.seed, self._ordered[number]
        fingerprint = self._caches[number].manifest.content_fingerprint
        if self._weights is not None:
            weights = self._ordered_values(number, self._weights)
            return WeightedOrder(fingerprint=fingerprint, seed=seed, weights=weights, rows=rows)
        if isinstance(self._options.order, Windowed):
            return self._windowed_order(number)
        shuffled, num_items = self._options.order != "sequential", self._num_ordered(number)
        return EpochOrder(fingerprint=fingerprint, seed=seed, num_items=num_items, shuffled=shuffled, rows=rows)

    def _shards_per_window(self, number: int) -> int:
        """Return the shards per window of one cache; 0 if rows are not read shard by shard.

        Raises:
            UsageError: the cache is bounded and too small for the order.
        """
        order, shards = self._options.order, self._rows.shards_of(number)
        window = 0
        if order == "sequential" or isinstance(order, Windowed):
            window = (order.window if isinstance(order, Windowed) else None) or default_window(shards)
        if order == "random" or isinstance(order, LengthBucketed | Windowed):
            check_window_fits(shards, order_name(order), window)
        return window

    def _windowed_order(self, number: int) -> WindowedOrder:
        """Build the windowed order of one cache; for the sequential order only its windows are used."""
        return WindowedOrder(
            fingerprint=self._caches[number].manifest.content_fingerprint,
            seed=self._options.seed,
            sizes=self._rows_per_shard(number),
            window=self._windows[number],
            shuffled=self._options.order != "sequential",
            rows=self._ordered[number],
        )

    def _rows_per_shard(self, number: int) -> Int64:
        """Count the ordered rows in each shard of one cache.  # int64[shards]"""
        bounds, ordered = self._rows.shard_bounds(number), self._ordered[number]
        return np.diff(bounds if ordered is None else np.searchsorted(ordered, bounds))

    def _ordered_values(self, number: int, values: Float64) -> Float64:
        """Return the values of the rows of one cache that are put in order, given those of all rows.  # float64[n]"""
        first, end = self._rows.bounds[number : number + 2]
        ordered = self._ordered[number]
        return values[first:end] if ordered is None else values[first:end][ordered]

    def _num_ordered(self, number: int) -> int:
        ordered = self._ordered[number]
        return int(np.diff(self._rows.bounds)[number]) if ordered is None else len(ordered)

    def order_by(self) -> str | None:
        """Return what identifies the order's parameters in a state."""
        order = self._options.order
        if isinstance(order, LengthBucketed):
            return None if order.window == WINDOW else str(order.window)
        if isinstance(order, Windowed):
            sizes = np.concatenate([self._rows_per_shard(number) for number in range(len(self._caches))])
            return f"{','.join(map(str, self._windows))} of {sha256(sizes.tobytes()).hexdigest()[:16]}"
        if isinstance(order, Curriculum):
            return sha256(self._curriculum_rows(order.by, 0).tobytes()).hexdigest()[:16]
        return None if self._weights is None else sha256(self._weights.tobytes()).hexdigest()[:16]

    def _checked_weights(self, by: Any) -> Float64:
        if isinstance(by, Mapping):
            by = self._rows.values_by_input(self._caches, by)
        weights = np.asarray(self._row_values(by), np.float64)
        if weights.shape != (len(self._rows),) or not np.isfinite(weights).all() or weights.min(initial=0) < 0:
            raise ValueError(f"weights of shape {weights.shape}; expected {len(self._rows)} numbers, none below 0")
        for number, cache in enumerate(self._caches):
            if not self._ordered_values(number, weights).any():
                raise ValueError(f"no row of {cache.folder} has a weight above 0")
        return weights

    def _curriculum_rows(self, by: Any, epoch: int) -> Int64:
        """Return the rows of an epoch of a curriculum, checked."""
        values = by(epoch) if callable(by) else by
        rows = np.argsort(self._row_values(values), kind="stable") if isinstance(values, str) else np.asarray(values)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(f"a curriculum of {rows.dtype} {list(rows.shape)}; expected the numbers of rows")
        if not len(rows) or rows.min() < 0 or rows.max() >= len(self._rows):
            raise ValueError(f"a curriculum's epoch {epoch}: expected some of the rows 0 to {len(self._rows) - 1}")
        kept: Int64 = rows[~np.isin(rows, self._rows.untrained)].astype(np.int64)
        if not len(kept):
            raise ValueError(f"a curriculum's epoch {epoch} has no row with a trained token")
        return kept

    def _row_values(self, by: Any) -> npt.ArrayLike:
        if not isinstance(by, str):
            return by  # type: ignore[no-any-return]
        return self._rows.lengths if by == "length" else self._rows.num_trained


def check_order(kind: RowKind, options: Options, mixture: Mixture | None) -> None:
    """Refuse an order that is impossible for rows of this kind or for a mixture.

    Raises:
        UsageError: says why.
    """
    order = options.order
    if kind == "blocks" and options.cutoff_len is not None:
        raise UsageError(
            "cutoff_len is for documents; blocks were cut when they were packed",
            hint="choose a batching of documents, or build with another --block-len",
        )
    if kind == "blocks" and isinstance(order, LengthBucketed):
        raise UsageError(
            "order='length_bucketed' is for documents; all blocks are of one length",
            hint="choose batching='padded', 'padding_free' or 'token_budget'",
        )
    if mixture is not None and isinstance(order, Curriculum):
        raise UsageError("a curriculum says which row comes next, and so do the proportions of a mixture")
    if mixture is not None and mixture.schedule is not None and isinstance(order, LengthBucketed):
        raise UsageError("proportions cannot follow a schedule where windows of a mixture are sorted by length")
