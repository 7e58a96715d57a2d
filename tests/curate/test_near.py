"""Near copies, against all pairs of exact sets."""

import random

import numpy as np
import pytest
import row_likeness
from hypothesis import example, given
from hypothesis import strategies as st

from packer.curate import near
from packer.curate import signatures as signatures_module
from packer.curate.near import near_duplicates, nearest
from packer.curate.signatures import joined, signatures, words_of

VOCABULARY = [f"w{i}" for i in range(40)]


def signed(texts, n=3):
    words = words_of(texts)
    return signatures(words, words.offsets[:-1], words.offsets[1:], n)


def found_of(lost):
    kept = zip(lost.kept.tolist(), lost.similarity.tolist(), strict=True)
    return dict(zip(lost.row.tolist(), kept, strict=True))


@st.composite
def corpora(draw):
    """A few rows and rewritings of them."""
    bases = draw(st.lists(st.lists(st.sampled_from(VOCABULARY), max_size=30), min_size=1, max_size=5))
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        row = list(draw(st.sampled_from(bases)))
        for _ in range(draw(st.integers(0, 2)) if row else 0):
            row[draw(st.integers(0, len(row) - 1))] = draw(st.sampled_from(VOCABULARY))
        rows.append(" ".join(row))
    return rows


@given(corpora(), st.sampled_from([1, 2, 3, 5]))
@example(["a j a a d e f g h i", "c j a a d e f g h i", "c j b a d e f g h i", "c j a a d e f g h i"], 1)
def test_exactly_the_near_copies_of_kept_rows_go(texts, n):
    """At 0.9 a candidate is missed once in ten thousand million pairs, so that the oracle needs no margin."""
    found = found_of(near_duplicates(signed(texts, n), np.arange(len(texts)), 0.9))
    assert found == row_likeness.dropped(texts, n, 0.9)


@given(corpora(), st.integers(0, 12))
def test_the_nearest_row_of_another_split_is_found(texts, held):
    held = min(held, len(texts))
    sets = [row_likeness.shingles(text, 3) for text in texts]
    expected = {}
    for row in range(held, len(texts)):
        best = max(((row_likeness.jaccard(sets[row], sets[other]), -other) for other in range(held)), default=(0, 0))
        if best[0] >= 0.9:
            expected[row] = (-best[1], best[0])
    found = nearest(signed(texts), np.arange(held), np.arange(held, len(texts)), 0.9)
    assert found_of(found) == expected


@given(corpora(), st.randoms(use_true_random=False))
def test_drops_depend_on_the_order_of_preference_and_on_no_other(texts, shuffle):
    places = list(range(len(texts)))
    shuffle.shuffle(places)  # row i stands at places[i]
    moved = [texts[places.index(i)] for i in range(len(texts))]
    there = near_duplicates(signed(moved), np.array(places, np.int64), 0.8)
    here = near_duplicates(signed(texts), np.arange(len(texts)), 0.8)
    assert found_of(there) == {places[row]: (places[kept], alike) for row, (kept, alike) in found_of(here).items()}


def varied(rows, seed):
    """Rows, and after each a copy of which some words are others."""
    chance = random.Random(seed)
    texts = []
    for number in range(rows):
        words = [chance.choice(WORDS) for _ in range(chance.randint(3, 120))]
        texts.append(" ".join(words))
        for _ in range(chance.randint(0, 3) if number % 2 else 0):
            words[chance.randrange(len(words))] = chance.choice(WORDS)
        texts.append(" ".join(words))
    return texts


WORDS = [f"v{i}" for i in range(3000)]


def test_all_pairs_above_the_threshold_are_found_and_no_other():
    texts = varied(400, 1)
    sets = [row_likeness.shingles(text, 3) for text in texts]
    truth = {(i, i + 1) for i in range(0, len(texts), 2) if row_likeness.jaccard(sets[i], sets[i + 1]) >= 0.8}
    copies = near_duplicates(signed(texts), np.arange(len(texts)), 0.8)
    found = {(of, row) for row, (of, _) in found_of(copies).items()}
    assert found <= truth and len(found) >= 0.999 * len(truth) and 250 < len(truth) < 400


