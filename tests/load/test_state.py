"""A reader's state: plain values, and refused wherever it does not belong."""

import json

import msgspec
import pytest

from packer.errors import CheckError
from packer.load.state import ZERO_COUNTERS, Counters, ReaderState, restore

READER = ReaderState(
    version=6,
    fingerprint="f00d",
    split="train",
    batching="packed",
    padded=None,
    cutoff_len=None,
    order="random",
    order_by=None,
    seed=7,
    end="drop",
    schedule=None,
    epoch=0,
    cursor=0,
    batch_size=4,
    opened_batch_size=4,
    micro_batch_size=2,
    shares=None,
    taken=None,
    counters=ZERO_COUNTERS,
)


def saved(**changes):
    state = msgspec.structs.replace(
        READER,
        epoch=2,
        cursor=5,
        batch_size=6,
        counters=Counters(steps=9, rows=36, trained=1234, tokens=2000, slots=2500),
    )
    return {**state.to_dict(), **changes}


def test_a_state_is_plain_values_and_survives_json():
    assert saved() == {
        "version": 6,
        "fingerprint": "f00d",
        "split": "train",
        "batching": "packed",
        "padded": None,
        "cutoff_len": None,
        "order": "random",
        "order_by": None,
        "seed": 7,
        "end": "drop",
        "schedule": None,
        "epoch": 2,
        "cursor": 5,
        "batch_size": 6,
        "opened_batch_size": 4,
        "micro_batch_size": 2,
        "shares": None,
        "taken": None,
        "counters": {"steps": 9, "rows": 36, "trained": 1234, "tokens": 2000, "slots": 2500},
    }
    restored = restore(json.loads(json.dumps(saved())), reader=READER, length=lambda _: 10)
    assert restored.to_dict() == saved()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": "beef"}, "fingerprint 'beef'.*'f00d'"),
        ({"split": "test"}, "split 'test'.*'train'"),
        ({"order": "sequential"}, "order 'sequential'.*'random'"),
        ({"order_by": "4096"}, "order_by '4096'.*None"),
        ({"seed": 8}, "seed 8.*7"),
        ({"version": 5}, "expected version 6, found 5"),
        ({"cursor": 11}, "cursor 11 is beyond the 10 blocks"),
        ({"cursor": -1}, "cursor"),
        ({"epoch": "2"}, "epoch"),
        ({"batching": "padded"}, "batching 'padded'.*'packed'"),
        ({"cutoff_len": 9}, "cutoff_len 9.*None"),
        ({"end": "pad"}, "end 'pad'.*'drop'"),
        ({"batch_size": 0}, "batch_size"),
        ({"taken": [1, -1]}, "taken"),
        ({"shares": ["1/2", "1/2"]}, "shares.*None"),
        ({"counters": {"steps": 9, "rows": 36, "trained": 1, "tokens": 2, "slots": 3, "surplus": 2}}, "surplus"),
        ({"surplus": 1}, "surplus"),
    ],
)
def test_a_state_of_anything_else_is_refused_with_the_difference(changes, message):
    with pytest.raises(CheckError, match=message):
        restore(saved(**changes), reader=READER, length=lambda _: 10)


@pytest.mark.parametrize("value", [None, 3, [], {}])
def test_what_is_not_a_state_is_refused(value):
    with pytest.raises(CheckError, match="reader state"):
        restore(value, reader=READER, length=lambda _: 10)


def test_what_decides_no_row_goes_on_as_the_reader_has_it_and_a_warning_names_it():
    state = saved(padded={"length": None, "multiple_of": 8, "side": "left"}, schedule="doubling")
    with pytest.warns(UserWarning, match="this loader continues with") as caught:
        restored = restore(state, reader=READER, length=lambda _: 10)
    assert restored.to_dict() == saved()
    assert [str(warning.message).split(" with ")[1].split(";")[0] for warning in caught] == [
        "padded Padded(length=None, multiple_of=8, side='left')",
        "schedule doubling",
    ]


def test_a_size_that_was_changed_is_taken_over_unless_the_reader_was_opened_with_another():
    def sizes_of(**changes):
        restored = restore(saved(**changes), reader=READER, length=lambda _: 10)
        return restored.batch_size, restored.opened_batch_size, restored.micro_batch_size

    assert sizes_of() == (6, 4, 2)
    assert sizes_of(batch_size=8, micro_batch_size=4) == (8, 4, 2), "micro-batches are the reader's own"
    assert sizes_of(opened_batch_size=8) == (4, 4, 2)
