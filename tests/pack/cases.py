"""Documents to pack, the rules to pack them by, and the columns they lie in."""

from typing import get_args, get_type_hints

import numpy as np
from hypothesis import strategies as st

from packer.batches import DocumentColumns
from packer.layout import offsets_of
from packer.pack.pack_plan import arrange
from packer.pack.pieces import trained_counter
from packer.recipe.groups import Pack

OVERLONG = get_args(get_type_hints(Pack)["overlong"])

PAD = 7
DOCUMENT_STRIDE = 1000  # id of token t of document d: d · 1000 + 1000 + t


@st.composite
def corpora(draw, max_documents=12, max_length=24):
    """Lengths and the trained tokens of each document; the first is never trained."""
    lengths = draw(st.lists(st.integers(0, max_length), max_size=max_documents))
    trained = [draw(st.sets(st.integers(1, length - 1))) if length > 1 else set() for length in lengths]
    return lengths, trained


def counter_of(lengths, trained):
    runs = []
    for tokens in trained:
        mine = []
        for t in sorted(tokens):
            if mine and mine[-1][1] == t:
                mine[-1][1] = t + 1
            else:
                mine.append([t, t + 1])
        runs.append(mine)
    flat = np.array([run for mine in runs for run in mine], np.int32).reshape(-1, 2)
    return trained_counter(offsets_of(lengths), offsets_of([len(mine) for mine in runs]), flat[:, 0], flat[:, 1])


@st.composite
def packs(draw, modes=("isolated", "stream"), max_block_len=24):
    """Rules as a recipe may have them."""
    mode = draw(st.sampled_from(modes))
    align = draw(st.sampled_from([1, 1, 2, 3])) if mode == "isolated" else 1
    cuts = {} if mode == "stream" else {"overlong": draw(st.sampled_from(OVERLONG))}
    return Pack(
        mode=mode,
        block_len=align * draw(st.integers(1, max_block_len // align)),
        align=align,
        seed=draw(st.integers(0, 2**63 - 1)),
        **cuts,
    )


def arranged(corpus, pack, dtype=np.int32, **options):
    """The plan and the ledger of a corpus."""
    lengths, trained = corpus
    return arrange(np.array(lengths, dtype), pack, counter_of(lengths, trained), **options)


def make_documents(lengths, seed=0):
    """(ids, labels) of each document; some begin with a label, which no block may keep."""
    random = np.random.default_rng(seed)
    documents = []
    for number, length in enumerate(lengths):
        ids = [DOCUMENT_STRIDE * (number + 1) + t for t in range(length)]
        trained = random.random(length) < 0.6
        documents.append((ids, [i if on else -100 for i, on in zip(ids, trained, strict=True)]))
    return documents


def make_columns(documents, chunk_of):
    """Columns with document i in chunk ``chunk_of[i]``; a chunk holds its documents in order, with a few stray tokens before."""
    num_chunks = max(chunk_of, default=0) + 1
    flat = [([-1] * c, [-1] * c) for c in range(num_chunks)]
    start = []
    for document, c in zip(documents, chunk_of, strict=True):
        start.append(len(flat[c][0]))
        for column, values in zip(flat[c], document, strict=True):
            column.extend(values)
    return DocumentColumns(
        input_ids=tuple(np.array(columns[0], np.int32) for columns in flat),
        labels=tuple(np.array(columns[1], np.int32) for columns in flat),
        chunk=np.array(chunk_of, np.int32),
        start=np.array(start, np.int64),
        length=np.array([len(ids) for ids, _ in documents], np.int32),
        doc_id=np.arange(len(documents), dtype=np.int64) * 31 + 5,
    )
