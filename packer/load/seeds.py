"""Random numbers that belong to an example, not to the process that happens to read it.

Sampling at reading time (which crop, which negative, whether to drop a turn) repeats exactly only if its seed depends
on nothing but the run's seed, the document and the epoch. A generator that a worker or a rank carries along gives other
numbers after a resume or on another world size.

The seed is the upper 63 bits of xxh3-64 over 24 bytes: the run's seed and the epoch as unsigned, the document's id as
signed 64-bit integers, little-endian, in this order.
"""

from operator import index
from struct import Struct

import numpy as np
import numpy.typing as npt
import xxhash

from packer.batches import Int64

_HEAD = Struct("<QQ")
_DOC_ID_BYTES = 8
_MAX_UNSIGNED = 2**64 - 1
_INT64 = np.iinfo(np.int64)


def example_seed(seed: int, doc_id: int, epoch: int) -> int:
    """Seed of one document in one epoch: 0 to 2^63 - 1, the same on every worker, rank, world size and platform.

    It suits ``torch.Generator().manual_seed``, ``numpy.random.default_rng`` and ``random.Random`` alike.

    Args:
        seed: the run's seed, 0 to 2^64 - 1.
        doc_id: of the cache, any int64.
        epoch: 0 to 2^64 - 1.

    Example:
        >>> example_seed(7, -3, 0) == example_seed(7, -3, 0) != example_seed(7, -3, 1)
        True

    Raises:
        TypeError: not an integer.
        ValueError: a number out of range.

    """
    doc_id = index(doc_id)
    if not _INT64.min <= doc_id <= _INT64.max:
        raise ValueError(f"doc_id is {doc_id}; expected -2^63 to 2^63 - 1")
    return _seed_of(_head(seed, epoch) + doc_id.to_bytes(_DOC_ID_BYTES, "little", signed=True))


def example_seeds(seed: int, doc_ids: npt.NDArray[np.integer], epoch: int) -> Int64:
    """:func:`example_seed` of many documents.

    Args:
        seed: the run's seed, 0 to 2^64 - 1.
        doc_ids: integers [N] that fit int64.
        epoch: 0 to 2^64 - 1.

    Returns:
        int64 [N], 0 to 2^63 - 1

    Raises:
        TypeError: seed or epoch is not an integer.
        ValueError: a number out of range, ids of another shape or type.

    """
    head, encoded = _head(seed, epoch), _encoded(doc_ids)
    places = range(0, len(encoded), _DOC_ID_BYTES)
    return np.fromiter((_seed_of(head + encoded[at : at + _DOC_ID_BYTES]) for at in places), np.int64, len(places))


def _seed_of(encoded: bytes) -> int:
    return xxhash.xxh3_64_intdigest(encoded) >> 1


def _head(seed: int, epoch: int) -> bytes:
    numbers = index(seed), index(epoch)
    for name, number in zip(("seed", "epoch"), numbers, strict=True):
        if not 0 <= number <= _MAX_UNSIGNED:
            raise ValueError(f"{name} is {number}; expected 0 to 2^64 - 1")
    return _HEAD.pack(*numbers)


def _encoded(doc_ids: npt.NDArray[np.integer]) -> bytes:
    if doc_ids.ndim != 1 or doc_ids.dtype.kind not in "iu":
        raise ValueError(f"doc_ids are {doc_ids.dtype}{list(doc_ids.shape)}; expected integers [N]")
    if doc_ids.size and int(doc_ids.max()) > _INT64.max:
        raise ValueError(f"doc_ids go up to {doc_ids.max()}; expected -2^63 to 2^63 - 1")
    return doc_ids.astype("<i8").tobytes()
