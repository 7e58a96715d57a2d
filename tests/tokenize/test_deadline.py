"""Encoding ends, whatever the tokenizer; and nothing but an error comes of how long it took."""

import os
import signal
import threading
import time

import pytest
from processes import FORKED, HANG_S, in_a_process

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
    with pytest.raises(
        InputError, match="did not finish within 0 s: 2 texts of 5 characters, the longest of 4"
    ) as caught:
        encode_in_time(lambda: release.wait(60), ["a", "bcde"])
    release.set()
    assert caught.value.hint is not None


def test_longer_texts_get_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "GRACE_S", 0.0)
    assert encode_in_time(lambda: time.sleep(0.2), ["x" * 10**6]) is None


def test_an_interrupt_waits_for_the_work(interruptible: None) -> None:
    """The interpreter must not end under a library that is still at work."""
    done: list[int] = []

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.2)
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        encode_in_time(work, ["a"])
    assert done == [1]
    assert encode_in_time(lambda: 7, ["a"]) == 7


def test_a_thread_is_kept_for_each_that_encodes_and_goes_with_it() -> None:
    def here() -> threading.Thread:
        return encode_in_time(threading.current_thread, ["a"])

    kept: list[threading.Thread] = []
    other = threading.Thread(target=lambda: kept.extend([here(), here()]))
    other.start()
    other.join()
    assert kept[0] is kept[1] is not here() is here()
    kept[0].join(HANG_S)
    assert not kept[0].is_alive()


def test_a_thread_that_was_left_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(deadline, "GRACE_S", 0.05)
        with pytest.raises(InputError):
            encode_in_time(lambda: release.wait(60) and "late", ["a"])
    assert encode_in_time(lambda: "own", ["a"]) == "own"
    release.set()
    assert encode_in_time(lambda: "own", ["a"]) == "own"


IN_A_COPY = """
from packer.tokenize.deadline import encode_in_time

encode_in_time(lambda: None, ["a"])
print(json.dumps(forked(lambda: encode_in_time(lambda: 7, ["a"]))))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_that_was_forked_has_threads_of_its_own() -> None:
    assert in_a_process(FORKED + IN_A_COPY) == [7]
