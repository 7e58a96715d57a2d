"""The keyed permutation: a bijection, the same everywhere, and without a pattern."""

from math import isqrt

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from packer.permute import MAX_N, NUM_ROUNDS, permutation_key, permute

MASK_64 = 2**64 - 1
GOLDEN_KEY = [
    17566454435991023845,
    4145033115758175069,
    12309519377338605687,
    8580856419534003080,
    4047024981424832360,
    6688930774996304873,
]
GOLDEN_IMAGES = {
    10: [6, 0, 1, 9],
    1000: [167, 525, 843, 676],
    1000000000: [375231506, 652400635, 910588280, 131473675],
    MAX_N: [1723555930255498576, 1350101236114982059, 117976860659856492, 620473478403012122],
}
"""Of the first two numbers, of the one in the middle and of the last."""


def splitmix64(value):
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK_64
    return value ^ (value >> 31)


def literal_permute(number, n, key):
    """One number, with Python's integers and real remainders."""
    a = next(side for side in (isqrt(n), isqrt(n) + 1) if side * side >= n)
    b = (n + a - 1) // a
    while True:
        right, left = divmod(number, a)
        for round_number, round_key in enumerate(key.tolist()):
            if round_number % 2 == 0:
                left = (left + (splitmix64((right + round_key) & MASK_64) >> 32) * a // 2**32) % a
            else:
                right = (right + (splitmix64((left + round_key) & MASK_64) >> 32) * b // 2**32) % b
        number = left + a * right
        if number < n:
            return number


def test_the_hash_is_the_published_splitmix64():
    # the generator seeded with 0 gives the output function of multiples of its constant
    gamma = 0x9E3779B97F4A7C15
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [splitmix64(step * gamma & MASK_64) for step in (1, 2, 3)] == expected


def test_golden_keys():
    assert permutation_key("packer", 7).tolist() == GOLDEN_KEY
    encoded = b"s6:packeri1:7"
    assert [xxhash.xxh3_64_intdigest(encoded, seed=seed) for seed in range(6)] == GOLDEN_KEY


@pytest.mark.parametrize("n", GOLDEN_IMAGES)
def test_golden_images(n):
    index = np.array([0, 1, n // 2, n - 1])
    assert permute(index, n, permutation_key("packer", 7)).tolist() == GOLDEN_IMAGES[n]


def test_keys_distinguish_type_value_order_and_borders():
    parts = [(), ("",), (1,), ("1",), (-1,), (1, 2), (2, 1), (12,), ("ab",), ("a", "b"), ("b", "a"), ("é",), (2**200,)]
    keys = {tuple(permutation_key(*each).tolist()) for each in parts}
    assert len(keys) == len(parts)
    assert all(len(set(key)) == NUM_ROUNDS for key in keys)


def test_every_n_up_to_300_is_a_bijection():
    checked = 0
    for n in range(1, 301):
        index = np.arange(n)
        for seed in range(3):
            key = permutation_key("bijection", seed)
            image = permute(index, n, key)
            assert np.array_equal(np.sort(image), index)
            checked += 1
    assert checked == 900


@given(n=st.integers(1, 50_000), seed=st.integers())
def test_larger_domains_are_permuted_without_loss(n, seed):
    index = np.arange(n)
    key = permutation_key(seed)
    image = permute(index, n, key)
    assert np.array_equal(np.sort(image), index)
    assert np.array_equal(permute(index[::-3], n, key), image[::-3])


@given(n=st.integers(1, MAX_N), seed=st.integers(0, 2**63), data=st.data())
def test_images_equal_the_literal_definition(n, seed, data):
    key = permutation_key("literal", seed)
    numbers = data.draw(st.lists(st.integers(0, n - 1), max_size=8))
    image = permute(np.array(numbers, np.uint64), n, key)
    assert image.tolist() == [literal_permute(number, n, key) for number in numbers]


@pytest.mark.parametrize("n", [1_000, 10_007, *(pytest.param(n, marks=pytest.mark.slow) for n in (99_999, 2**17))])
def test_images_have_the_dispersion_of_a_random_permutation(n):
    """Of the n differences of neighbors modulo n, a random permutation shows a share of 1 - 1/e; fixed points number one."""
    fixed_points = []
    for seed in range(30):
        image = permute(np.arange(n), n, permutation_key("dispersion", seed))
        differences = np.diff(image, append=image[:1]) % n
        distinct = len(np.unique(differences)) / n
        assert abs(distinct - (1 - np.exp(-1))) < 2 / np.sqrt(n)  # the share's deviation is below 0.5 / √n
        fixed_points.append(np.count_nonzero(image == np.arange(n)))
    assert 0.3 < np.mean(fixed_points) < 1.7  # 1 ± 0.18
    assert max(fixed_points) <= 7


def test_shape_is_kept_and_the_index_is_not_written():
    index = np.arange(12, dtype=np.int32).reshape(3, 4)
    image = permute(index, 12, permutation_key(0))
    assert image.shape == (3, 4)
    assert image.dtype == np.int64
    assert np.array_equal(index.reshape(-1), np.arange(12))
    assert np.array_equal(image.reshape(-1), permute(np.arange(12), 12, permutation_key(0)))
    assert permute(np.empty(0, np.int64), 5, permutation_key(0)).tolist() == []


@pytest.mark.parametrize(
    ("index", "n", "match"),
    [
        (np.array([0]), 0, "n is 0"),
        (np.array([0]), MAX_N + 1, "n is"),
        (np.array([5]), 5, "range"),
        (np.array([-1]), 5, "range"),
        (np.array([1.0]), 5, "integers"),
        (np.array([2**63], np.uint64), 5, "range"),
    ],
)
def test_numbers_outside_the_domain_are_refused(index, n, match):
    with pytest.raises(ValueError, match=match):
        permute(index, n, permutation_key(0))


def test_a_key_of_another_shape_or_type_is_refused():
    with pytest.raises(ValueError, match="uint64"):
        permute(np.array([0]), 5, permutation_key(0)[:5])
    with pytest.raises(ValueError, match="uint64"):
        permute(np.array([0]), 5, permutation_key(0).astype(np.int64))
