"""The longest literal that stands at a place is matched, whatever stands beside it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.literals import longest_of


def spans(pattern, text):
    return [match.span() for match in re.finditer(pattern, text)]


def tried_one_by_one(literals):
    return "|".join(re.escape(literal) for literal in sorted(literals, key=len, reverse=True))


@given(
    literals=st.lists(st.text(alphabet="ab|<.é\n", min_size=1, max_size=6), min_size=1, max_size=60),
    text=st.text(alphabet="ab|<.é\n", max_size=60),
)
def test_the_longest_literal_at_each_place_is_matched(literals, text):
    assert spans(longest_of(literals), text) == spans(tried_one_by_one(literals), text)
    encoded = [pattern.encode() for pattern in (longest_of(literals), tried_one_by_one(literals))]
    assert spans(encoded[0], text.encode()) == spans(encoded[1], text.encode())


@pytest.mark.parametrize("literals", [["x" * n for n in range(1, 500)], ["<" + "y" * 20_000, "<" + "y" * 19_999 + "z"]])
def test_literals_that_nest_deeply_or_are_long_make_a_pattern(literals):
    pattern = longest_of(literals)
    for literal in literals:
        assert spans(pattern, f"-{literal}-") == [(1, 1 + len(literal))]
