"""Words of texts, against a reading character by character."""

import numpy as np
import row_likeness
from hypothesis import example, given
from hypothesis import strategies as st

from packer.curate.signatures import Words, ngrams, words_of

WRITTEN = st.text(
    st.one_of(
        st.sampled_from("aB1 ,.ß☀\ufe0f\ufe00\U000e0100你好ก\u0e31한글éé\u0301ﬁ½\0\n'Ⅳ"), st.characters(codec="utf-8")
    ),
    max_size=30,
)


def numbers(texts):
    found = words_of(texts)
    return [found.number[first:last].tolist() for first, last in zip(found.offsets, found.offsets[1:], strict=False)]


@given(st.lists(WRITTEN, max_size=8))
@example(["Größe 10, 你好!", "", "\0", "a\0b", "A B", "x" * 300 + "y", "x" * 300 + "z"])
def test_texts_have_equal_words_where_a_literal_reading_has(texts):
    found, expected = numbers(texts), [row_likeness.words(text) for text in texts]
    assert [len(each) for each in found] == [len(each) for each in expected]
    pairs = {
        (number, word)
        for own, said in zip(found, expected, strict=True)
        for number, word in zip(own, said, strict=True)
    }
    assert len({number for number, _ in pairs}) == len({word for _, word in pairs}) == len(pairs)


@given(st.lists(WRITTEN, max_size=8))
def test_words_do_not_depend_on_how_texts_are_taken_together(texts):
    assert numbers(texts) == [numbers([text])[0] for text in texts]


def test_emoji_have_no_words():
    assert numbers(["☀️", "❤️ 😀👍🏽"]) == [[], []] and numbers(["go ❤️"]) == numbers(["GO ☀️!"]) == numbers(["go"])


def test_texts_beyond_a_piece_keep_their_words(monkeypatch):
    texts = ["one two", "三 four\0five", "", "six" * 9]
    whole = numbers(texts)
    monkeypatch.setattr("packer.curate.signatures._PIECE_CHARACTERS", 1)
    assert numbers(texts) == whole and sum(map(len, whole)) == 6


def test_numbers_of_words_are_those_of_every_machine():
    assert numbers(["Hello 你"]) == [PINNED]


PINNED = [14122664097064285880, 9327697940802003967]


def test_ranges_shorter_than_an_ngram_have_one_each_however_many_there_are():
    """To count the n-grams before each of the 50,000 anew would take longer than all of this module."""
    num = 50_000
    words = Words(number=np.arange(2 * num, dtype=np.uint64), offsets=np.arange(0, 2 * num + 1, 2))
    found, counts = ngrams(words, words.offsets[:-1], words.offsets[1:], 3)
    assert (counts == 1).all()
    own, _ = ngrams(words, np.array([1000]), np.array([1002]), 3)
    assert found[500] == own[0]
    assert len(np.unique(found)) == num
