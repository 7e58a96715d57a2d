"""Orders of one's own, and how a loader takes them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from small_blocks import small_cache  # noqa: E402
from small_documents import small_document_cache  # noqa: E402
from task_pages import order_by_length  # noqa: E402

from packer.errors import CheckError, UsageError  # noqa: E402
from packer.load import Mixture, PackedLoader  # noqa: E402

ALONE = {"rank": 0, "world_size": 1, "prefetch": 0}


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


@pytest.mark.parametrize("number", [1, 63, 65, 8192, 20_000])
def test_the_order_by_length_of_the_page_has_every_document_once_and_little_padding(number):
    lengths = np.random.default_rng(0).lognormal(4, 1, number).astype(np.int32) + 1
    orders = [order_by_length(lengths)(epoch) for epoch in range(2)]
    assert all(np.array_equal(np.sort(order), np.arange(number)) for order in orders)
    assert number < 64 or not np.array_equal(*orders)
    if number > 8000:
        batches = lengths[orders[0][: number // 16 * 16]].reshape(-1, 16)
        assert 1 - batches.sum() / (batches.max(axis=1) * 16).sum() < 0.05
        assert abs(np.corrcoef(np.arange(len(batches)), batches.mean(axis=1))[0, 1]) < 0.3, "in no order"


def test_a_function_whose_rows_come_in_the_order_of_the_files_is_a_warning():
    """As of a curriculum that picks rows and forgets to shuffle them."""
    lengths = np.array([len(document.input_ids) for document in small_document_cache(30)[1]])
    picked = np.flatnonzero(lengths < 15)
    with pytest.warns(UserWarning, match="in the order of the files; shuffle them"):
        PackedLoader(small_document_cache(30)[0], order=lambda epoch: picked, batching="padded", **ALONE)
    shuffled = np.random.default_rng(0).permutation(picked)
    PackedLoader(small_document_cache(30)[0], order=lambda epoch: shuffled, batching="padded", **ALONE)


def test_a_state_belongs_to_its_function():
    cache, _ = small_document_cache(30)
    orders = [
        lambda epoch: np.random.default_rng(epoch).permutation(30),
        lambda epoch: np.arange(30)[::-1],
        "random",
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


def test_a_mixture_takes_no_order_but_its_own():
    mixture = Mixture([(small_document_cache(12)[0], 1)])
    with pytest.raises(UsageError, match="its order is random or sequential"):
        PackedLoader(mixture, order=lambda epoch: [0], batching="padded", **ALONE)


def test_a_state_of_an_order_that_there_is_not_is_refused():
    loader = PackedLoader(small_cache(12), order=lambda epoch: np.arange(12)[::-1], **ALONE)
    with pytest.raises(CheckError, match="reader state: Invalid enum value 'curriculum'"):
        loader.load_state_dict(loader.state_dict() | {"order": "curriculum"})
