"""Mixtures: proportions exact to within one row at every point, no row twice before its cache is through."""

from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples
from small_blocks import random_blocks, small_cache, write_cache
from small_documents import small_document_cache

from packer.errors import CheckError, UsageError
from packer.load import Mixture, PackedLoader
from packer.load.mixture import MixtureOrder
from packer.load.ordering import EpochOrder
from packer.store.cache import Cache
from packer.store.manifest import write_manifest

weights = st.lists(st.integers(1, 1000), min_size=2, max_size=7)


def shares_of(weights):
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


def order_of(weights, sizes, num_items=10**9, **place):
    orders = [EpochOrder(fingerprint=f"{i}", seed=0, num_items=size, shuffled=True) for i, size in enumerate(sizes)]
    return MixtureOrder(orders, shares_of(weights), num_items, bases=np.cumsum([0, *sizes])[:-1].tolist(), **place)


def literal_choice(shares, number):
    """Tijdeman's rule as his paper words it, in fractions."""
    K, chosen = len(shares), []
    lead, slack = [Fraction(0)] * K, max(2 * K - 2, 1)
    for _ in range(number):
        lead = [one + share for one, share in zip(lead, shares, strict=True)]
        eligible = [k for k in range(K) if lead[k] >= Fraction(1, slack)]
        k = min(eligible, key=lambda k: ((1 - Fraction(1, slack) - lead[k]) // shares[k], k))
        lead[k] -= 1
        chosen.append(k)
    return chosen


def caches_of(rows, sizes):
    bounds = np.cumsum([0, *sizes])
    return (np.searchsorted(bounds, rows, side="right") - 1).tolist()


@percent_of_examples(60)
@given(weights=weights, number=st.integers(1, 60))
def test_the_choice_of_caches_is_tijdemans(weights, number):
    sizes = [50] * len(weights)
    rows = order_of(weights, sizes).rows(0, 0, number)
    assert caches_of(rows, sizes) == literal_choice(shares_of(weights), number)


@given(weights=weights)
def test_at_every_point_each_cache_has_given_its_share_to_within_one_row(weights):
    sizes, number = [10_000] * len(weights), 2000
    rows = order_of(weights, sizes).rows(0, 0, number)
    chosen = np.array(caches_of(rows, sizes))
    bound = 1 - 1 / (2 * len(weights) - 2)
    for k, weight in enumerate(weights):
        share = weight / sum(weights) * np.arange(1, number + 1)
        assert np.abs(np.cumsum(chosen == k) - share).max() <= bound + 1e-9


@given(
    weights=weights,
    sizes=st.lists(st.integers(1, 30), min_size=7, max_size=7),
    slices=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 40)), max_size=6),
)
def test_a_slice_does_not_depend_on_what_was_asked_before(weights, sizes, slices):
    sizes = sizes[: len(weights)]
    asked = order_of(weights, sizes, num_items=40)
    for epoch, *bounds in slices:
        start, stop = sorted(bounds)
        fresh = order_of(weights, sizes, num_items=40)
        before = fresh.taken(epoch=epoch, cursor=start)
        expected = fresh.rows(epoch, start, stop)
        assert asked.rows(epoch, start, stop).tolist() == expected.tolist()
        resumed = order_of(weights, sizes, num_items=40, start=40 * epoch + start, taken=before)
        assert resumed.rows(epoch, start, stop).tolist() == expected.tolist()
        assert resumed.taken(epoch=epoch, cursor=stop) == fresh.taken(epoch=epoch, cursor=stop)


def test_a_row_comes_again_only_after_all_rows_of_its_cache():
    sizes = [7, 12, 5]
    rows = order_of([5, 2, 1], sizes).rows(0, 0, 400)
    chosen = np.array(caches_of(rows, sizes))
    for k, (size, base) in enumerate(zip(sizes, np.cumsum([0, *sizes]), strict=False)):
        own = rows[chosen == k]
        assert len(own) > 3 * size
        for start in range(0, len(own) - size, size):
            assert sorted(own[start : start + size]) == list(range(base, base + size))


def test_long_orders_forget_what_lies_behind_and_count_on():
    weights, sizes = [3, 2, 1], [100, 100, 100]
    order = order_of(weights, sizes)
    for start in range(0, 30_000, 512):
        rows = order.rows(0, start, start + 512)
    assert len(order._picks) < 10_000
    fresh = order_of(weights, sizes, start=start, taken=order.taken(epoch=0, cursor=start))
    assert fresh.rows(0, start, start + 512).tolist() == rows.tolist()
    first = order_of(weights, sizes).rows(0, 5, 50)
    assert order.rows(0, 5, 50).tolist() == first.tolist()


def test_golden_order():
    rows = order_of([7, 2, 1], [10, 10, 10]).rows(0, 0, 20)
    assert caches_of(rows, [10, 10, 10]) == [0, 0, 1, 0, 0, 2, 0, 0, 1, 0, 0, 0, 1, 0, 0, 2, 0, 0, 1, 0]
    assert rows.tolist() == GOLDEN


GOLDEN = [0, 5, 11, 3, 9, 22, 2, 1, 18, 4, 8, 7, 16, 6, 3, 24, 8, 9, 19, 0]


# In the loader


def loader_of(source, **options):
    return PackedLoader(
        source, **{"micro_batch_size": 1, "global_batch_size": 4, "rank": 0, "world_size": 1, **options}
    )


