"""Keys of filters that contradict each other, among them one that is added as CONTRIBUTING.md says."""

import pytest

from packer.recipe.row_rules import Filter, Range, RowRules

SOME = Range(min=1)


class LongerFilter(Filter, frozen=True, kw_only=True):
    lines: Range | None = None


def wrong(**keys):
    return [said for said, _ in RowRules(filters=(LongerFilter(name="a", **keys),)).wrong()]


@pytest.mark.parametrize("key", ["chars", "lines"])
def test_a_limit_of_texts_is_a_condition_and_needs_texts(key):
    assert wrong(of="answers", **{key: SOME}) == []
    assert wrong(of="answers", **{key: Range()}) == ["filters[0] 'a': no condition"]
    assert wrong(of="answers", **{key: Range(min=2, max=1)}) == ["filters[0] 'a': min 2 is more than max 1"]
    assert wrong(messages=SOME, **{key: SOME}) == [f"filters[0] 'a': {key} is of texts"]


@pytest.mark.parametrize("key", ["messages", "tokens"])
def test_a_limit_of_numbers_stands_alone(key):
    assert wrong(**{key: SOME}) == []
    assert wrong(**{key: Range()}) == ["filters[0] 'a': no condition"]
    assert wrong(**{key: SOME}, matches="x") == [f"filters[0] 'a': {key} has min and max of its own"]
    assert wrong(of="answers", min=1) == ["filters[0] 'a': min, max, in and not_in are for fields"]
