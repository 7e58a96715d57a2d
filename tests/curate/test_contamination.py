"""Questions of benchmarks in rows, against a literal search."""

import numpy as np
import row_likeness
from hypothesis import example, given
from hypothesis import strategies as st

from packer.curate.contamination import BenchmarkQuestions
from packer.curate.signatures import words_of

TEXT = st.lists(st.sampled_from("abcd"), max_size=14).map(" ".join)


def find(questions, rows):
    words = words_of([message for messages in rows for message in messages])
    return questions.find(words, np.cumsum([0, *map(len, rows)]))


@given(
    st.lists(TEXT, max_size=6),
    st.lists(st.lists(TEXT, max_size=3), max_size=6),
    st.sampled_from([2, 3, 8]),
    st.integers(2, 5),
    st.sampled_from([0.3, 0.5, 1.0]),
)
@example(["a b c", "a b c"], [["A, b C"], ["x a b c"]], 8, 5, 0.5)
def test_every_question_in_a_row_is_found_and_the_one_it_holds_most_of_comes_first(benchmark, rows, n, common, cover):
    questions = BenchmarkQuestions([benchmark], ngram=n, common=common, cover=cover)
    hits = find(questions, rows)
    split = [row_likeness.words(text) for text in benchmark]
    first = [split.index(each) for each in split]
    every = row_likeness.hits(benchmark, rows, n, common, cover)
    expected = {row: {each: own[each] for each in own if first[each] == each} for row, own in every.items()}
    assert all({first[each] for each in own} == expected[row].keys() for row, own in every.items())
    found = [*zip(hits.row.tolist(), hits.question.tolist(), hits.cover.tolist(), strict=True)]
    assert set(found) == {(row, *each) for row, own in expected.items() for each in own.items()}
    assert found == sorted(found, key=lambda hit: (hit[0], -hit[2], hit[1]))
    assert hits.best().row.tolist() == sorted(expected)
    assert hits.best().question.tolist() == [max(own, key=own.get) for _, own in sorted(expected.items())]


def test_ngrams_are_common_within_a_benchmark_alone():
    shared = "one two three four five six seven eight"
    texts = [shared, f"{shared} nine", f"{shared} ten"]
    alone, together = BenchmarkQuestions([[text] for text in texts], common=2), BenchmarkQuestions([texts], common=2)
    row = f"{shared} eleven"
    assert find(alone, [[row]]).question.tolist() == [0, 1, 2] and not len(find(together, [[row]]).row)
    assert together.num_untestable == 1


def test_a_question_that_its_file_repeats_is_one_question():
    text = "one two three four five six seven eight nine"
    repeated = BenchmarkQuestions([[text, text.upper(), f"{text}!", text]], common=2)
    assert find(repeated, [[text]]).question.tolist() == [0]  # each row has one hit, however long the file is
    assert repeated.num_untestable == 0


def test_questions_that_cannot_be_found_are_counted():
    assert BenchmarkQuestions([["what is it", "?!", "one two three four five six seven eight"], []]).num_untestable == 1
