"""Whether ranges tile documents, against covering token by token."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from packer.audit.verify.cache_checks import count_untiled


def literal_untiled(documents, ranges):
    """Ids of which some token is not covered as often as there are documents with it, or is no token of theirs."""
    wanted, found = Counter(), Counter()
    for doc_id, length in documents:
        wanted.update((doc_id, t) for t in range(length))
    for doc_id, start, end in ranges:
        found.update((doc_id, t) for t in range(start, end))
    uncovered = {doc_id for doc_id, t in wanted.keys() | found.keys() if wanted[doc_id, t] != found[doc_id, t]}
    return len(uncovered | {doc_id for doc_id, start, end in ranges if not 0 <= start < end})


LENGTHS = {7: 5, -3: 1, 11: 9}
"""Identical documents are equally long."""


@st.composite
def cases(draw):
    documents = [(doc_id, LENGTHS[doc_id]) for doc_id in draw(st.lists(st.sampled_from(sorted(LENGTHS)), max_size=5))]
    ranges = []
    for doc_id, length in documents:
        cuts = sorted({0, length, *draw(st.lists(st.integers(0, length), max_size=3))})
        ranges += [(doc_id, start, end) for start, end in pairwise(cuts)]
    if draw(st.booleans()):
        doc_id = draw(st.sampled_from([*LENGTHS, 99]))
        ranges.append((doc_id, draw(st.integers(-1, 9)), draw(st.integers(0, 10))))
    if ranges and draw(st.booleans()):
        ranges.pop(draw(st.integers(0, len(ranges) - 1)))
    return documents, draw(st.permutations(ranges))


@given(cases())
@example(([(7, 5), (7, 5)], [(7, 0, 5), (7, 0, 3), (7, 3, 5)]))
@example(([(7, 5)], [(7, 0, 3), (7, 4, 5)]))
@example(([(7, 5)], [(7, 0, 3), (7, 2, 5)]))
@example(([(7, 5)], []))
@example(([(7, 5)], [(7, 0, 5), (7, 2, 2)]))
@example(([(7, 5)], [(7, 0, 5), (7, 1, 3), (7, 3, 1)]))
@example(([], [(7, 0, 5)]))
def test_documents_that_are_not_tiled_are_those_with_a_token_covered_another_number_of_times(case):
    documents, ranges = case
    found = count_untiled(
        np.array([doc_id for doc_id, _ in documents], np.int64),
        np.array([length for _, length in documents], np.int32),
        np.array(ranges, np.int64).reshape(-1, 3),
    )
    assert found == literal_untiled(documents, ranges)
