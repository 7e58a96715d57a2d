"""Preference data in the reader: pairs are the unit, in every layout, and no trainer of examples gets them."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples
from single_documents import read_document
from small_blocks import small_cache
from tiny_decoder import TinyDecoder, causal

import packer
from packer.errors import UsageError
from packer.load import EvaluationBatches, Mixture, PackedDataset, PackedLoader, Padded, answer_logps, view_batch
from packer.load.adapters import huggingface
from packer.load.attention import block_diagonal_mask
from packer.load.attention import documents_of as documents_of_batch
from packer.store.cache import Cache

NUM_PAIRS = 23
BATCHINGS = [
    "padded",
    Padded(multiple_of=8, side="right"),
    "padding_free",
    "token_budget",
]


def answer(rng):
    return " ".join(rng.choice(["one", "two", "three", "four", "five"], int(rng.integers(1, 12))))


@pytest.fixture(scope="module")
def caches(starter, tmp_path_factory):
    """Pairs with a margin, rated answers; both of random lengths."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("preference")
    pairs, rated = [], []
    for number in range(NUM_PAIRS):
        asked = [{"role": "user", "content": f"{number}: {answer(rng)}"}]
        said = [[{"role": "assistant", "content": f"{side} {answer(rng)}"}] for side in ("good", "bad")]
        pairs.append({"prompt": asked, "chosen": said[0], "rejected": said[1], "margin": number / 2})
        rated.append({"prompt": asked, "completion": said[0], "label": number % 4 == 0})
    for name, rows in (("pairs", pairs), ("rated", rated)):
        columns = {"margin": {"kind": "float32"}} if name == "pairs" else {}
        packer.build(rows, folder / name, tokenizer=str(starter / "tokenizer"), document_columns=columns)
    return folder


def loader_of(cache, **options):
    return PackedLoader(cache, **{"rank": 0, "world_size": 1, "prefetch": 0, **options})


def documents_of(cache):
    documents = cache.documents("train")
    return [read_document(documents, number) for number in range(len(documents))]


def rows_of(micro_batch):
    """The documents of a micro-batch as ids, labels and completion mask, without padding, one list each."""
    if "cu_seq_lens_q" in micro_batch:
        bounds = micro_batch["cu_seq_lens_q"].tolist()
        spans = [(0, slice(a, b)) for a, b in itertools.pairwise(bounds)]
    else:
        spans = [(row, mask.bool()) for row, mask in enumerate(micro_batch["attention_mask"])]
    names = ("input_ids", "labels", "completion_mask")
    return [[micro_batch[name][row][span].tolist() for name in names] for row, span in spans]


@pytest.mark.parametrize("batching", BATCHINGS, ids=str)
@percent_of_examples(40)
@given(
    world_size=st.integers(1, 3),
    micro=st.integers(1, 3),
    accumulation=st.integers(1, 2),
    end=st.sampled_from(["pad", "short", "drop"]),
)
def test_every_pair_is_whole_in_one_micro_batch_chosen_answers_first(
    caches, batching, world_size, micro, accumulation, end
):
    cache = Cache.open(caches / "pairs")
    documents, by_tokens = documents_of(cache), "udget" in str(batching)
    micro = 180 if by_tokens else micro
    size = world_size * micro * accumulation
    options = {"micro_batch_size": micro, "global_batch_size": size, "batching": batching, "end": end}
    loaders = [loader_of(cache, rank=rank, world_size=world_size, **options) for rank in range(world_size)]
    taken = []
    for parts in zip(*loaders, strict=True):
        slots = targets = 0
        pairs = []
        for micro_batch in (micro_batch for part in parts for micro_batch in part):
            own, found = micro_batch["pair_ids"].tolist(), rows_of(micro_batch)
            assert len(found) == 2 * len(own) == len(micro_batch["sides"])
            expected_sides = [-1 if pair < 0 else side for side in (0, 1) for pair in own]
            assert micro_batch["sides"].tolist() == expected_sides
            for place, (ids, labels, mask) in enumerate(found):
                pair, side = own[place % len(own)], place // len(own)
                if pair < 0:
                    assert (labels, mask) == ([-100], [0])
                    continue
                document = documents[2 * pair + side]
                assert document.side == ("chosen", "rejected")[side]
                assert (ids, labels) == (document.input_ids.tolist(), document.labels.tolist())
                assert mask == (document.labels != -100).astype(int).tolist()
                targets += sum(mask)
            slots += micro_batch["input_ids"].numel()
            pairs += [pair for pair in own if pair >= 0]
        assert [sorted(part.block_ids[part.block_ids >= 0].tolist()) for part in parts] == [
            sorted(pair for micro_batch in part for pair in micro_batch["pair_ids"].tolist() if pair >= 0)
            for part in parts
        ]
        for part in parts:
            assert (part.num_pairs, part.num_items_in_batch, part.num_slots) == (len(pairs), targets, slots)
            assert part.size == (part.num_tokens if by_tokens else len(pairs))
        taken += pairs
    assert len(set(taken)) == len(taken) == (NUM_PAIRS if end != "drop" else len(taken))


