"""A value of which all texts are read as they stand is not searched for others."""

import pytest

from packer.questions.texts import are_all_in


@pytest.mark.parametrize(
    ("other", "is_read"),
    [("Hi", True), ('{"city": "Hi"}', True), (" \n", True), (7, True), ("Oban", False), ("[Hi", False)],
)
def test_all_texts_of_a_value_are_read_if_those_of_the_json_in_it_are(other, is_read) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"call": [other]}]
    assert are_all_in(messages, {"user", "Hi"}) == is_read
    assert are_all_in([{"It sails at six today.": other}], {"Hi"}) is False, "a key that is a text is one"
