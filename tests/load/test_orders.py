"""Orders by weights and curricula, against their definitions; and how a loader takes them."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from small_blocks import small_cache  # noqa: E402
from small_documents import small_document_cache  # noqa: E402

from packer.errors import CheckError, UsageError  # noqa: E402
from packer.load import Mixture, PackedLoader  # noqa: E402
from packer.load.ordering import Curriculum, EpochOrder, LengthBucketed, Weighted, WeightedOrder  # noqa: E402  # noqa: E402
from packer.permute import permutation_key  # noqa: E402
from packer.store.cache import Cache  # noqa: E402

WEIGHTS = st.lists(st.integers(0, 30), min_size=1, max_size=60).filter(any)
ALONE = {"rank": 0, "world_size": 1, "prefetch": 0}


def weighted(weights, seed=0):
    return WeightedOrder(fingerprint="f00d", seed=seed, weights=np.array(weights, np.float64))


def rows_of(order, epoch):
    return order.slice(epoch=epoch, start=0, stop=order.length(epoch)).tolist()


def literal_places(weights, seed, epoch):
    """The row of each place, by points at equal distances on a line of weights, in fractions."""
    n, total = len(weights), sum(weights)
    first = Fraction(int(permutation_key("packer.load.weighted", "f00d", seed, epoch)[0]) >> 11, 2**53)
    line = [(row, Fraction(sum(weights[:row])), Fraction(sum(weights[: row + 1]))) for row in range(n)]
    points = [(place + first) * total / n for place in range(n)]
    return [next(row for row, start, end in line if start <= point < end) for point in points]


@given(weights=WEIGHTS, seed=st.integers(0, 9), epoch=st.integers(0, 9))
def test_a_weighted_epoch_is_its_places_in_the_random_order(weights, seed, epoch):
    places = literal_places(weights, seed, epoch)
    random = EpochOrder(fingerprint="f00d", seed=seed, num_items=len(weights), shuffled=True)
    assert rows_of(weighted(weights, seed), epoch) == [places[place] for place in rows_of(random, epoch)]
    counts = Counter(places)
    for row, weight in enumerate(weights):
        assert abs(counts[row] - Fraction(len(weights) * weight, sum(weights))) < 1


def test_equal_weights_are_the_random_order_and_over_epochs_rows_come_as_often_as_they_weigh():
    random = EpochOrder(fingerprint="f00d", seed=3, num_items=50, shuffled=True)
    assert rows_of(weighted([7] * 50, 3), 2) == rows_of(random, 2)
    weights = np.random.default_rng(0).lognormal(0, 1, 100)
    counts = sum(np.bincount(rows_of(weighted(weights), epoch), minlength=100) for epoch in range(400))
    assert np.abs(counts / 400 - 100 * weights / weights.sum()).max() < 0.1  # deviation of a mean 0.025 at most


@given(slices=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=4))
def test_a_slice_does_not_depend_on_what_was_asked_before(slices):
    weights = np.arange(100) % 7
    order = weighted(weights)
    for epoch, *bounds in slices:
        start, stop = sorted(bounds)
        assert (
            order.slice(epoch=epoch, start=start, stop=stop).tolist() == rows_of(weighted(weights), epoch)[start:stop]
        )


# In a loader


def documents_of(loader, epochs=1):
    return [[i for _ in range(1) for step in loader for i in step.block_ids.tolist() if i >= 0] for _ in range(epochs)]


def test_weights_may_be_of_inputs_or_a_column_and_rows_a_cutoff_leaves_out_have_none():
    cache, documents = small_document_cache(40)
    options = {"batching": "padded", "end": "short", **ALONE}
    lengths = [len(document.input_ids) for document in documents]
    by_length = documents_of(PackedLoader(cache, order=Weighted("length"), **options))
    assert by_length == documents_of(PackedLoader(cache, order=Weighted(lengths), **options))
    assert len(by_length[0]) == 40 and len(set(by_length[0])) < 40
    odd = [number % 2 for number in range(40)]
    with pytest.warns(UserWarning, match="no trained token"):
        cut, cut_odd = (PackedLoader(cache, order=Weighted(own), cutoff_len=3, **options) for own in (lengths, odd))
    assert all(odd[number] for number in documents_of(cut_odd)[0])
    taken = [number for _ in range(9) for number in documents_of(cut)[0]]
    assert not set(taken) & set(cut.untrained.tolist()) and len(taken) == 9 * (40 - len(cut.untrained))


def test_weights_of_inputs_are_those_of_their_documents(starter_cache):
    with Cache.open(starter_cache) as cache:
        paths = [entry.path for entry in cache.manifest.inputs]
        sources, _ = cache.documents("train").origins()
        own = [cache.manifest.inputs[source].path for source in sources.tolist()]
    assert len(set(own)) > 1
    weights = {path: float(number % 3) for number, path in enumerate(paths)}
    options = {"batching": "padded", "end": "short", **ALONE}
    by_input = documents_of(PackedLoader(starter_cache, order=Weighted(weights), **options))
    assert by_input == documents_of(
        PackedLoader(starter_cache, order=Weighted([weights[path] for path in own]), **options)
    )
    assert {own[number] for number in by_input[0]} == {path for path in set(own) if weights[path]}


def test_a_curriculum_gives_its_rows_in_its_order_in_epochs_of_its_length():
    cache, documents = small_document_cache(30)
    options = {"batching": "padding_free", "end": "short", "global_batch_size": 4, **ALONE}
    lengths = [len(document.input_ids) for document in documents]
    ascending = sorted(range(30), key=lambda number: (lengths[number], number))
    assert documents_of(PackedLoader(cache, order=Curriculum("length"), **options), 2) == [ascending, ascending]
    loader = PackedLoader(cache, order=Curriculum(lambda epoch: ascending[: 10 * (epoch + 1)]), **options)
    assert loader.steps_until(3) == 3 + 5 + 8
    for epoch, num_steps in enumerate((3, 5, 8)):
        assert (len(loader), loader.steps_left, loader.num_blocks) == (num_steps, num_steps, 10 * (epoch + 1))
        assert documents_of(loader) == [ascending[: 10 * (epoch + 1)]]
    backwards = PackedLoader(small_cache(5), order=Curriculum(np.arange(5)[::-1]), **ALONE)
    assert documents_of(backwards) == [[4, 3, 2, 1, 0]]


def test_a_state_belongs_to_its_weights_its_curriculum_and_its_window():
    cache, _ = small_document_cache(30)
    orders = [
        Weighted("length"),
        Weighted(np.arange(30)),
        Curriculum("length"),
        Curriculum(lambda epoch: np.arange(30)),
        LengthBucketed(window=8),
        "length_bucketed",
    ]
    states = [PackedLoader(cache, order=order, batching="padded", **ALONE).state_dict() for order in orders]
    for own, order in enumerate(orders):
        for other, state in enumerate(states):
            loader = PackedLoader(cache, order=order, batching="padded", **ALONE)
            if own == other:
                loader.load_state_dict(state)
                continue
            with pytest.raises(CheckError, match="saved with order"):
                loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (Weighted([1.0] * 11), r"weights of shape \(11,\); expected 12 numbers"),
        (Weighted([-1.0] + [1] * 11), "none below 0"),
        (Weighted([float("nan")] * 12), "12 numbers"),
        (Weighted([0] * 12), "no row of .* has a weight above 0"),
        (Weighted("width"), "expected random, sequential"),
        (Curriculum([0, 12]), "expected some of the rows 0 to 11"),
        (Curriculum(lambda epoch: []), "expected the numbers of rows|expected some of"),
        (Curriculum([0.5]), "expected the numbers of rows"),
        (LengthBucketed(window=0), "window is 0"),
        ("weighted", "expected random, sequential"),
    ],
)
def test_what_is_no_order_is_refused(order, message):
    with pytest.raises(ValueError, match=message):
        PackedLoader(small_document_cache(12)[0], order=order, batching="padded", **ALONE)


def test_weights_by_input_name_every_input_and_blocks_have_none():
    with pytest.raises(UsageError, match=r"one for each input file, without a\.jsonl"):
        PackedLoader(small_document_cache(12)[0], order=Weighted({"a.jsonl": 1}), batching="padded", **ALONE)
    with pytest.raises(UsageError, match="a block may contain documents of several"):
        PackedLoader(small_cache(12), order=Weighted({}), **ALONE)
    with pytest.raises(UsageError, match="so do the proportions"):
        PackedLoader(Mixture([(small_cache(12), 1)]), order=Curriculum("length"), **ALONE)