@pytest.mark.parametrize("batching", ["padding_free", "padded", "token_budget"])
def test_pairs_resume_on_other_ranks_and_the_loss_of_a_pair_needs_no_other_rank(caches, batching):
    size = {"padding_free": 1, "padded": 1, "token_budget": 300}[batching]

    def run(loaders):
        for _ in range(2):
            for parts in zip(*loaders, strict=True):
                pairs = sorted(pair for part in parts for mb in part for pair in mb["pair_ids"].tolist() if pair >= 0)
                assert {part.num_pairs for part in parts} == {len(pairs)}
                yield pairs, parts[0].num_items_in_batch, loaders[0].state_dict()

    def ranks(world_size):
        sizes = {"micro_batch_size": size, "global_batch_size": 6 * size, "end": "pad", "batching": batching}
        return [loader_of(caches / "pairs", rank=rank, world_size=world_size, **sizes) for rank in range(world_size)]

    whole = list(run(ranks(1)))
    for taken, (_, _, state) in enumerate(whole[:4]):
        loaders = ranks(3)
        for loader in loaders:
            loader.load_state_dict(state)
        rest = [step[:2] for step in run(loaders)]
        assert rest[: len(whole) - taken - 1] == [step[:2] for step in whole[taken + 1 :]]


MODEL = TinyDecoder(vocab_size=4096, width=8)


@pytest.fixture(scope="module")
def alone(caches):
    """The log-probability of each answer by itself."""
    found = []
    for document in documents_of(Cache.open(caches / "pairs")):
        ids, labels = (torch.from_numpy(column.astype(np.int64)) for column in (document.input_ids, document.labels))
        scores = MODEL(ids[None], torch.arange(len(ids))[None], causal(len(ids)))[0].log_softmax(-1)
        found.append(sum(scores[t - 1, ids[t]].item() for t in torch.nonzero(labels != -100).flatten().tolist()))
    return found


@pytest.mark.parametrize("batching", BATCHINGS, ids=str)
def test_log_probabilities_of_every_answer_are_those_of_the_answer_alone(caches, alone, batching):
    """In every layout, under the boundaries that its micro-batches carry."""
    cache, size = Cache.open(caches / "pairs"), 180 if "udget" in str(batching) else 3
    found = {}
    for step in loader_of(cache, batching=batching, micro_batch_size=size, end="short"):
        for micro_batch in step:
            mask = block_diagonal_mask(documents_of_batch(micro_batch)).unsqueeze(1)
            logits = MODEL(micro_batch["input_ids"], micro_batch["position_ids"], mask)
            pairs = [pair for pair in micro_batch["pair_ids"].tolist() if pair >= 0]
            for side, values in enumerate(answer_logps(logits, micro_batch)):
                found |= {2 * pair + side: value for pair, value in zip(pairs, values.tolist(), strict=True)}
    assert [found[number] for number in range(2 * NUM_PAIRS)] == pytest.approx(alone, abs=1e-9)


