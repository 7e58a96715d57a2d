"""Encoding that comes to an end.

A regular expression in a tokenizer can need more steps than there is time for, and the libraries that run it cannot be
interrupted. So they run in a thread of their own, and whoever waits for it goes on when its time is up: the thread is
left behind, and ends with the process.

Only time decides, so nothing but an error may come of it: a row must not be kept on one machine and rejected on
another.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from packer.errors import InputError

GRACE_S = 60.0
MIN_CHARACTERS_PER_S = 10_000
"""The slowest tokenizers do a hundred times as much."""

T = TypeVar("T")


def encode_in_time(work: Callable[[], T], texts: Sequence[str], *, grace_s: float | None = None) -> T:
    """What `work` gives, which encodes `texts` in a library that lets other threads run meanwhile.

    Args:
        work: encodes them.
        texts: decide how long it may take.
        grace_s: seconds to begin with; by default :data:`GRACE_S`.

    Raises:
        InputError: it takes longer than any tokenizer needs.
        BaseException: what `work` raised.

    """
    num_characters = sum(map(len, texts))
    seconds = (GRACE_S if grace_s is None else grace_s) + num_characters / MIN_CHARACTERS_PER_S
    helper = _helper()
    if helper is None:  # what becomes of a text may not depend on how many threads there are
        return work()
    try:
        result, error = helper.run(work, seconds)
    except BaseException as ended:
        del _OF_THREAD.helper  # it may go on for hours
        if not isinstance(ended, queue.Empty):
            raise
        raise InputError(
            f"the tokenizer came to no end within {seconds:.0f} s with {len(texts)} texts of {num_characters} "
            f"characters, the longest of {max(map(len, texts), default=0)}",
            hint="a regular expression in the pre_tokenizer or the normalizer of tokenizer.json is the likely reason; "
            "a lower rows.max_bytes leaves out the longest rows",
        ) from None
    if error is not None:
        raise error
    return result


class _Helper:
    """A thread that works for another one, which need not wait for it.

    One is kept for each thread that encodes: the libraries remember in the thread what they came to, and a new one
    would begin with nothing each time, at a third of the speed.
    """

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._is_done = threading.Event()
        arguments = self._asked, self._answered, self._is_done
        self._thread = threading.Thread(target=_work, args=arguments, name="packer-encoding", daemon=True)
        self._thread.start()

    def __del__(self) -> None:
        self._asked.put(None)

    def is_there(self) -> bool:
        """False in a process that was forked, which has none of the threads."""
        return self._thread.is_alive()

    def run(self, work: Callable[[], T], seconds: float) -> tuple[T, BaseException | None]:
        """What comes of it.

        An interrupt waits too: the interpreter must not end under a library that will ask it for something.

        Raises:
            queue.Empty: nothing, after so many seconds.

        """
        self._is_done.clear()
        self._asked.put(work)
        try:
            return self._answered.get(timeout=seconds)
        except queue.Empty:
            raise
        except BaseException:
            self._is_done.wait(seconds)
            raise


def _work(
    asked: "queue.SimpleQueue[Callable[[], Any] | None]",
    answered: "queue.SimpleQueue[tuple[Any, BaseException | None]]",
    is_done: threading.Event,
) -> None:
    while (work := asked.get()) is not None:
        answer: tuple[Any, BaseException | None]
        try:
            answer = work(), None
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            answer = None, error
        is_done.set()
        answered.put(answer)
        del work, answer  # they hold texts, and this may be the last for long


_OF_THREAD = threading.local()


def _helper() -> _Helper | None:
    """That of this thread; None where there can be no more threads."""
    helper: _Helper | None = getattr(_OF_THREAD, "helper", None)
    if helper is None or not helper.is_there():
        try:
            helper = _OF_THREAD.helper = _Helper()
        except RuntimeError:
            return None
    return helper
