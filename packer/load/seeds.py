"""Random seeds that belong to an example, not to the process that happens to read it.

Sampling at reading time (which crop, which negative, whether to drop a turn) is only reproducible if its seed depends
on nothing but the run's seed, the document and the epoch. A generator kept by a worker or a rank yields other
numbers after a resume or on another world size.

The seed is the upper 63 bits of xxh3-64 over 24 bytes: the run's seed and the epoch as unsigned, the document's id as
signed 64-bit integers, little-endian, in this order.
"""

from operator import index
from struct import Struct
from typing import Literal

import xxhash

_NUMBERS = Struct("<QQq")
_MAX_UNSIGNED = 2**64 - 1


def example_seed(seed: int, doc_id: int, epoch: int, *, bits: Literal[32, 63] = 63) -> int:
    """Return the seed of one document in one epoch: below 2^63, the same on every rank and platform.

    It does not depend on the number of workers or ranks either. It suits ``torch.Generator().manual_seed``,
    ``numpy.random.default_rng`` and ``random.Random``; with 32 bits (the upper ones) also ``numpy.random.seed`` and
    ``RandomState``.

    Args:
        seed: the run's seed, 0 to 2^64 - 1.
        doc_id: document id from the cache, any int64.
        epoch: 0 to 2^64 - 1.
        bits: 63 or 32.

    Example:
        >>> example_seed(7, -3, 0) == example_seed(7, -3, 0) != example_seed(7, -3, 1)
        True

    Raises:
        TypeError: not an integer.
        ValueError: a number out of range.
    """
    seed, doc_id, epoch = index(seed), index(doc_id), index(epoch)
    if not -(2**63) <= doc_id < 2**63:
        raise ValueError(f"doc_id is {doc_id}; expected -2^63 to 2^63 - 1")
    for name, number in (("seed", seed), ("epoch", epoch)):
        if not 0 <= number <= _MAX_UNSIGNED:
            raise ValueError(f"{name} is {number}; expected 0 to 2^64 - 1")
    if bits not in (32, 63):
        raise ValueError(f"bits is {bits!r}; expected 32 or 63")
    return xxhash.xxh3_64_intdigest(_NUMBERS.pack(seed, epoch, doc_id)) >> (64 - bits)
