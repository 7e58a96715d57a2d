"""Blocks hold the documents' tokens, each once, and no target across a border."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack.cases import PAD, make_columns, make_documents
from pack.oracles import literal_blocks
from whole_documents import cut_documents, plan_pieces, plan_whole

from packer.pack.pieces import gather


def assert_is_literal(batch, packed, documents, block_len, **form):
    blocks = literal_blocks(packed, documents, block_len, PAD, **form)
    assert batch.num_blocks == len(blocks)
    for row, (ids, labels, positions, runs, pieces) in enumerate(blocks):
        assert batch.input_ids[row].tolist() == ids
        assert batch.labels[row].tolist() == labels
        assert batch.position_ids[row].tolist() == positions
        assert batch.seq_lengths[batch.seq_offsets[row] : batch.seq_offsets[row + 1]].tolist() == runs
        mine = slice(batch.doc_offsets[row], batch.doc_offsets[row + 1])
        columns = (batch.doc_ids, batch.doc_starts, batch.doc_lengths, batch.doc_places)
        found = list(zip(*(column[mine].tolist() for column in columns), strict=True))
        assert found == [(31 * document + 5, *rest) for document, *rest in pieces]
        assert batch.length[row] == sum(length for _, _, length, _ in pieces)
        assert batch.num_trained[row] == sum(label != -100 for label in labels)


@st.composite
def cases(draw, max_documents=40):
    lengths = draw(st.lists(st.integers(0, 20), max_size=max_documents))
    block_len = draw(st.integers(1, 24))
    chunks = draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)))
    return make_documents(lengths), block_len, chunks


def gather_all(packed, columns, block_len, **form):
    return gather(packed, columns, block_len=block_len, pad_id=PAD, **form)


def plan_of(documents, block_len, **options):
    return plan_whole(np.array([len(ids) for ids, _ in documents], np.int32), block_len, **options)


@given(cases(), st.sampled_from([1, 1, 2, 3, 8]))
def test_blocks_are_those_of_the_literal_layout(case, align):
    documents, block_len, chunks = case
    packed = plan_of(documents, block_len * align, align=align)
    batch = gather_all(packed, make_columns(documents, chunks), block_len * align)
    assert_is_literal(batch, packed, documents, block_len * align)
    assert not (batch.seq_lengths[: batch.seq_offsets[-1]] % align).any()


@given(cases(), st.lists(st.integers(0, 3), min_size=40, max_size=40), st.booleans())
def test_blocks_with_slots_behind_pieces_are_those_of_the_literal_layout(case, behind, one_run):
    documents, block_len, chunks = case
    lengths = np.array([len(ids) for ids, _ in documents], np.int32)
    pieces, _ = cut_documents(lengths, block_len, lambda d, s, e: np.ones_like(d), overlong="split")
    packed = plan_pieces(pieces, block_len)
    packed = replace(packed, slots=packed.length + np.resize(behind, len(packed.length)).astype(np.int32))
    block_len = 4 * block_len  # room for three slots behind pieces of one token
    batch = gather_all(packed, make_columns(documents, chunks), block_len, one_run=one_run)
    assert_is_literal(batch, packed, documents, block_len, one_run=one_run)


@given(cases(), st.data())
def test_blocks_do_not_depend_on_how_many_are_gathered_at_once(case, data):
    documents, block_len, chunks = case
    packed, columns = plan_of(documents, block_len), make_columns(documents, chunks)
    whole = gather_all(packed, columns, block_len)
    first = data.draw(st.integers(0, packed.num_blocks))
    last = data.draw(st.integers(first, packed.num_blocks))
    part = gather_all(packed.between(first, last), columns, block_len)
    assert part.seq_offsets[0] == part.doc_offsets[0] == 0
    for name in ("input_ids", "labels", "position_ids", "length", "num_trained"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[first:last]), name
    columns_of = {"seq_offsets": ["seq_lengths"], "doc_offsets": ["doc_ids", "doc_starts", "doc_lengths", "doc_places"]}
    for values, offsets in ((values, offsets) for offsets, names in columns_of.items() for values in names):
        bounds = getattr(whole, offsets)[[first, last]]
        assert np.array_equal(getattr(part, values), getattr(whole, values)[bounds[0] : bounds[1]]), values


def test_no_blocks_give_arrays_of_no_rows():
    batch = gather_all(plan_of([], 8), make_columns([], []), 8)
    assert batch.input_ids.shape == batch.labels.shape == batch.position_ids.shape == (0, 8)
    assert batch.seq_offsets.tolist() == batch.doc_offsets.tolist() == [0]


def test_a_block_with_too_many_tokens_is_refused():
    documents = make_documents([3, 4])
    with pytest.raises(ValueError, match="block 0 takes 7 slots; expected at most 6"):
        gather_all(plan_of(documents, 8), make_columns(documents, [0, 1]), 6)
