"""An order of items by decreasing size in which equal ones come as a keyed hash has them.

Documents of equal length are interchangeable to the packer. Taken in source order, neighbours would share a block;
taken in the order of a hash of their number, they land in blocks far apart.

One sort of 64-bit numbers does it. From the top, a number holds how much smaller the item is than the largest, a hash
of the item's number in the bits that are left, and the item's number itself. No two are equal, so every sorting
algorithm gives the same order. With ten million items and sizes up to 4,096, 27 bits are left for the hash; items whose
hashes are equal come in source order.

Worked example: sizes [7, 9, 7], largest 9, and a hash that gives 5, 1, 3: the numbers are (2, 5, 0), (0, 1, 1) and
(2, 3, 2), and the order is 1, 2, 0.

The hash is the output function of splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
OOPSLA 2014) of the number plus the key. Its last step is left out, as it would not change the upper 31 bits.
"""

import numpy as np

from packer.batches import Int32, UInt64
from packer.permute import permutation_key

MAX_ITEMS = 2**32 - 1

_SLICE = 2**15  # items at a time: the keys and two work arrays, 768 KiB, stay in the cache
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def order_key(*parts: int | str) -> np.uint64:
    """A key that is a pure function of the parts, on every platform."""
    key: np.uint64 = permutation_key(*parts)[0]
    return key


def sorted_items(keys: UInt64, num_items: int) -> UInt64:
    """Sort keys of :func:`order_keys` in place, and make of them the item numbers in that order.  # uint64[N]"""
    keys.sort()
    keys &= _index_mask(num_items)
    return keys


def shuffled(n: int, key: np.uint64) -> UInt64:
    """A permutation of ``range(n)``, n < 2^32.  # uint64[n]"""
    return sorted_items(order_keys(np.zeros(n, np.int32), key), n)


def order_keys(sizes: Int32, key: np.uint64) -> UInt64:
    """Numbers whose order is that of decreasing sizes, equal ones in the order of the hash.  # uint64[N]

    Args:
        sizes: at least 0.  # int32[N], N < 2^32
        key: from :func:`order_key`.

    """
    largest = int(sizes.max(initial=0))
    size_bits = largest.bit_length()
    index_mask = _index_mask(len(sizes))
    hash_mask = np.uint64(2 ** (64 - size_bits) - 1) ^ index_mask
    keys = np.empty(len(sizes), np.uint64)
    work = np.empty(min(len(sizes), _SLICE), np.uint64)
    for first in range(0, len(sizes), _SLICE):
        part = keys[first : first + _SLICE]
        spare = work[: len(part)]
        index = np.arange(first, first + len(part), dtype=np.uint64)
        _hash(index, key, part, spare)
        part >>= np.uint64(size_bits)
        part &= hash_mask
        part |= index
        if size_bits:
            np.subtract(largest, sizes[first : first + _SLICE], out=spare, casting="unsafe")
            spare <<= np.uint64(64 - size_bits)
            part |= spare
    return keys


def _index_mask(num_items: int) -> np.uint64:
    return np.uint64(2 ** max(num_items - 1, 0).bit_length() - 1)


def _hash(numbers: UInt64, key: np.uint64, out: UInt64, work: UInt64) -> None:
    np.add(numbers, key, out=out)
    for shift, multiplier in ((30, _MULTIPLIER_1), (27, _MULTIPLIER_2)):
        np.right_shift(out, np.uint64(shift), out=work)
        np.bitwise_xor(out, work, out=out)
        np.multiply(out, multiplier, out=out)
