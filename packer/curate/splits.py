"""Which split a row is in: by a hash of its key, or by its time.

By hash, every key has a number u from 0 to 2^64, xxh3-64 of the key with the seed. Test is laid from 0 upwards and
validation from 2^64 downwards, so that either share can grow and no row leaves the split it is in; and a row's split
depends on no other row, so that rows that are added move none.
"""

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from packer.batches import Int32, Int64, UInt64
from packer.row_rules import Split, time_of

TRAIN, VALIDATION, TEST = range(3)
NAMES = ("train", "validation", "test")


def split_by_hash(keys: UInt64, rule: Split) -> Int32:
    """The split of each key: 0 train, 1 validation, 2 test.  # int32[M]"""
    content = memoryview(keys.astype("<u8").tobytes())
    numbers = (xxh3_64_intdigest(content[i : i + 8], rule.seed) for i in range(0, len(content), 8))
    u = np.fromiter(numbers, np.uint64, len(keys))
    found = np.full(len(keys), TRAIN, np.int32)
    found[u < np.uint64(int(rule.shares.test * 2**64))] = TEST
    top = int(rule.shares.validation * 2**64)
    if top:
        found[u >= np.uint64(2**64 - top)] = VALIDATION
    return found


def split_by_time(times: Int64, rule: Split) -> Int32:
    """The split of each time: before the first cutoff 0, from a cutoff on 1 (validation) or 2 (test).  # int32[M]

    Args:
        times: microseconds since 1970.  # int64[M]
        rule: its cutoffs ascend.

    """
    found = np.full(len(times), TRAIN, np.int32)
    for name, text in ((VALIDATION, rule.cutoffs.validation), (TEST, rule.cutoffs.test)):
        if text is not None:
            found[times >= time_of(text, rule)] = name
    return found


def straddling(groups: UInt64, split: Int32) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows whose group has a row in an earlier split, and of each the first such row.

    The later row goes: what is known of a group before the cutoff must not be asked again after it, and rows that
    arrive later change nothing of those that are there.

    Worked example: groups a, b, a in train, train, validation: row 2 goes, as row 0 is of its group.

    Args:
        groups: of each row.  # uint64[M]
        split: of each row; a larger number is later.  # int32[M]

    """
    order = np.argsort(split, kind="stable")
    _, first, group = np.unique(groups[order], return_index=True, return_inverse=True)
    first = order[first[group.reshape(-1)]]
    late = split[order] > split[first]
    return order[late], first[late]
