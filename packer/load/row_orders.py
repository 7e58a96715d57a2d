"""The orders of a loader's rows: made of one cache or of a mixture, by what the loader was told."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.batches import Int64
from packer.errors import UsageError
from packer.load.mixture import Mixture, MixtureOrder
from packer.load.options import Options
from packer.load.order import BucketedOrder, CurriculumOrder, EpochOrder, Float64, Order, WeightedOrder, window_start
from packer.load.ordering import WINDOW, Curriculum, LengthBucketed, Weighted
from packer.load.rows import Rows
from packer.load.state import Shares
from packer.store.cache import Cache


class RowOrders:
    """Makes orders, each ready to go on from a place: iterations are in different threads and each needs its own.

    Args:
        source: a cache, or several.
        rows: of them.
        options: of the loader.

    Raises:
        UsageError: an order that these rows do not have.
        ValueError: weights or row numbers that are none.

    """

    def __init__(self, source: Cache | Mixture, rows: Rows, options: Options) -> None:
        self._mixture = source if isinstance(source, Mixture) else None
        self._caches = source.caches if isinstance(source, Mixture) else (source,)
        self._rows, self._order, self._seed = rows, options.order, options.seed
        self.fingerprint = self._mixture.fingerprint if self._mixture else self._caches[0].manifest.content_fingerprint
        if self._mixture is not None and isinstance(self._order, Curriculum):
            raise UsageError("a curriculum says which row comes next, and so do the proportions of a mixture")
        self._weights = self._checked_weights() if isinstance(self._order, Weighted) else None
        self._mean_lengths = [Fraction(1)] * len(self._caches)
        if self._mixture is not None and self._mixture.by == "tokens":
            own = [self._own(number) for number in range(len(self._caches))]
            self._mean_lengths = [Fraction(int(rows.lengths[each].sum(dtype=np.int64)), len(each)) for each in own]

    @property
    def by(self) -> str | None:
        """What a state says that the order goes by."""
        if isinstance(self._order, LengthBucketed):
            return None if self._order.window == WINDOW else str(self._order.window)
        if self._weights is not None:
            return sha256(self._weights.tobytes()).hexdigest()[:16]
        return sha256(self._of_epoch(0).tobytes()).hexdigest()[:16] if isinstance(self._order, Curriculum) else None

    @property
    def varies(self) -> bool:
        """Whether epochs may be of different lengths."""
        return isinstance(self._order, Curriculum)

    def at(
        self, *, epoch: int = 0, cursor: int = 0, taken: tuple[int, ...] | None = None, shares: Shares | None = None
    ) -> Order:
        """The order, ready to go on from a place.

        Raises:
            ValueError: `taken` or `shares` do not fit the place.

        """
        if self._mixture is None and (taken is not None or shares is not None):
            raise ValueError("rows taken of each cache, where there is one cache")
        if isinstance(self._order, Curriculum):
            return CurriculumOrder(self._of_epoch)
        window = self._order.window if isinstance(self._order, LengthBucketed) else 1
        order = self._unsorted(epoch, window_start(cursor, window), taken, shares)
        if window == 1:
            return order
        lengths, fingerprint = self._rows.lengths, self.fingerprint
        return BucketedOrder(order, lengths, fingerprint=fingerprint, seed=self._seed, window=window)

    def _unsorted(
        self, epoch: int, cursor: int, taken: tuple[int, ...] | None, shares: Shares | None
    ) -> EpochOrder | MixtureOrder:
        orders = [self._order_of(number, cache) for number, cache in enumerate(self._caches)]
        if self._mixture is None:
            return orders[0]
        opened = self._mixture.of_rows(self._mixture.shares, self._mean_lengths)
        num_items = self._mixture.num_items(opened, [order.num_items for order in orders])
        given = opened
        if shares is not None:
            given = self._mixture.of_rows(_parsed(shares.shares, len(orders)), self._mean_lengths)
        return MixtureOrder(
            orders,
            given,
            num_items,
            bases=self._rows.bounds[:-1].tolist(),
            start=epoch * num_items + cursor,
            taken=taken,
            since=None if shares is None else shares.since,
        )

    def _order_of(self, number: int, cache: Cache) -> EpochOrder:
        trained, fingerprint, own = self._rows.trained_of(number), cache.manifest.content_fingerprint, self._own(number)
        if self._weights is not None:
            weights = self._weights[own]
            return WeightedOrder(fingerprint=fingerprint, seed=self._seed, weights=weights, rows=trained)
        shuffled = self._order != "sequential"
        return EpochOrder(fingerprint=fingerprint, seed=self._seed, num_items=len(own), shuffled=shuffled, rows=trained)

    def _own(self, number: int) -> Int64:
        """The rows of one cache that are put in order, numbered through."""
        first, end = self._rows.bounds[number : number + 2].tolist()
        trained = self._rows.trained_of(number)
        return np.arange(first, end) if trained is None else first + trained

    def _checked_weights(self) -> Float64:
        by = self._order.by  # type: ignore[union-attr]
        if isinstance(by, Mapping):
            by = self._rows.of_inputs(self._caches, by)
        weights = np.asarray(self._column(by), np.float64)
        if weights.shape != (len(self._rows),) or not np.isfinite(weights).all() or weights.min(initial=0) < 0:
            raise ValueError(f"weights of shape {weights.shape}; expected {len(self._rows)} numbers, none below 0")
        for number, cache in enumerate(self._caches):
            if not weights[self._own(number)].any():
                raise ValueError(f"no row of {cache.folder} has a weight above 0")
        return weights

    def _of_epoch(self, epoch: int) -> Int64:
        """The rows of an epoch of a curriculum."""
        by: Any = self._order.by  # type: ignore[union-attr]
        given = by(epoch) if callable(by) else by
        rows = np.argsort(self._column(given), kind="stable") if isinstance(given, str) else np.asarray(given)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(f"a curriculum of {rows.dtype} {list(rows.shape)}; expected the numbers of rows")
        if not len(rows) or rows.min() < 0 or rows.max() >= len(self._rows):
            raise ValueError(f"a curriculum's epoch {epoch}: expected some of the rows 0 to {len(self._rows) - 1}")
        kept: Int64 = rows[~np.isin(rows, self._rows.untrained)].astype(np.int64)
        if not len(kept):
            raise ValueError(f"a curriculum's epoch {epoch} has no row with a trained token")
        return kept

    def _column(self, by: Any) -> npt.ArrayLike:
        if not isinstance(by, str):
            return by  # type: ignore[no-any-return]
        return self._rows.lengths if by == "length" else self._rows.num_trained


def _parsed(shares: Sequence[str], number: int) -> list[Fraction]:
    """Shares of so many caches, as a state has them."""
    try:
        parsed = [Fraction(share) for share in shares]
    except ZeroDivisionError:
        parsed = []
    if len(parsed) != number or min(parsed) <= 0 or sum(parsed) != 1:
        raise ValueError(f"shares {list(shares)} are not those of {number} caches")
    return parsed
