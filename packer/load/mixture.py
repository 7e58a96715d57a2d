"""Several caches mixed in given proportions, exact to within one row at every point.

Choosing the next cache is the chairman assignment problem: the states of a union provide a chairman each year in given
proportions, so that at no time a state has had a year more or less than its share. R. Tijdeman, "The chairman
assignment problem", Discrete Mathematics 32 (1980), gives the rule used here and its bound: with K caches no count ever
departs from its share by more than 1 - 1/(2K - 2). Among the caches whose share is ahead of their count by
1/(2K - 2) or more, the rule picks the one that would be the first to fall behind by the bound.

Worked example, proportions 1/2, 1/3, 1/6: the caches come 0 1 0 2 0 1, repeating.

Within a cache, rows come in that cache's own order. A row is repeated only after all rows of its cache have come.
"""

import reprlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from math import ceil, floor, lcm
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from packer.batches import Int32, Int64
from packer.errors import UsageError
from packer.load.arguments import checked, open_cache
from packer.load.ordering import EpochOrder, Order
from packer.store.cache import Cache

MixtureEnd = Literal["first_exhausted", "all_exhausted"]


class Mixture:
    """Caches and the proportion of rows from each; :class:`PackedLoader` accepts it in place of one cache.

    Args:
        caches: folders or open caches with their proportions, which need not add up to 1: 3 and 1 are 0.75 and 0.25.
        by: what the proportions count, ``rows`` or ``tokens``. For tokens, each row is taken to have the mean length of
            its cache: tokens are in proportion over whole passes, and in between as evenly as a shuffled order has
            them.
        epoch: how long an epoch is. ``first_exhausted``: as many rows as possible before one repeats, counted
            from the beginning; ``all_exhausted``: the fewest that include every row of every cache at least once. Later
            epochs have the same length and continue at each cache's position.

    Raises:
        UsageError: caches of different tokenizers; a proportion that is not positive.
        TypeError: not a cache, or not pairs.

    Example:
        >>> Mixture({"caches/chat": 0.7, "caches/code": 0.3})  # doctest: +SKIP
    """

    def __init__(
        self,
        caches: Mapping[str, float] | Sequence[tuple[str | Path | Cache, float]],
        *,
        by: Literal["rows", "tokens"] = "rows",
        epoch: MixtureEnd = "first_exhausted",
    ) -> None:
        self.by = checked("by", by, Literal["rows", "tokens"])
        self.epoch: MixtureEnd = checked("epoch", epoch, MixtureEnd)
        pairs = _pairs(caches)
        if not pairs:
            raise UsageError("a mixture needs at least one cache")
        self.shares = _shares(pairs)
        """Proportions scaled to add up to 1, computed exactly from the binary values of the given numbers."""

        self.caches = tuple(open_cache(cache) for cache, _ in pairs)
        for other in self.caches[1:]:
            _check_same_tokenizer(self.caches[0], other)

    def __repr__(self) -> str:
        pairs = zip(self.caches, self.shares, strict=True)
        return f"<Mixture of {', '.join(f'{float(share):.3g} {cache!r}' for cache, share in pairs)}>"

    @property
    def fingerprint(self) -> str:
        """Identity of the contents in their order, and of how an epoch ends."""
        parts = [cache.manifest.content_fingerprint for cache in self.caches]
        end = self.epoch if self.by == "rows" else f"{self.epoch} {self.by}"
        return sha256("\n".join(["packer.load.mixture", end, *parts]).encode()).hexdigest()

    def shares_of_rows(self, mean_lengths: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """Return the shares of rows, given the mean row length of each cache in tokens."""
        if self.by == "rows":
            return self.shares
        rows = [share / length for share, length in zip(self.shares, mean_lengths, strict=True)]
        return tuple(each / sum(rows) for each in rows)

    def num_items(self, shares: Sequence[Fraction], sizes: Sequence[int]) -> int:
        """Return the rows of an epoch, given the share of rows and the number of rows of each cache.

        A count is less than one above its share, so N_k / share_k rows take at most N_k from cache k; and it is less
        than one below its share, so that number rounded up takes at least N_k.
        """
        lengths = [Fraction(size) / share for size, share in zip(sizes, shares, strict=True)]
        return floor(min(lengths)) if self.epoch == "first_exhausted" else ceil(max(lengths))


class MixtureOrder(Order):
    """The order of a mixture: rows of all caches, numbered consecutively, the first of each by its `bases`.

    It starts at a position, `start` rows over all epochs, with the rows `taken` of each cache before it; ValueError if
    that is impossible. Going back before it counts from the beginning, and skipping ahead counts the skipped rows too.
    """

    def __init__(
        self,
        orders: Sequence[EpochOrder],
        shares: Sequence[Fraction],
        num_items: int,
        *,
        bases: Sequence[int],
        start: int = 0,
        taken: Sequence[int] | None = None,
    ) -> None:
        super().__init__(num_items)
        self._orders, self._bases = tuple(orders), tuple(bases)
        self._unit = lcm(*(share.denominator for share in shares))
        self._unit_shares = [int(share * self._unit) for share in shares]
        before = (0,) * len(orders) if taken is None else tuple(taken)
        if not self._is_valid_position(start, before):
            raise ValueError(f"rows taken of each cache, {list(before)}, are not the shares of {start}")
        self._start, self._before = start, before  # rows of each cache before that position
        self._picks: Int32 = np.zeros(0, np.int32)  # the cache of each row from there on

    def taken(self, *, epoch: int, cursor: int) -> tuple[int, ...]:
        return self._counts(epoch * self.num_items + cursor)

    def _computed(self, epoch: int, start: int, stop: int) -> Int64:
        first = epoch * self.num_items + start
        counts = self._counts(first)
        # Earlier picks are forgotten: a reader rarely goes back.
        self._before, self._picks, self._start = counts, self._picks[first - self._start :], first
        self._pick_until(first + stop - start)
        picks = self._picks[: stop - start]
        rows = np.empty(len(picks), np.int64)
        for number, (order, base) in enumerate(zip(self._orders, self._bases, strict=True)):
            positions = np.flatnonzero(picks == number)
            rows[positions] = base + _slice_across_epochs(order, self._before[number], len(positions))
        return rows

    def _pick_until(self, position: int) -> None:
        """Know the cache of each row from `_start`, or from the beginning, up to a position."""
        if position < self._start:
            self._start, self._before, self._picks = 0, (0,) * len(self._orders), self._picks[:0]
        end = self._start + len(self._picks)
        if position > end:
            picks = _assign(self._unit_shares, self._unit, self._leads_after(self._counts(end)), position - end)
            self._picks = np.concatenate([self._picks, picks])

    def _counts(self, position: int) -> tuple[int, ...]:
        """Count the rows of each cache before a position."""
        self._pick_until(position)
        picked = np.bincount(self._picks[: position - self._start], minlength=len(self._unit_shares)).tolist()
        return tuple(before + count for before, count in zip(self._before, picked, strict=True))

    def _leads_after(self, counts: Sequence[int]) -> list[int]:
        """Return how far each share is ahead of its count after some rows of each cache, in 1 / `_unit` of a row."""
        rows = sum(counts)
        return [part * rows - count * self._unit for part, count in zip(self._unit_shares, counts, strict=True)]

    def _is_valid_position(self, start: int, taken: Sequence[int]) -> bool:
        """Whether no count departs from its share by more than Tijdeman's bound, 1 - 1/slack rows."""
        num_caches = len(self._unit_shares)
        if len(taken) != num_caches or sum(taken) != start:
            return False
        slack = max(2 * num_caches - 2, 1)
        return max(map(abs, self._leads_after(taken))) * slack <= self._unit * (slack - 1)


def _assign(unit_shares: Sequence[int], unit: int, leads: Sequence[int], number: int) -> Int32:
    """Pick the cache of each of the next rows by Tijdeman's rule, in integers.  # int32[number]

    Shares add up to `unit`, one row; `leads` say how far each share is ahead of its count now, in units, and sum to 0.
    """
    if len(unit_shares) == 1:
        return np.zeros(number, np.int32)
    slack = 2 * len(unit_shares) - 2
    # In units of 1 / (unit · slack) rows everything is an integer.
    lead, steps = ([each * slack for each in numbers] for numbers in (leads, unit_shares))
    bound, row = unit * (slack - 1), unit * slack
    picks = np.empty(number, np.int32)
    for position in range(number):
        best, earliest_deadline = -1, 0
        for k in range(len(unit_shares)):
            lead[k] += steps[k]
            if lead[k] >= unit:  # a lead of at least 1 / slack rows: picking it keeps its count within the bound
                # Rows until its count falls behind by the bound, if not picked.
                deadline = (bound - lead[k]) // steps[k]
                if best < 0 or deadline < earliest_deadline:
                    best, earliest_deadline = k, deadline
        assert best >= 0, "Tijdeman's theorem"
        lead[best] -= row
        picks[position] = best
    return picks


def _slice_across_epochs(order: EpochOrder, first: int, number: int) -> Int64:
    """Return `number` rows of an order from position `first` on, running across epochs.  # int64[number]"""
    parts, position = [np.zeros(0, np.int64)], first
    while number:
        epoch, start = divmod(position, order.num_items)
        stop = min(start + number, order.num_items)
        parts.append(order.rows(epoch, start, stop))
        position += stop - start
        number -= stop - start
    return np.concatenate(parts)


def _check_same_tokenizer(one: Cache, other: Cache) -> None:
    """Refuse to mix caches of different tokenizers."""
    if _tokenizer_identity(one) != _tokenizer_identity(other):
        raise UsageError(
            f"{other.folder} cannot be mixed with {one.folder}: their tokenizers differ",
            hint=f"packer diff {one.folder} {other.folder} says in what; build both with the same tokenizer",
        )


def _tokenizer_identity(cache: Cache) -> tuple[Any, ...]:
    model = cache.manifest.model
    tokenizer = sorted(file.sha256 for file in model.files if file.path.endswith("tokenizer.json"))
    return model.vocab_size, model.pad_id, model.stop_ids, tokenizer


def _pairs(caches: Any) -> list[tuple[Any, Any]]:
    try:
        return [(cache, number) for cache, number in (caches.items() if isinstance(caches, Mapping) else caches)]
    except (TypeError, ValueError):
        expected = "{folder: proportion}, or pairs of a cache and its proportion"
        raise TypeError(f"caches is {reprlib.repr(caches)}; expected {expected}") from None


def _shares(pairs: Sequence[tuple[Any, Any]]) -> tuple[Fraction, ...]:
    """Return proportions, exactly as they are in binary, as shares that add up to 1."""
    numbers = []
    for cache, number in pairs:
        is_number = isinstance(number, Real | Decimal) and not isinstance(number, bool)
        if not is_number or not 0 < number < float("inf"):
            name = cache.folder if isinstance(cache, Cache) else cache
            raise UsageError(f"mixture: the proportion of {name} is {number!r}; expected a number above 0")
        numbers.append(Fraction(int(number)) if isinstance(number, Integral) else Fraction(*number.as_integer_ratio()))
    return tuple(number / sum(numbers) for number in numbers)
