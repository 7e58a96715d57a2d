"""Rated answers: rows of the other schemas with a boolean `label`."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.batches import Message, Preference
from packer.source.decode import Refused
from packer.source.schema import read_row, schema_of

TEXTS = st.sampled_from(["yes", "no", "", " "])
ROLES = st.lists(st.sampled_from(["user", "assistant"]), max_size=5)


@given(ROLES, st.data(), st.booleans())
def test_the_answer_is_what_follows_the_last_message_of_the_user(roles, data, label):
    messages = [{"role": role, "content": data.draw(TEXTS)} for role in ["system", *roles]]
    turns = [{"from": each["role"], "value": each["content"]} for each in messages]
    asked = [number for number, each in enumerate(messages) if each["role"] == "user"]
    start = asked[-1] + 1 if asked else 0
    split = data.draw(st.integers(start, len(messages)))
    rows = [({"messages": messages}, start), ({"conversations": turns}, start)]
    if split < len(messages):
        rows.append(({"prompt": messages[:split], "completion": messages[split:]}, split))
    for unrated, begins in rows:
        row = unrated | {"label": label}
        assert schema_of(row) == "rated"
        says = any(each["role"] == "assistant" and each["content"].strip() for each in messages[begins:])
        try:
            found = read_row(row, number=3, schema="rated", columns={})
        except Refused as refused:
            if refused.code == "wrong_type":
                assert any(one == other == "assistant" for one, other in pairwise(roles))
                continue
            assert refused.code == ("pair_empty_side" if asked else "pair_no_prompt")
            assert not (asked and says)
            continue
        assert asked and says
        flags = [False if n < begins and each["role"] == "assistant" else None for n, each in enumerate(messages)]
        assert found.preference == Preference(is_desirable=label)
        assert found.messages == tuple(Message(fields=e, trained=flag) for e, flag in zip(messages, flags, strict=True))


def test_a_completion_and_an_instruction_are_rated_too(sample):
    found = sample({"prompt": "a", "completion": "b", "label": False, "id": 1}, "rated")
    assert (found.kind, found.prompt, found.text, found.sample_id) == ("completion", "a", "b", "1")
    assert found.preference == Preference(is_desirable=False)
    found = sample({"instruction": "a", "output": "b", "label": True, "history": [["c", "d"]]}, "rated")
    assert [message.trained for message in found.messages] == [None, False, None, None]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"prompt": "a", "completion": "b", "label": "good"}, "wrong_type"),
        ({"prompt": "a", "completion": "b", "label": 1}, "wrong_type"),
        ({"prompt": " ", "completion": "b", "label": True}, "pair_no_prompt"),
        ({"prompt": "a", "completion": "", "label": True}, "empty"),
        ({"completion": "b", "label": True}, "unknown_schema"),
        ({"prompt": "a", "completion": "b"}, "unknown_schema"),
        ({"prompt": "a", "completion": "b", "label": True, "chosen": "b", "rejected": "c"}, "preference"),
    ],
)
def test_what_is_no_rated_answer_is_refused_by_its_code(refusal, row, code):
    assert refusal(row, "rated")[0] == code


@pytest.mark.parametrize(
    ("row", "schema"),
    [
        ({"text": "a", "label": True}, "text"),
        ({"prompt": "a", "completion": "b", "label": "sports"}, "completion"),
        ({"prompt": "a", "completion": "b", "label": 1}, "completion"),
        ({"prompt": "a", "completion": "b", "label": None}, "completion"),
        ({"input_ids": [1], "labels": [1], "label": True}, "tokens"),
        ({"label": True}, None),
        ({"output": "a", "label": True}, None),
        ({"prompt": "a", "completion": "b", "label": True, "chosen": "b", "rejected": "c"}, "preference"),
    ],
)
def test_only_a_boolean_beside_an_answer_is_a_rating(row, schema):
    assert schema_of(row) == schema
