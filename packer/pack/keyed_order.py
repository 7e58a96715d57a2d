"""Orders items by decreasing size, and equal ones by a keyed hash.

Documents of equal length are interchangeable to the packer. Taken in source order, neighbors would share a block;
taken in the order of a hash of their number, they land in blocks far apart.

This takes one sort of 64-bit numbers. From the top, a number consists of how much smaller the item is than the largest,
a hash of the item's number in the remaining bits, and the item's number itself. No two are equal, so every sorting
algorithm produces the same order. With ten million items and sizes up to 4,096, 27 bits remain for the hash; items with
equal hashes come in source order.

Worked example: sizes [7, 9, 7], largest 9, and hashes 5, 1, 3: the numbers are (2, 5, 0), (0, 1, 1) and
(2, 3, 2), and the order is 1, 2, 0.

The hash is the output function of splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
OOPSLA 2014) of the number plus the key. Its last step is omitted, as it would not change the upper 31 bits.
"""

import numpy as np

from packer.batches import Int32, Int64, UInt64
from packer.permute import permutation_key

_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def order_key(*parts: int | str) -> np.uint64:
    """Return a key that is a pure function of the parts, on every platform."""
    key: np.uint64 = permutation_key(*parts)[0]
    return key


def keyed_order(sizes: Int32, key: np.uint64) -> Int64:
    """Return the items by decreasing size, equal ones in the order of the hash.  # int64[N]

    Args:
        sizes: at least 0.  # int32[N], N < 2^32
        key: from :func:`order_key`.
    """
    index = np.arange(len(sizes), dtype=np.uint64)
    largest = int(sizes.max(initial=0))
    size_bits, index_bits = largest.bit_length(), max(len(sizes) - 1, 0).bit_length()
    index_mask = np.uint64(2**index_bits - 1)
    numbers = _hash(index + key)
    numbers >>= np.uint64(size_bits)
    numbers &= np.uint64(2 ** (64 - size_bits) - 1) ^ index_mask
    numbers |= index
    if size_bits:
        numbers |= (largest - sizes).astype(np.uint64) << np.uint64(64 - size_bits)
    numbers.sort()
    numbers &= index_mask
    return numbers.view(np.int64)


def shuffled(n: int, key: np.uint64) -> Int64:
    """Return a permutation of ``range(n)``, n < 2^32.  # int64[n]"""
    return keyed_order(np.zeros(n, np.int32), key)


def _hash(numbers: UInt64) -> UInt64:
    for shift, multiplier in _ROUNDS:
        numbers ^= numbers >> shift
        numbers *= multiplier
    return numbers
