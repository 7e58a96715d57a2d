"""Orders of one's own, and how a loader takes them."""

import numpy as np
import pytest
from small_blocks import small_cache
from small_documents import small_document_cache

from packer.errors import CheckError, UsageError
from packer.load import Mixture, PackedLoader

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


def test_a_function_whose_rows_come_in_the_order_of_the_files_is_a_warning():
    """As of a curriculum that picks rows and forgets to shuffle them."""
    lengths = np.array([len(document.input_ids) for document in small_document_cache(30)[1]])
    picked = np.flatnonzero(lengths < 15)
    with pytest.warns(UserWarning, match="in the order of the files; shuffle them"):
        PackedLoader(small_document_cache(30)[0], order=lambda epoch: picked, batching="padded", **ALONE)
    shuffled = np.random.default_rng(0).permutation(picked)
    PackedLoader(small_document_cache(30)[0], order=lambda epoch: shuffled, batching="padded", **ALONE)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (lambda epoch: [0, 12], "expected some of the rows 0 to 11"),
        (lambda epoch: [-1], "expected some of the rows 0 to 11"),
        (lambda epoch: [], "expected the numbers of rows"),
        (lambda epoch: [0.5], "expected the numbers of rows"),
        (lambda epoch: [True], "expected the numbers of rows"),
        (lambda epoch: [[0], [1]], "expected the numbers of rows"),
        (lambda epoch: np.zeros(0, np.int64), "expected some of the rows 0 to 11"),
        (dict, "expected random, sequential"),
        ("shuffled", "expected random, sequential"),
    ],
)
def test_what_is_no_order_is_refused(order, message):
    with pytest.raises(ValueError, match=message):
        PackedLoader(small_document_cache(12)[0], order=order, batching="padded", **ALONE)


def test_a_mixture_takes_no_order_but_its_own():
    for order in ("length_bucketed", lambda epoch: [0]):
        with pytest.raises(UsageError, match="its order is random or sequential"):
            PackedLoader(Mixture([(small_document_cache(12)[0], 1)]), order=order, batching="padded", **ALONE)


def test_a_state_of_an_order_that_there_is_not_is_refused():
    loader = PackedLoader(small_cache(12), order=lambda epoch: np.arange(12)[::-1], **ALONE)
    with pytest.raises(CheckError, match="reader state: Invalid enum value 'curriculum'"):
        loader.load_state_dict(loader.state_dict() | {"order": "curriculum"})
