"""Pairs in blocks: whole, side by side, each exactly once; or dropped whole with a reason."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pack.oracles import literal_best_fit_decreasing, literal_first_fit_decreasing, literal_next_fit
from whole_documents import rules_of

from packer.pack import REASONS, arrange_pairs

LITERAL = {
    "best_fit": literal_best_fit_decreasing,
    "first_fit": literal_first_fit_decreasing,
    "sequential": literal_next_fit,
}

lengths_of_pairs = st.lists(st.tuples(st.integers(1, 16), st.integers(1, 16)), max_size=40)


@st.composite
def rules(draw):
    align = draw(st.sampled_from([1, 1, 2, 4]))
    return {
        "block_len": align * draw(st.integers(2, 24 // align)),
        "strategy": draw(st.sampled_from(sorted(LITERAL))),
        "min_length": draw(st.integers(1, 4)),
        "max_documents": draw(st.none() | st.integers(2, 7)),
        "align": align,
        "seed": draw(st.integers(0, 99)),
    }


def padded(length, align):
    return -(-length // align) * align


def counted(document, start, end):
    return end - start - 1


@given(lengths_of_pairs, rules())
def test_a_pair_that_fits_is_whole_in_one_block_and_the_others_are_dropped_whole(pairs, options):
    lengths = np.array(pairs, np.int32).reshape(-1)
    planned, dropped = arrange_pairs(lengths, rules_of(**options), counted)
    block_len, align = options["block_len"], options["align"]
    slots_of = [padded(a, align) + padded(b, align) for a, b in pairs]
    short = [min(pair) < options["min_length"] for pair in pairs]
    fits = [i for i, slots in enumerate(slots_of) if slots <= block_len and not short[i]]
    documents = planned.document.tolist()
    assert [number % 2 for number in documents] == [0, 1] * (len(documents) // 2)
    assert [number // 2 for number in documents[::2]] == [number // 2 for number in documents[1::2]]
    assert sorted(documents[::2]) == [2 * i for i in fits]
    assert planned.start.tolist() == [0] * len(documents)
    assert planned.length.tolist() == lengths[documents].tolist()
    assert planned.slots.tolist() == [padded(length, align) for length in lengths[documents].tolist()]
    found = []
    for first, last in zip(planned.block_offsets[:-1].tolist(), planned.block_offsets[1:].tolist(), strict=True):
        assert (last - first) % 2 == 0
        found.append([slots_of[number // 2] for number in documents[first:last:2]])
        assert sum(found[-1]) <= block_len
    most = None if options["max_documents"] is None else options["max_documents"] // 2
    expected = LITERAL[options["strategy"]]([slots_of[i] for i in fits], block_len, most)
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
    gone = [i for i in range(len(pairs)) if i not in fits]
    assert dropped.document.tolist() == [number for i in gone for number in (2 * i, 2 * i + 1)]
    assert dropped.length.tolist() == lengths[dropped.document].tolist()
    assert dropped.start.tolist() == [0] * len(dropped.document)
    assert [REASONS[code] for code in dropped.reason] == [
        "too_short" if short[i] else "overlong" for i in gone for _ in range(2)
    ]
    assert dropped.trained.tolist() == [length - 1 for length in dropped.length.tolist()]
