"""The packers people use, run beside packer's own: the same documents in, the same blocks out.

`trl.pack_dataset` packs, TRL's and transformers' padding-free collators lay out. What is asked of both: as many rows,
filled as deep, the same borders, positions and labels. Where they differ, on purpose:

| | the library | packer |
| --- | --- | --- |
| rows | in the order they were opened | in a keyed-permuted order, so that a reader sees a mixture |
| documents of one length | dealt in source order | dealt by a keyed hash, so that neighbors do not share a block |
| of equally full rows | the one that became so first | the one that was opened first |
| the rest of a row | not there, rows are ragged | a padding run, the last of `seq_lengths`: batches have one shape |
| a document of which nothing trained is left | kept | left out, and in the ledger |
| wrapped: a document's first token, in a row | a target | masked, its predecessor is of another document |
"""

from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pack.cases import PAD, counter_of, make_columns
from search_effort import percent_of_examples

from packer.layout import offsets_of
from packer.pack.pack_plan import arrange, order_key, shuffled
from packer.pack.pieces import gather
from packer.recipe.groups import Pack

MODES = {"isolated": {}, "stream": {"one_run": True}}

# An example maps a data set or collates tensors: milliseconds, so half as many.
modest = percent_of_examples(50)


@pytest.fixture(autouse=True, scope="module")
def _libraries():
    """Imported when the first test runs: it takes seconds, and every worker collects, but not every one runs these."""
    pytest.importorskip("trl", reason="TRL MISSING: its packing is not compared; pip install trl to run these tests")
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("transformers")
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def documents_of(lengths):
    """Documents whose ids say whose they are and which: token t of document d is 1000 + 100·d + t."""
    assert max(lengths, default=0) < 100
    return [list(range(1000 + 100 * d, 1000 + 100 * d + n)) for d, n in enumerate(lengths)]


def trl_packed(documents, seq_length, strategy, **columns):
    """Columns of the rows TRL packs."""
    import datasets
    import trl

    whole = {"input_ids": documents, **columns}
    features = datasets.Features({name: datasets.List(datasets.Value("int64")) for name in whole})
    return trl.pack_dataset(datasets.Dataset.from_dict(whole, features), seq_length, strategy)[:]


def packed(documents, pack, labels=None):
    """Packer's blocks; without labels, of documents that are trained throughout."""
    labels = [[-100, *ids[1:]][: len(ids)] for ids in documents] if labels is None else labels
    lengths = [len(ids) for ids in documents]
    trained = [{t for t, label in enumerate(mine) if t and label != -100} for mine in labels]
    columns = make_columns(list(zip(documents, labels, strict=True)), [0] * len(documents))
    planned, _ = arrange(np.array(lengths, np.int32), pack, counter_of(lengths, trained))
    return gather(planned, columns, block_len=pack.block_len, pad_id=PAD, **MODES[pack.mode])


def rows_of(batch):
    """(ids, labels, run lengths) of each block, without its padding."""
    rows = []
    for row in range(batch.num_blocks):
        runs = batch.seq_lengths[batch.seq_offsets[row] : batch.seq_offsets[row + 1]].tolist()
        filled = batch.input_ids.shape[1] - batch.input_ids[row].tolist().count(PAD)
        if filled < batch.input_ids.shape[1]:
            assert runs.pop() == batch.input_ids.shape[1] - filled
        rows.append((batch.input_ids[row, :filled].tolist(), batch.labels[row, :filled].tolist(), runs))
    return rows


def literal_rows(lengths, capacity, *, among_equals):
    """Best-fit decreasing, item by item; of equally full bins, the one ``opened`` first, or the one ``filled`` so first."""
    bins = []  # [lengths, when it came to be so full]
    for now, length in enumerate(sorted(lengths, reverse=True)):
        holding = [number for number, (items, _) in enumerate(bins) if sum(items) + length <= capacity]
        if not holding:
            bins.append([[length], now])
            continue
        fullest = max(sum(bins[number][0]) for number in holding)
        holding = [number for number in holding if sum(bins[number][0]) == fullest]
        chosen = bins[min(holding, key=lambda n: n if among_equals == "opened" else bins[n][1])]
        chosen[0].append(length)
        chosen[1] = now
    return [items for items, _ in bins]


lengths_of_documents = st.lists(st.integers(0, 30), min_size=1, max_size=40).filter(any)
block_lens = st.integers(2, 40)


def assert_same_rows(found, batch, lengths, block_len):
    """TRL's rows and packer's: as many, as full, with the borders that their rules among equals give."""
    ours = rows_of(batch)
    assert len(found["input_ids"]) == batch.num_blocks
    assert sorted(map(len, found["input_ids"])) == sorted(batch.length.tolist())
    assert sorted(chain(*found["input_ids"])) == sorted(chain(*(ids for ids, _, _ in ours)))
    assert found["seq_lengths"] == literal_rows(lengths, block_len, among_equals="filled")
    expected = literal_rows(lengths, block_len, among_equals="opened")
    assert Counter(tuple(runs) for _, _, runs in ours) == Counter(map(tuple, expected))


