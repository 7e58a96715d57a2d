"""Right at every border: blocks of every mode, read every way a trainer may read them.

Every token of the documents has an id of its own, so that an id says whose token it is and which. A trainer may shift
the labels or have them shifted, and may read a block as a row or lay the rows one behind another: four readings.
"""

import numpy as np
from hypothesis import given
from pack.cases import DOCUMENT_STRIDE, PAD, arranged, corpora, make_columns, packs

from packer.layout import offsets_of
from packer.pack.pieces import gather

FORMS = {
    "isolated": {},
    "stream": {"one_run": True},
}
NOBODY = (None, None)


def gathered(corpus, pack):
    lengths, trained = corpus
    ids = [[DOCUMENT_STRIDE * (d + 1) + t for t in range(length)] for d, length in enumerate(lengths)]
    documents = [(mine, [i if t in trained[d] else -100 for t, i in enumerate(mine)]) for d, mine in enumerate(ids)]
    packed, _ = arranged(corpus, pack)
    columns = make_columns(documents, [d % 2 for d in range(len(documents))])
    return packed, gather(packed, columns, block_len=pack.block_len, pad_id=PAD, **FORMS[pack.mode])


def owner(token):
    """(document, t) of an id; padding is nobody's."""
    return NOBODY if token == PAD else (token // DOCUMENT_STRIDE - 1, token % DOCUMENT_STRIDE)


def row_targets(ids, labels, *, shifted):
    """(id predicted from, id to predict) of what one row trains, by a loss that shifts or by labels shifted before."""
    if shifted:
        labels = [*labels[1:], -100]
        return [(ids[t], label) for t, label in enumerate(labels) if label != -100]
    return [(ids[t - 1] if t else None, label) for t, label in enumerate(labels) if label != -100]


def readings(batch):
    """What is trained by each of the four readings."""
    for shape in (batch.input_ids.shape, (1, -1)):
        rows = list(zip(batch.input_ids.reshape(shape).tolist(), batch.labels.reshape(shape).tolist(), strict=True))
        for shifted in (False, True):
            yield [target for ids, labels in rows for target in row_targets(ids, labels, shifted=shifted)]


def pieces_of_row(batch, row):
    mine = slice(batch.doc_offsets[row], batch.doc_offsets[row + 1])
    columns = (batch.doc_ids, batch.doc_starts, batch.doc_lengths, batch.doc_places)
    return list(zip(*(column[mine].tolist() for column in columns), strict=True))


@given(corpora(), packs())
def test_every_target_is_predicted_from_the_token_before_it_in_its_document_in_all_four_readings(corpus, pack):
    _, trained = corpus
    packed, batch = gathered(corpus, pack)
    expected = sorted(
        (d, t)
        for d, start, length in zip(*(c.tolist() for c in (packed.document, packed.start, packed.length)), strict=True)
        for t in range(start + 1, start + length)
        if t in trained[d]
    )
    seen = 0
    for targets in readings(batch):
        for context, target in targets:
            document, t = owner(target)
            assert context is not None
            assert owner(context) == (document, t - 1)
        assert sorted(owner(target) for _, target in targets) == expected
        seen += 1
    assert seen == 4
    assert batch.num_trained.sum() == len(expected)


def aligned(length, pack):
    return -(-length // pack.align) * pack.align


def mask(numbers):
    """Who sees whom: earlier or equal, and of the same number."""
    numbers = np.asarray(numbers)
    return np.tril(numbers[:, None] == numbers[None, :])


@given(corpora(), packs(modes=("isolated",)))
def test_masks_by_documents_by_cumulative_lengths_and_by_positions_are_one_mask(corpus, pack):
    """Slots behind a piece are the piece's; padding sees padding. By rows, and flattened over all rows."""
    _, batch = gathered(corpus, pack)
    by_document, by_length, by_position = [], [], []
    for row in range(batch.num_blocks):
        pieces = pieces_of_row(batch, row)
        numbers = np.full(pack.block_len, -1)
        for number, (_, _, length, place) in enumerate(pieces):
            numbers[place : place + aligned(length, pack)] = number
        bounds = offsets_of(batch.seq_lengths[batch.seq_offsets[row] : batch.seq_offsets[row + 1]])
        by_document.append(mask(numbers))
        by_length.append(mask(np.searchsorted(bounds, np.arange(pack.block_len), side="right")))
        by_position.append(mask(np.cumsum(batch.position_ids[row] == 0)))
    for a, b, c in zip(by_document, by_length, by_position, strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(b, c)
    slots = np.arange(batch.input_ids.size)
    flat = mask(np.searchsorted(offsets_of(batch.seq_lengths), slots, side="right"))
    assert np.array_equal(flat, mask(np.cumsum(batch.position_ids.reshape(-1) == 0)))
    for row, expected in enumerate(by_document):
        here = slice(row * pack.block_len, (row + 1) * pack.block_len)
        assert np.array_equal(flat[here, here], expected)
        assert flat[here].sum() == expected.sum()


@given(corpora(), packs())
def test_no_block_has_two_pieces_of_one_document(corpus, pack):
    """All pieces of a document but the last fill their blocks: a mask may be made from document ids alone."""
    _, batch = gathered(corpus, pack)
    for row in range(batch.num_blocks):
        ids = [doc_id for doc_id, *_ in pieces_of_row(batch, row)]
        assert len(set(ids)) == len(ids)
