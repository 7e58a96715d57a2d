"""The order `windowed`, for caches in a bucket that do not fit on this machine: W shards at a time are enough.

The shards of a split are permuted with a key and read W at a time: a window. The rows of a window are permuted with
another key, so that each is equally likely at every position of the window. Every row comes once per epoch. The order
of shards is known in advance: those of the next window are fetched while this one is read, and those of the previous
one are evicted.

Worked example, W = 2, shards of rows a0 a1 a2, b0 b1, c0 c1 c2 c3: permuted c a b, the windows are c a and b; their
rows come shuffled, for example c2 a1 c0 c3 a0 a2 c1, then b1 b0.

Shards are fetched as whole files, so that their bytes are checked against their sha256 and memory-mapped as usual.
Smaller units, such as record batches by byte range, would mix as well within a smaller window; so does a cache with
a smaller ``shard_bytes``, without a second way to fetch and check rows.
"""

from typing import Final

import numpy as np

from packer.batches import Int64
from packer.errors import UsageError
from packer.layout import offsets_of
from packer.load.ordered_rows import CacheRows
from packer.load.ordering import SLICE, EpochOrder, LengthBucketed, Ordering, Windowed, order_name
from packer.permute import permutation_key, permute
from packer.store.cache import BlockShards, DocumentShards
from packer.store.fetch_ahead import FetchAhead
from packer.store.files import CacheFiles

WINDOW_BYTES: Final = 4 * 2**30
"""Average size of a window if no number of shards is given."""


def shards_per_window(order: Ordering, shards: BlockShards | DocumentShards) -> int:
    """Return the shards per window of a cache's rows; 0 if they are not read shard by shard.

    Without a number, it depends on the data, never on the space available.

    Raises:
        UsageError: the cache is bounded and too small for the order.
    """
    window = 0
    if order == "sequential" or isinstance(order, Windowed):
        mean = sum(shard.num_bytes for shard in shards.shards) / len(shards.shards)
        window = (order.window if isinstance(order, Windowed) else None) or max(round(WINDOW_BYTES / mean), 1)
    if order == "random" or isinstance(order, LengthBucketed | Windowed):
        _check_window_fits(shards, order_name(order), window)
    return window