@modest
@given(lengths_of_documents, block_lens, st.integers(0, 9))
@example([6, 4, 4, 2, 1], 9, 0)
def test_best_fit_packs_as_many_rows_as_trl_bfd_with_the_same_borders(lengths, block_len, seed):
    """TRL truncates what is longer than a row; of packer that is asked for."""
    documents = documents_of(lengths)
    found = trl_packed(documents, block_len, "bfd")
    batch = packed(documents, Pack(block_len=block_len, overlong="truncate_right", seed=seed))
    assert_same_rows(found, batch, [min(n, block_len) for n in lengths if n], block_len)


@modest
@given(lengths_of_documents, block_lens)
@example([30, 25, 13, 7], 12)
def test_best_fit_of_split_documents_packs_as_trl_bfd_split_but_for_lone_tokens(lengths, block_len):
    """A cut may leave one token over: masked as the first of its piece, it trains nothing, and packer leaves it out.

    TRL keeps it. So TRL is given the documents without it.
    """
    documents = documents_of(lengths)
    kept = [ids[:-1] if len(ids) > block_len and len(ids) % block_len == 1 else ids for ids in documents]
    found = trl_packed(kept, block_len, "bfd_split")
    batch = packed(documents, Pack(block_len=block_len, overlong="split"))
    pieces = [min(block_len, len(ids) - start) for ids in kept for start in range(0, len(ids), block_len)]
    assert_same_rows(found, batch, pieces, block_len)


def goes_on(ids):
    """Whether a row has two tokens of one document: then the second can be trained."""
    return any(b == a + 1 for a, b in pairwise(ids))


@modest
@given(lengths_of_documents, st.integers(1, 40))
def test_the_stream_is_trl_wrapped_with_the_first_tokens_masked(lengths, block_len):
    """Of the documents as packer shuffles them, in blocks that it shuffles, too; and without rows in which every token is
    the first of its document or row: they train nothing.
    """
    documents = documents_of(lengths)
    order = shuffled(len(documents), order_key("pack.stream", 0, 0)).tolist()
    wrapped = trl_packed([documents[number] for number in order], block_len, "wrapped")["input_ids"]
    ours = rows_of(packed(documents, Pack(mode="stream", block_len=block_len)))
    assert sorted(ids for ids, _, _ in ours) == sorted(ids for ids in wrapped if goes_on(ids))
    assert all(runs == [len(ids)] for ids, _, runs in ours)
    for ids, labels, _ in ours:
        assert labels == [-100] + [b if b == a + 1 else -100 for a, b in pairwise(ids)]


def trl_collator(**options):
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    return DataCollatorForLanguageModeling(pad_token_id=PAD, **options)


def flattening_collator(**options):
    from transformers import DataCollatorWithFlattening

    return DataCollatorWithFlattening(**options)


def collated(batch, **options):
    """Packer's blocks through TRL's collator."""
    examples = []
    for row in range(batch.num_blocks):
        runs = batch.seq_lengths[batch.seq_offsets[row] : batch.seq_offsets[row + 1]]
        columns = {"input_ids": batch.input_ids[row], "labels": batch.labels[row], "seq_lengths": runs}
        examples.append({name: values.tolist() for name, values in columns.items()})
    return trl_collator(**options)(examples)


modes = st.sampled_from(sorted(MODES))


@modest
@given(lengths_of_documents, block_lens, modes, st.data())
def test_trls_padding_free_collator_finds_packers_runs_positions_and_labels(lengths, block_len, mode, data):
    documents = documents_of(lengths)
    labels = [[token if data.draw(st.booleans()) else -100 for token in ids] for ids in documents]
    align = data.draw(st.sampled_from([1, 4])) if mode == "isolated" else 1
    batch = packed(documents, Pack(mode=mode, block_len=block_len * align, align=align), labels)
    assume(batch.num_blocks)
    found = collated(batch, padding_free=True)
    for name in ("input_ids", "labels", "position_ids"):
        assert found[name].tolist() == [getattr(batch, name).reshape(-1).tolist()], name
    assert found["cu_seq_lens_q"].tolist() == offsets_of(batch.seq_lengths).tolist()
    assert found["max_length_q"] == batch.seq_lengths.max()
    assert found["seq_idx"].tolist() == [np.repeat(np.arange(len(batch.seq_lengths)), batch.seq_lengths).tolist()]


def features_of(batch):
    """Every run of packer's blocks as a feature of its own, as a trainer that does not pack would have them."""
    bounds = offsets_of(batch.seq_lengths).tolist()
    flat = {name: getattr(batch, name).reshape(-1).tolist() for name in ("input_ids", "labels")}
    return [{name: values[a:b] for name, values in flat.items()} for a, b in pairwise(bounds)]


@modest
@given(lengths_of_documents, block_lens)
def test_labels_the_libraries_make_of_documents_are_packers_where_all_is_trained(lengths, block_len):
    """Given no labels, both train every token but the first of a document. Padding there is none."""
    batch = packed(documents_of(lengths), Pack(block_len=block_len))
    assume(batch.num_blocks)
    rows = rows_of(batch)
    documents = [
        {"input_ids": feature["input_ids"]} for feature in features_of(batch) if set(feature["input_ids"]) != {PAD}
    ]
    for collator in (
        flattening_collator(),
        trl_collator(padding_free=True),
    ):
        found = collator(documents)
        assert found["input_ids"].tolist() == [[token for ids, _, _ in rows for token in ids]]
        assert found["labels"].tolist() == [[label for _, labels, _ in rows for label in labels]]