def test_long_rows_are_compared_by_a_fair_sample():
    """Of 2,000 shingles 256 are kept; what a row contains as a whole is as much of it as it is."""
    errors = []
    for seed in range(20):
        words = [f"{seed} {i}" for i in range(2000)]
        short = words[: 1400 + 20 * seed]
        sets = [row_likeness.shingles(" ".join(each), 3) for each in (words, short)]
        copies = nearest(signed([" ".join(words), " ".join(short)]), np.array([0]), np.array([1]), 0.05)
        errors.append(copies.similarity[0] - row_likeness.jaccard(*sets))
    assert max(map(abs, errors)) < 0.1 and abs(np.mean(errors)) < 0.02


def test_rows_of_one_template_are_compared_with_the_first_of_them_alone():
    texts = [" ".join([*(f"w{i}" for i in range(200)), str(number)]) for number in range(150)]
    copies = near_duplicates(signed(texts), np.arange(150), 0.8)
    assert copies.row.tolist() == [*range(1, 150)] and not copies.kept.any() and copies.num_capped
    held = nearest(signed(texts), np.arange(100), np.arange(100, 150), 0.8)
    assert held.row.tolist() == [*range(100, 150)] and held.num_capped
    assert near_duplicates(signed(texts[:65]), np.arange(65), 0.8).num_capped == 0


def literally_dropped(signed_rows, jaccard, most_compared):
    """Each row that is like an earlier row that stays, among the first ones with which it shares a band."""
    shingles = np.split(signed_rows.shingles, signed_rows.offsets[1:-1])
    sets = [set(row.tolist()) for row in shingles]
    largest = [int(row[-1]) if len(row) == 256 else 2**32 for row in shingles]
    dropped = {}
    for second in range(len(sets)):
        of = {}
        for band in range(20):
            sharing = np.flatnonzero(signed_rows.bands[:, band] == signed_rows.bands[second, band])
            for first in {*sharing[sharing < second][:most_compared].tolist()} - {*of}:
                bound = min(largest[first], largest[second])
                one, other = ({shingle for shingle in sets[row] if shingle <= bound} for row in (first, second))
                of[first] = len(one & other) / len(one | other)
        near_ones = [(-alike, first) for first, alike in of.items() if alike >= jaccard and first not in dropped]
        if near_ones:
            dropped[second] = (min(near_ones)[1], -min(near_ones)[0])
    return dropped


@pytest.mark.parametrize(("length", "num_changed"), [(20, 1), (60, 3), (600, 3), (600, 20)])
def test_large_buckets_are_compared_as_pairs_are(length, num_changed, monkeypatch):
    """More rows share a band than are compared as pairs; of the longer rows, a sample is compared."""
    chance = random.Random(length + num_changed)
    template = [chance.choice(WORDS) for _ in range(length)]
    texts = []
    for number in range(80):
        row = [*template, str(number)][: chance.choice([length + 1, length // 2])]
        for _ in range(chance.randint(0, num_changed)):
            row[chance.randrange(len(row))] = chance.choice(WORDS)
        texts.append(" ".join(row))
    rows = signed(texts)
    monkeypatch.setattr(near, "MOST_COMPARED", 10)
    monkeypatch.setattr(near, "_PIECE_ROWS", 30)
    copies = near_duplicates(rows, np.arange(80), 0.6)
    assert found_of(copies) == literally_dropped(rows, 0.6, 10)
    assert copies.num_capped and len(copies.row) > 15


@given(corpora(), st.integers(1, 5))
def test_rows_have_the_signatures_that_they_have_alone(texts, rows_at_a_time):
    whole = signed(texts)
    parts = [signed(texts[first : first + rows_at_a_time]) for first in range(0, len(texts), rows_at_a_time)]
    for name in ("shingles", "offsets", "bands"):
        assert np.array_equal(getattr(whole, name), getattr(joined(parts), name))


def test_small_pieces_give_the_same(monkeypatch):
    texts = varied(60, 2)
    whole, copies = signed(texts), near_duplicates(signed(texts), np.arange(len(texts)), 0.8)
    monkeypatch.setattr(signatures_module, "_PIECE_SHINGLES", 7)
    monkeypatch.setattr(near, "_PIECE_SHINGLES", 100)
    assert np.array_equal(signed(texts).bands, whole.bands)
    again = near_duplicates(whole, np.arange(len(texts)), 0.8)
    assert found_of(again) == found_of(copies) != {}
