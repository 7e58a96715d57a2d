"""Encoding that comes to an end.

A regular expression in a tokenizer can need more steps than there is time for, and the libraries that run it cannot be
interrupted. So they run in a thread of their own, and whoever waits for it goes on when its time is up: the thread is
left behind, and ends with the process.

Only time decides, so nothing but an error may come of it: a row must not be kept on one machine and rejected on
another.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

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
    running = _Running(work)
    if not running.ended(seconds):
        raise InputError(
            f"the tokenizer came to no end within {seconds:.0f} s with {len(texts)} texts of {num_characters} "
            f"characters, the longest of {max(map(len, texts))}",
            hint="a regular expression in the pre_tokenizer or the normalizer of tokenizer.json is the likely reason; "
            "a lower rows.max_bytes leaves out the longest rows",
        )
    return running.outcome()


class _Running(Generic[T]):
    """Work in a thread that nobody has to wait for."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = threading.Thread(target=self._run, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: what becomes of a text may not depend on that
            self._thread = None
            self._run()

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error

    def ended(self, seconds: float) -> bool:
        """Wait for the end, so many seconds at most.

        An interrupt waits too: the interpreter must not end under a library that will ask it for something.
        """
        if self._thread is None:
            return True
        try:
            self._thread.join(seconds)
        except BaseException:
            self._thread.join(seconds)
            raise
        return not self._thread.is_alive()

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._results[0]
