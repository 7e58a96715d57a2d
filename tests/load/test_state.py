"""A reader's state: plain values, and refused wherever it does not belong."""

import json

import pytest

from packer.errors import CheckError
from packer.load.state import Counters, ReaderState, restore

READER = ReaderState(fingerprint="f00d", split="train", order="random", seed=7)


def saved(**changes):
    state = ReaderState(
        fingerprint="f00d",
        split="train",
        order="random",
        seed=7,
        epoch=2,
        cursor=5,
        counters=Counters(steps=9, blocks=36, trained=1234),
    )
    return {**state.to_dict(), **changes}


def test_a_state_is_plain_values_and_survives_json():
    assert saved() == {
        "version": 1,
        "fingerprint": "f00d",
        "split": "train",
        "order": "random",
        "seed": 7,
        "epoch": 2,
        "cursor": 5,
        "counters": {"steps": 9, "blocks": 36, "trained": 1234},
    }
    restored = restore(json.loads(json.dumps(saved())), reader=READER, num_blocks=10)
    assert restored.to_dict() == saved()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": "beef"}, "fingerprint 'beef'.*'f00d'"),
        ({"split": "test"}, "split 'test'.*'train'"),
        ({"order": "sequential"}, "order 'sequential'.*'random'"),
        ({"seed": 8}, "seed 8.*7"),
        ({"version": 2}, "expected version 1, found 2"),
        ({"cursor": 11}, "cursor 11 is beyond the 10 blocks"),
        ({"cursor": -1}, "cursor"),
        ({"epoch": "2"}, "epoch"),
        ({"counters": {"steps": 9, "blocks": 36, "trained": 1, "tokens": 2}}, "tokens"),
        ({"surplus": 1}, "surplus"),
    ],
)
def test_a_state_of_anything_else_is_refused_with_the_difference(changes, message):
    with pytest.raises(CheckError, match=message):
        restore(saved(**changes), reader=READER, num_blocks=10)


@pytest.mark.parametrize("value", [None, 3, [], {}])
def test_what_is_not_a_state_is_refused(value):
    with pytest.raises(CheckError, match="reader state"):
        restore(value, reader=READER, num_blocks=10)