def mixed(proportions=(3, 1), sizes=None, **options):
    sizes = sizes or (13, 6, 9)[: len(proportions)]
    caches = [small_cache(size, fingerprint=f"cac{i}") for i, size in enumerate(sizes)]
    return Mixture(list(zip(caches, proportions, strict=True)), **options)


def test_blocks_of_a_mixture_are_those_of_its_caches_numbered_through():
    mixture = mixed()
    stored = [
        cache.blocks("train").read(np.arange(size)).input_ids
        for cache, size in zip(mixture.caches, (13, 6), strict=True)
    ]
    whole = np.concatenate(stored)
    num_seen = 0
    for step in loader_of(mixture, flatten=False):
        for block, micro_batch in zip(step.block_ids, step, strict=True):
            assert micro_batch["input_ids"][0].tolist() == whole[block].tolist()
            num_seen += 1
    assert num_seen == 16


@pytest.mark.parametrize(
    ("epoch", "num_items"),
    [("first_exhausted", 17), ("all_exhausted", 24)],  # 13 / 0.75 = 17.3 and 6 / 0.25 = 24
)
def test_an_epoch_ends_where_it_says(epoch, num_items):
    loader = loader_of(mixed(epoch=epoch), global_batch_size=1)
    assert loader.num_blocks == num_items
    counts = np.bincount([int(step.block_ids[0]) for step in loader], minlength=19)
    assert counts.sum() == num_items
    assert (counts.max() == 1) if epoch == "first_exhausted" else (counts.min() == 1)


@given(
    proportions=st.lists(st.integers(1, 20), min_size=2, max_size=4),
    sizes=st.lists(st.integers(1, 30), min_size=4, max_size=4),
)
def test_epochs_hold_no_row_twice_or_every_row_once(proportions, sizes):
    sizes = sizes[: len(proportions)]
    shares = shares_of(proportions)
    for end, holds in (
        ("first_exhausted", lambda counts: counts.max() <= 1),
        ("all_exhausted", lambda counts: counts.min() >= 1),
    ):
        mixture = Mixture.__new__(Mixture)
        mixture.epoch = end
        num_items = mixture.num_items(shares, sizes)
        rows = order_of(proportions, sizes, num_items).rows(0, 0, num_items)
        assert len(rows) == 0 or holds(np.bincount(rows, minlength=sum(sizes)))


def test_of_a_mixture_by_tokens_whole_passes_have_the_proportions_in_tokens():
    parts = [small_document_cache(n, longest=long, seed=long, fingerprint=f"{n}") for n, long in ((30, 40), (50, 6))]
    sums = [sum(len(document.input_ids) for document in documents) for _, documents in parts]
    mixture = Mixture([(cache, share) for (cache, _), share in zip(parts, (1, 2), strict=True)], by="tokens")
    loader = loader_of(mixture, batching="padding_free", global_batch_size=1, end="short")
    plans = loader.plans(last_epoch=59)
    rows = np.concatenate([plan.rows for plan in plans])
    passes = np.array([np.count_nonzero(rows < 30) / 30, np.count_nonzero(rows >= 30) / 50])
    tokens = passes * sums
    assert passes.min() > 5
    assert abs(tokens[0] / tokens.sum() - 1 / 3) < 0.01


def test_proportions_and_contents_are_part_of_the_state():
    state = loader_of(mixed()).state_dict()
    loader_of(mixed((30, 10))).load_state_dict(state)
    for other, difference in (
        (mixed((3, 2)), r"shares \('3/4', '1/4'\), this reader has \('3/5', '2/5'\)"),
        (mixed((1, 3)), "shares"),
        (mixed(epoch="all_exhausted"), "fingerprint"),
        (Mixture(list(zip(reversed(mixed().caches), (3, 1), strict=True))), "fingerprint"),
    ):
        with pytest.raises(CheckError, match=difference):
            loader_of(other, global_batch_size=4).load_state_dict(state)


@pytest.mark.parametrize("taken", [None, [1, 1], [0, 4], [3, 1, 0], [4, 1]])
def test_counts_that_are_not_the_shares_of_the_cursor_are_refused(taken):
    loader = loader_of(mixed())
    next(iter(loader))
    state = loader.state_dict()
    assert state["taken"] == [3, 1]
    with pytest.raises(CheckError, match="taken of each cache"):
        loader_of(mixed()).load_state_dict({**state, "taken": taken})


def test_what_cannot_be_mixed_is_refused(tmp_path):
    with pytest.raises(UsageError, match="block lengths cannot be mixed: 8, 16"):
        loader_of(Mixture([(small_cache(5), 1), (small_cache(5, 16), 1)]))
    with pytest.raises(UsageError, match="expected a number above 0"):
        mixed((1, 0))
    with pytest.raises(UsageError, match="at least one cache"):
        Mixture({})
    with pytest.raises(ValueError, match="first_exhausted"):
        mixed(epoch="some")
    other = write_cache(tmp_path / "other", [random_blocks(3)], fingerprint="0")
    manifest = Cache.open(other).manifest
    larger = msgspec.structs.replace(manifest.model, vocab_size=51)
    write_manifest(other, msgspec.structs.replace(manifest, model=larger))
    with pytest.raises(UsageError, match="their tokenizers differ"):
        Mixture({str(small_cache(5).folder): 0.5, str(other): 0.5})
