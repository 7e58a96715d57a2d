"""Anchors cut a text in the same places as the tokenizer does."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twins
from conversations import PIECES
from hypothesis import given
from hypothesis import strategies as st

from packer.model.model import AddedToken, load_model
from packer.tokenize.reference_encoder import Anchors, ReferenceEncoder


def token(content: str, **fields: Any) -> AddedToken:
    plain = {"id": 0, "special": False, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    return AddedToken(content=content, **{**plain, **fields})


@pytest.mark.parametrize("twin", twins.TWINS, ids=lambda twin: twin.__name__)
def test_the_ids_up_to_an_anchor_do_not_depend_on_what_follows(twin: Any, tmp_path: Path) -> None:
    model = load_model(twin(tmp_path))
    encoder = ReferenceEncoder(model.files["tokenizer.json"])
    normalizes = json.loads(model.files["tokenizer.json"])["normalizer"] is not None
    anchors = Anchors(model.added_tokens, model.vocab_size, normalizes=normalizes)
    contents = [added.content for added in model.added_tokens]
    checked = 0

    @given(st.lists(st.sampled_from(PIECES) | st.sampled_from(contents), max_size=10).map("".join))
    def agree(text: str) -> None:
        nonlocal checked
        (ids, _), content, end = encoder.encode([text]), text.encode(), 0
        for place in np.flatnonzero(anchors.is_anchor[ids]).tolist():
            end += anchors.first(content[end:])[1]
            assert encoder.encode([content[:end].decode()])[0].tolist() == ids[: place + 1].tolist()
            checked += 1
        assert anchors.first(content[end:]) == (len(content) - end,) * 2

    agree()
    assert checked > 10


def test_normalized_tokens_are_no_anchors_where_something_normalizes() -> None:
    tokens = [token("ü", id=1, normalized=True), token("<e>", id=2)]
    assert Anchors(tokens, 3, normalizes=True).is_anchor.tolist() == [False, False, True]
    assert Anchors(tokens, 3, normalizes=False).is_anchor.tolist() == [False, True, True]


def test_tokens_that_match_whole_words_only_are_no_anchors() -> None:
    assert not Anchors([token("the", id=0, single_word=True)], 1, normalizes=False).is_anchor.any()


def test_the_longest_of_two_anchors_is_found_first() -> None:
    anchors = Anchors([token("<e>", id=1), token("<e>x", id=2)], 3, normalizes=False)
    assert anchors.first("é<e>x<e>".encode()) == (2, 6)
    assert anchors.first(b"text") == Anchors([], 1, normalizes=False).first(b"text") == (4, 4)
