"""Orders of one's own: sampled by weight, against the definition; and how a loader takes them."""

import pickle
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
from packer.load.ordering import weighted  # noqa: E402
from packer.permute import permutation_key, permute  # noqa: E402

WEIGHTS = st.lists(st.integers(0, 30), min_size=1, max_size=60).filter(any)
ALONE = {"rank": 0, "world_size": 1, "prefetch": 0}


def literal_places(weights, seed, epoch):
    """The row of each place, by points at equal distances on a line of weights, in fractions."""
    n, total = len(weights), sum(weights)
    first = Fraction(int(permutation_key("packer.load.weighted", seed, epoch)[0]) >> 11, 2**53)
    line = [(row, Fraction(sum(weights[:row])), Fraction(sum(weights[: row + 1]))) for row in range(n)]
    points = [(place + first) * total / n for place in range(n)]
    return [next(row for row, start, end in line if start <= point < end) for point in points]


@given(weights=WEIGHTS, seed=st.integers(0, 9), epoch=st.integers(0, 9))
def test_a_weighted_epoch_is_its_places_shuffled(weights, seed, epoch):
    places, n = literal_places(weights, seed, epoch), len(weights)
    shuffled = permute(np.arange(n), n, permutation_key("packer.load.weighted", seed, epoch))
    rows = weighted(weights, seed=seed)
    assert (
        rows(epoch).tolist()
        == [places[place] for place in shuffled]
        == pickle.loads(pickle.dumps(rows))(epoch).tolist()
    )
    counts = Counter(places)
    for row, weight in enumerate(weights):
        assert abs(counts[row] - Fraction(n * weight, sum(weights))) < 1


def test_of_equal_weights_every_row_comes_once_and_over_epochs_rows_come_as_often_as_they_weigh():
    assert sorted(weighted([7] * 50, seed=3)(2).tolist()) == list(range(50))
    weights = np.random.default_rng(0).lognormal(0, 1, 100)
    rows = weighted(weights)
    counts = sum(np.bincount(rows(epoch), minlength=100) for epoch in range(400))
    assert np.abs(counts / 400 - 100 * weights / weights.sum()).max() < 0.1  # deviation of a mean 0.025 at most


# In a loader


def documents_of(loader, epochs=1):
    return [[i for _ in range(1) for step in loader for i in step.block_ids.tolist() if i >= 0] for _ in range(epochs)]


def test_a_function_of_the_epoch_gives_its_rows_in_its_order_in_epochs_of_its_length():
    cache, documents = small_document_cache(30)
    options = {"batching": "padding_free", "end": "short", "global_batch_size": 4, **ALONE}
    lengths = [len(document.input_ids) for document in documents]
    ascending = sorted(range(30), key=lambda number: (lengths[number], number))
    assert documents_of(PackedLoader(cache, order=lambda epoch: ascending, **options), 2) == [ascending, ascending]
    loader = PackedLoader(cache, order=lambda epoch: ascending[: 10 * (epoch + 1)], **options)
    assert loader.steps_until(3) == 3 + 5 + 8
    for epoch, num_steps in enumerate((3, 5, 8)):
        assert (len(loader), loader.steps_left, loader.num_blocks) == (num_steps, num_steps, 10 * (epoch + 1))
        assert documents_of(loader) == [ascending[: 10 * (epoch + 1)]]
    backwards = PackedLoader(small_cache(5), order=lambda epoch: np.arange(5)[::-1], **ALONE)
    assert documents_of(backwards) == [[4, 3, 2, 1, 0]]


def test_a_function_whose_rows_come_in_the_order_of_the_files_is_a_warning():
    """As of a curriculum that picks rows and forgets to shuffle them."""
    lengths = np.array([len(document.input_ids) for document in small_document_cache(30)[1]])
    picked = np.flatnonzero(lengths < 15)
    with pytest.warns(UserWarning, match="in the order of the files; shuffle them"):
        PackedLoader(small_document_cache(30)[0], order=lambda epoch: picked, batching="padded", **ALONE)
    shuffled = np.random.default_rng(0).permutation(picked)
    PackedLoader(small_document_cache(30)[0], order=lambda epoch: shuffled, batching="padded", **ALONE)


def test_a_state_belongs_to_its_weights_and_its_function():
    cache, _ = small_document_cache(30)
    orders = [
        weighted(np.ones(30)),
        weighted(np.arange(30)),
        weighted(np.arange(30), seed=1),
        lambda epoch: np.arange(30)[::-1],
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
        (weighted([1.0] * 11), "weights of 11 rows; the split has 12"),
        (lambda epoch: [0, 12], "expected some of the rows 0 to 11"),
        (lambda epoch: [-1], "expected some of the rows 0 to 11"),
        (lambda epoch: [], "expected the numbers of rows"),
        (lambda epoch: [0.5], "expected the numbers of rows"),
        (lambda epoch: [True], "expected the numbers of rows"),
        (dict, "expected random, sequential"),
        ("shuffled", "expected random, sequential"),
    ],
)
def test_what_is_no_order_is_refused(order, message):
    with pytest.raises(ValueError, match=message):
        PackedLoader(small_document_cache(12)[0], order=order, batching="padded", **ALONE)


@pytest.mark.parametrize("weights", [[-1.0, 1], [float("nan")], [0, 0], [], [[1, 2]], 3])
def test_what_are_no_weights_is_refused(weights):
    with pytest.raises(ValueError, match="none below 0, some above"):
        weighted(weights)


def test_a_mixture_takes_no_function_of_the_epoch():
    with pytest.raises(UsageError, match="so do the shares"):
        PackedLoader(Mixture([(small_cache(12), 1)]), order=lambda epoch: [0], **ALONE)


def test_a_state_of_an_order_that_there_is_not_is_refused():
    loader = PackedLoader(small_cache(12), order=weighted(np.ones(12)), **ALONE)
    with pytest.raises(CheckError, match="reader state: Invalid enum value 'curriculum'"):
        loader.load_state_dict(loader.state_dict() | {"order": "curriculum"})