@pytest.mark.parametrize("batching", ["padded", "padding_free"])
def test_a_step_of_pairs_is_shown_document_by_document_and_keeps_the_contract(caches, batching):
    cache = Cache.open(caches / "pairs")
    documents = cache.documents("train")
    view = view_batch(cache, batching=batching, micro_batch_size=3, step=1)
    shown = [(part.doc_id, part.input_ids.tolist()) for part in view.parts if part.doc_id is not None]
    pairs = view.micro_batch["pair_ids"].tolist()
    numbers = [2 * pair + side for side in (0, 1) for pair in pairs]
    assert shown == [
        (read_document(documents, number).doc_id, read_document(documents, number).input_ids.tolist())
        for number in numbers
    ]
    assert view.check.ok, str(view.check)


def test_rated_answers_are_documents_with_a_side(caches):
    cache = Cache.open(caches / "rated")
    num_seen = 0
    for batching in ("padded", "padding_free"):
        for step in loader_of(cache, batching=batching, micro_batch_size=4, global_batch_size=16, end="pad"):
            assert step.num_pairs is None
            for micro_batch in step:
                assert "pair_ids" not in micro_batch
                for ids, side in zip(
                    (row[0] for row in rows_of(micro_batch)), micro_batch["sides"].tolist(), strict=True
                ):
                    document = next(each for each in documents_of(cache) if each.input_ids.tolist() == ids or side < 0)
                    assert side < 0 or ("desirable", "undesirable")[side - 2] == document.side
                    num_seen += side >= 0
    assert num_seen == 2 * NUM_PAIRS


def test_of_pairs_all_that_says_rows_says_pairs(caches):
    loader = loader_of(
        caches / "pairs", batching="padded", order=lambda _: np.arange(NUM_PAIRS)[::-1], micro_batch_size=2
    )
    assert (loader.num_blocks, loader.content) == (NUM_PAIRS, "pairs")
    assert "PackedLoader of pairs" in repr(loader)
    ids = Cache.open(caches / "pairs").documents("train").doc_ids()
    for step in loader:
        found = loader.doc_ids(step)
        assert [pair.tolist() for pair in found] == [ids[2 * pair : 2 * pair + 2].tolist() for pair in step.block_ids]
    both = loader_of(Mixture({caches / "pairs": 1, str(caches / "pairs"): 1}), batching="padding_free", end="short")
    assert {int(number) for step in both for number in step.block_ids} <= set(range(2 * NUM_PAIRS))


@pytest.mark.parametrize("name", ["pairs", "rated"])
def test_no_consumer_of_examples_gets_preference_data(name, caches):
    loader = loader_of(caches / name, batching="padded", end="short")
    for consumer in (
        lambda: PackedDataset(caches / name),
        lambda: EvaluationBatches(loader, huggingface),
        lambda: huggingface(next(iter(loader))[0], None),
    ):
        with pytest.raises(UsageError, match=r"imitate rejected answers") as caught:
            consumer()
        assert "packer.load.trainers" in caught.value.hint
    with pytest.raises(UsageError, match="cannot be mixed"):
        loader_of(Mixture({caches / name: 1, small_cache(5).folder: 1}))


@pytest.mark.parametrize("name", ["pairs", "rated"])
def test_preference_data_is_in_no_blocks_and_a_reader_says_how_it_is_batched(name, caches):
    with Cache.open(caches / name) as cache:
        assert cache.splits("blocks") == () and cache.manifest.recipe["pack"]["mode"] == "none"
    with pytest.raises(UsageError, match="there are no blocks of") as caught:
        loader_of(caches / name)
    assert "batching='padding_free'" in caught.value.hint and "packer.load.trainers" in caught.value.hint
