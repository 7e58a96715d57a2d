"""Cutting documents: each token in one piece or in the ledger, and nothing kept that trains nothing."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pack.cases import OVERLONG, counter_of, trained_documents
from pack.oracles import literal_cut
from whole_documents import cut_documents

from packer.pack.pieces import REASONS, DropCount


def cut_all(case, block_len, overlong):
    lengths = np.array(case[0], np.int32)
    return cut_documents(lengths, block_len, counter_of(*case), overlong=overlong)


def rows(ranges):
    return list(zip(ranges.document.tolist(), ranges.start.tolist(), ranges.length.tolist(), strict=True))


overlongs = st.sampled_from(OVERLONG)


@given(trained_documents(), st.integers(1, 12), overlongs)
def test_pieces_and_ledger_are_those_of_the_literal_cut(case, block_len, overlong):
    pieces, left_out = cut_all(case, block_len, overlong)
    expected, reasons = literal_cut(*case, block_len, overlong)
    assert rows(pieces) == [(document, tokens[0], len(tokens)) for document, tokens in expected]
    found = {}
    for (document, start, length), reason in zip(rows(left_out), left_out.reason.tolist(), strict=True):
        found.update({(document, t): REASONS[reason] for t in range(start, start + length)})
    assert found == reasons
    assert left_out.length.sum() == len(reasons)


@given(trained_documents(), st.integers(1, 12), overlongs)
def test_a_document_that_is_nowhere_counts_once_under_the_reason_that_decided(case, block_len, overlong):
    pieces, left_out = cut_all(case, block_len, overlong)
    _, reasons = literal_cut(*case, block_len, overlong)
    nowhere = set(range(len(case[0]))) - set(pieces.document.tolist())
    expected = dict.fromkeys(REASONS, 0)
    for document in nowhere:
        mine = {reason for (d, _), reason in reasons.items() if d == document}
        if mine:
            expected[next(name for name in ("overlong", "untrained", "truncated") if name in mine)] += 1
    is_packed = np.array([document not in nowhere for document in range(len(case[0]))], np.bool_)
    losses = left_out.counts(is_packed)
    assert {name: loss.num_documents for name, loss in losses.items()} == expected
    tokens = {name: list(reasons.values()).count(name) for name in REASONS}
    assert {name: loss.num_tokens for name, loss in losses.items()} == tokens


def test_a_whole_document_that_is_kept_is_not_asked_about():
    asked = []

    def count(document, start, end):
        asked.extend(document.tolist())
        return end - start

    pieces, _ = cut_documents([3, 20, 0, 5], 8, count, overlong="split")
    assert rows(pieces) == [(0, 0, 3), (1, 0, 8), (1, 8, 8), (1, 16, 4), (3, 0, 5)]
    assert set(asked) == {1}


def test_reasons_are_named_with_what_they_cost():
    _, left_out = cut_all(([20, 3], [{5, 6}, {1}]), 8, "reject")
    assert left_out.counts(np.array([False, True])) == {
        "overlong": DropCount(num_documents=1, num_parts=1, num_tokens=20, num_trained=2),
        "truncated": DropCount(num_documents=0, num_parts=0, num_tokens=0, num_trained=0),
        "untrained": DropCount(num_documents=0, num_parts=0, num_tokens=0, num_trained=0),
    }
    assert left_out.num_piece_start == 0


@given(trained_documents(), st.data())
def test_trained_tokens_of_a_range_are_counted(case, data):
    lengths, trained = case
    count = counter_of(lengths, trained)
    picks = [d for d, length in enumerate(lengths) if length]
    ranges = []
    for document in data.draw(st.lists(st.sampled_from(picks), max_size=10)) if picks else []:
        start = data.draw(st.integers(0, lengths[document]))
        ranges.append((document, start, data.draw(st.integers(start, lengths[document]))))
    document, start, end = np.array(ranges, np.int64).reshape(-1, 3).T
    assert count(document, start, end).tolist() == [len(trained[d] & set(range(s, e))) for d, s, e in ranges]