def _check_window_fits(shards: BlockShards | DocumentShards, order: str, window: int) -> None:
    """Refuse an order that reads `window` shards at a time (0: all of them) if a bounded cache cannot keep as many.

    Raises:
        UsageError: it would fetch shards from the bucket repeatedly.
    """
    limit = CacheFiles(shards.folder).most_bytes
    sizes = sorted((shard.num_bytes for shard in shards.shards), reverse=True)
    needed = sum(sizes[:window] if window else sizes)
    if limit is None or needed <= limit:
        return
    where = f"{shards.folder}: order '{order}' reads"
    if not window:
        raise UsageError(
            f"{where} rows of all shards, {needed:,} bytes, all the time, and {limit:,} bytes of them are kept: nearly "
            "every row would be fetched again",
            hint=f"order='windowed'; or a new cache_dir with a cache_bytes of {needed} or more",
        )
    fitting = int(np.searchsorted(np.cumsum(sizes), limit // 2, side="right"))
    raise UsageError(
        f"{where} {min(window, len(sizes))} shards at a time, up to {needed:,} bytes, and {limit:,} bytes are kept",
        hint=f"Windowed(window={max(fitting, 1)}), or a new cache_dir with cache_bytes={2 * needed}: "
        "room for the next window as well",
    )


class WindowedOrder(EpochOrder):
    """Shards in random order, their rows shuffled within windows of a few shards. A slice costs that slice.

    Args as for :class:`EpochOrder`, with the number of ordered rows in each shard (`sizes`), and of shards in a window.
    If it is not shuffled, shards and rows stay in stored order, for uses that only need the windows.
    """

    def __init__(
        self,
        *,
        fingerprint: str,
        seed: int,
        sizes: Int64,
        window: int,
        shuffled: bool = True,
        rows: Int64 | None = None,
    ) -> None:
        num_items = int(sizes.sum())
        super().__init__(fingerprint=fingerprint, seed=seed, num_items=num_items, shuffled=shuffled, rows=rows)
        self._size = window
        self._sizes, self._first_rows = sizes, offsets_of(sizes)[:-1]
        self._cached_shards: tuple[int, Int64, Int64] = (-1, sizes, sizes)  # an epoch, and the result of _shards for it

    def window(self, epoch: int, position: int) -> tuple[int, int, int]:
        """Return number, first position and end (exclusive) of the window that contains a position."""
        _, bounds = self._shards(epoch)
        number = (int(np.searchsorted(bounds, position, side="right")) - 1) // self._size
        first, end = number * self._size, min((number + 1) * self._size, len(bounds) - 1)
        return number, int(bounds[first]), int(bounds[end])

    def shards_from(self, epoch: int, position: int) -> list[int]:
        """Return the shards of the window that contains a position, in the order in which the next rows need them."""
        _, first, end = self.window(epoch, position)
        next_shards, _ = self._shards_and_rows(epoch, position, min(position + SLICE, end))
        shards, bounds = self._shards(epoch)
        of_window = shards[np.searchsorted(bounds, first) : np.searchsorted(bounds, end)]
        return list(dict.fromkeys([*next_shards.tolist(), *of_window.tolist()]))

    def _indices(self, epoch: int, start: int, stop: int) -> Int64:
        shards, rows = self._shards_and_rows(epoch, start, stop)
        return self._first_rows[shards] + rows

    def _shards_and_rows(self, epoch: int, start: int, stop: int) -> tuple[Int64, Int64]:
        """Return the shard of each position in [start, stop), and its row there.  # int64[stop - start] each"""
        parts = [np.zeros(0, np.int64)]
        while start < stop:
            number, first, end = self.window(epoch, start)
            index = np.arange(start, min(stop, end), dtype=np.int64)
            if self._shuffled:
                key = permutation_key("packer.load.windowed", self.fingerprint, self.seed, epoch, number)
                index = first + permute(index - first, end - first, key)
            parts.append(index)
            start += len(index)
        positions = np.concatenate(parts)
        shards, bounds = self._shards(epoch)
        at = np.searchsorted(bounds, positions, side="right") - 1
        return shards[at], positions - bounds[at]

    def _shards(self, epoch: int) -> tuple[Int64, Int64]:
        """Return the non-empty shards in the order of an epoch, and the offsets of their rows laid end to end."""
        if self._cached_shards[0] != epoch:
            shards = np.flatnonzero(self._sizes)
            if self._shuffled:
                key = permutation_key("packer.load.windowed", self.fingerprint, self.seed, epoch)
                shards = shards[permute(np.arange(len(shards)), len(shards), key)]
            self._cached_shards = (epoch, shards, offsets_of(self._sizes[shards]))
        return self._cached_shards[1:]


class ShardPrefetcher:
    """Prefetches the shards of this window and the next one, and releases earlier ones. Not thread-safe.

    The order must not be shared with anything else.
    """

    def __init__(self, rows: CacheRows, order: WindowedOrder, fetcher: FetchAhead) -> None:
        self._rows, self._shards = rows, rows.shards
        self._order, self._fetcher = order, fetcher
        self._window: tuple[int, int] | None = None  # its epoch and number
        self._wanted: dict[int, None] = {}

    def window(self, epoch: int, position: int) -> tuple[int, int]:
        """Return epoch and number of the window that the rows from a position on begin in."""
        epoch, position = self._valid_position(epoch, position)
        return epoch, self._order.window(epoch, position)[0]

    def prefetch_from(self, epoch: int, position: int) -> None:
        """Announce that rows from this position of the order on are about to be read, and none before it."""
        epoch, position = self._valid_position(epoch, position)
        number, _, end = self._order.window(epoch, position)
        if self._window == (epoch, number):
            return
        after = self._valid_position(epoch, end)
        wanted = dict.fromkeys([*self._order.shards_from(epoch, position), *self._order.shards_from(*after)])
        self._shards.unmap(self._wanted.keys() - wanted)  # else they would occupy space even after eviction
        shards = [self._shards.shards[number] for number in wanted]
        self._fetcher.want([(shard.path, shard.num_bytes) for shard in shards])
        self._window, self._wanted = (epoch, number), wanted
        self._rows.counts.awaited = wanted  # they are read once they are here

    def _valid_position(self, epoch: int, position: int) -> tuple[int, int]:
        """Return the position itself, or the start of the next epoch if this one is over."""
        return (epoch, position) if position < self._order.num_items else (epoch + 1, 0)

    def close(self) -> None:
        """Stop fetching; :meth:`prefetch_from` resumes it."""
        self._window = None
        self._rows.counts.awaited = ()
        self._fetcher.close()
