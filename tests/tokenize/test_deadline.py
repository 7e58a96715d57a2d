"""Encoding ends, whatever the tokenizer; and nothing but an error comes of how long it took."""

import threading
import time

import pytest

from packer.errors import InputError
from packer.tokenize import deadline
from packer.tokenize.deadline import encode_in_time


def test_what_work_gives_or_raises_is_handed_on() -> None:
    assert encode_in_time(lambda: [1, 2], ["ab"]) == [1, 2]
    with pytest.raises(KeyError, match="x"):
        encode_in_time(lambda: {}["x"], [])


def test_work_that_does_not_end_is_left_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "GRACE_S", 0.05)
    release = threading.Event()
    with pytest.raises(InputError, match="no end within 0 s with 2 texts of 5 characters, the longest of 4") as caught:
        encode_in_time(lambda: release.wait(60), ["a", "bcde"])
    release.set()
    assert caught.value.hint is not None


def test_longer_texts_get_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "GRACE_S", 0.0)
    assert encode_in_time(lambda: time.sleep(0.2), ["x" * 10**6]) is None


def test_where_no_thread_can_be_started_work_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert encode_in_time(lambda: 7, ["a"]) == 7


def test_an_interrupt_waits_for_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter must not end under a library that is still at work."""
    done: list[int] = []
    join = threading.Thread.join

    def interrupted(self: threading.Thread, timeout: float | None = None) -> None:
        monkeypatch.setattr(threading.Thread, "join", join)
        raise KeyboardInterrupt

    def work() -> None:
        time.sleep(0.2)
        done.append(1)

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        encode_in_time(work, ["a"])
    assert done == [1]
