"""Cutting documents: each token in one piece or in the ledger, and nothing kept that trains nothing."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pack.cases import OVERLONG, counter_of, trained_documents
from pack.oracles import literal_cut
from whole_documents import cut_documents, plan_pieces

from packer.pack import REASONS
from packer.pack.overlong import DropCount


def cut_all(case, block_len, overlong, min_length=1):
    lengths = np.array(case[0], np.int32)
    return cut_documents(lengths, block_len, counter_of(*case), overlong=overlong, min_length=min_length)


def rows(ranges):
    return list(zip(ranges.document.tolist(), ranges.start.tolist(), ranges.length.tolist(), strict=True))


overlongs = st.sampled_from(OVERLONG)


@given(trained_documents(), st.integers(1, 12), overlongs, st.integers(1, 14))
def test_pieces_and_ledger_are_those_of_the_literal_cut(case, block_len, overlong, min_length):
    pieces, left_out = cut_all(case, block_len, overlong, min_length)
    expected, reasons = literal_cut(*case, block_len, overlong, min_length)
    assert rows(pieces) == [(document, tokens[0], len(tokens)) for document, tokens in expected]
    found = {}
    for (document, start, length), reason in zip(rows(left_out), left_out.reason.tolist(), strict=True):
        found.update({(document, t): REASONS[reason] for t in range(start, start + length)})
    assert found == reasons
    assert left_out.length.sum() == len(reasons)


@given(trained_documents(), st.integers(1, 12), overlongs, st.integers(1, 5))
def test_each_token_and_each_trained_token_is_accounted_for_once(case, block_len, overlong, min_length):
    lengths, trained = case
    pieces, left_out = cut_all(case, block_len, overlong, min_length)
    everything = sorted((d, t) for d, length in enumerate(lengths) for t in range(length))
    covered = [(d, t) for d, start, length in rows(pieces) + rows(left_out) for t in range(start, start + length)]
    assert sorted(covered) == everything
    losses = left_out.counts(np.zeros(len(lengths), np.bool_))
    in_pieces = sum(len(trained[d] & set(range(start + 1, start + length))) for d, start, length in rows(pieces))
    in_ledger = sum(loss.num_trained for loss in losses.values())
    assert in_pieces + in_ledger + left_out.num_piece_start == sum(map(len, trained))
    assert pieces.length.sum() + sum(loss.num_tokens for loss in losses.values()) == len(everything)
    assert [len(trained[d] & set(range(s, s + n))) for d, s, n in rows(left_out)] == left_out.trained.tolist()


@given(trained_documents(), st.integers(1, 12), overlongs)
def test_every_piece_of_a_cut_document_trains_something(case, block_len, overlong):
    lengths, trained = case
    pieces, _ = cut_all(case, block_len, overlong)
    for document, start, length in rows(pieces):
        assert length <= block_len
        assert length == lengths[document] or trained[document] & set(range(start + 1, start + length))


@given(trained_documents(), st.integers(1, 12), overlongs, st.integers(1, 5))
def test_pieces_are_in_source_order_and_can_be_placed(case, block_len, overlong, min_length):
    pieces, _ = cut_all(case, block_len, overlong, min_length)
    assert rows(pieces) == sorted(rows(pieces))
    packed = plan_pieces(pieces, block_len)
    assert sorted(rows(packed)) == rows(pieces)
    assert [getattr(pieces, name).dtype for name in ("document", "start", "length")] == [np.int64, np.int64, np.int32]


@given(trained_documents(), st.integers(1, 12), overlongs, st.integers(1, 14))
def test_a_document_that_is_nowhere_counts_once_under_the_reason_that_decided(case, block_len, overlong, min_length):
    pieces, left_out = cut_all(case, block_len, overlong, min_length)
    _, reasons = literal_cut(*case, block_len, overlong, min_length)
    nowhere = set(range(len(case[0]))) - set(pieces.document.tolist())
    expected = dict.fromkeys(REASONS, 0)
    for document in nowhere:
        mine = {reason for (d, _), reason in reasons.items() if d == document}
        if mine:
            expected[next(name for name in ("overlong", "untrained", "too_short", "truncated") if name in mine)] += 1
    is_packed = np.array([document not in nowhere for document in range(len(case[0]))], np.bool_)
    losses = left_out.counts(is_packed)
    assert {name: loss.num_documents for name, loss in losses.items()} == expected
    tokens = {name: list(reasons.values()).count(name) for name in REASONS}
    assert {name: loss.num_tokens for name, loss in losses.items()} == tokens


def ten_tokens(trained):
    return [10], [set(trained)]


def test_truncate_right_keeps_the_first_tokens_and_appends_nothing():
    pieces, left_out = cut_all(ten_tokens(range(1, 10)), 4, "truncate_right")
    assert rows(pieces) == [(0, 0, 4)]
    assert rows(left_out) == [(0, 4, 6)]
    assert left_out.trained.tolist() == [6]
    assert left_out.num_piece_start == 0


def test_truncate_left_keeps_the_last_tokens_and_counts_the_label_of_the_first():
    pieces, left_out = cut_all(ten_tokens(range(1, 10)), 4, "truncate_left")
    assert rows(pieces) == [(0, 6, 4)]
    assert rows(left_out) == [(0, 0, 6)]
    assert left_out.trained.tolist() == [5]
    assert left_out.num_piece_start == 1


def test_split_cuts_consecutive_pieces_the_last_one_shorter():
    pieces, left_out = cut_all(ten_tokens(range(1, 10)), 4, "split")
    assert rows(pieces) == [(0, 0, 4), (0, 4, 4), (0, 8, 2)]
    assert rows(left_out) == []
    assert left_out.num_piece_start == 2


def test_a_piece_trained_at_its_first_token_alone_is_left_out_with_that_token():
    pieces, left_out = cut_all(([9], [{1, 2, 4}]), 4, "split")
    assert rows(pieces) == [(0, 0, 4)]
    assert rows(left_out) == [(0, 4, 4), (0, 8, 1)]
    assert left_out.counts(np.array([True]))["untrained"].num_trained == 1
    assert left_out.num_piece_start == 0


def test_a_split_that_ends_with_a_block_has_no_empty_piece():
    pieces, left_out = cut_all(([8], [set(range(1, 8))]), 4, "split")
    assert rows(pieces) == [(0, 0, 4), (0, 4, 4)]
    assert rows(left_out) == []


def test_a_whole_document_that_is_kept_is_not_asked_about():
    asked = []

    def count(document, start, end):
        asked.extend(document.tolist())
        return end - start

    pieces, _ = cut_documents([3, 20, 0, 5], 8, count, overlong="split")
    assert rows(pieces) == [(0, 0, 3), (1, 0, 8), (1, 8, 8), (1, 16, 4), (3, 0, 5)]
    assert set(asked) == {1}


def test_reasons_are_named_with_what_they_cost():
    _, left_out = cut_all(([2, 20, 3], [{1}, {5, 6}, {1}]), 8, "reject", min_length=3)
    assert left_out.counts(np.array([False, False, True])) == {
        "too_short": DropCount(num_documents=1, num_parts=1, num_tokens=2, num_trained=1),
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
