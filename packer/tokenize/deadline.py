"""Encoding with a deadline.

A regular expression in a tokenizer can take practically forever, and the libraries that run it cannot be
interrupted. So they run in a separate thread, and the caller continues when the time is up: the thread is
abandoned, and ends with the process.

A timeout is always an error of the whole build: a row must not be kept on one machine and rejected on
another.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from packer.errors import InputError

GRACE_S = 60.0
MIN_CHARACTERS_PER_S = 10_000
"""The slowest tokenizers are a hundred times as fast."""

T = TypeVar("T")

_Work: TypeAlias = Callable[[], Any]
_Result: TypeAlias = tuple[Any, BaseException | None]


def encode_in_time(work: Callable[[], T], texts: Sequence[str]) -> T:
    """Return the result of `work`, which encodes `texts` in a library that releases the GIL.

    Raises:
        BaseException: raised by `work`.
    """
    num_characters = sum(map(len, texts))
    seconds = GRACE_S + num_characters / MIN_CHARACTERS_PER_S
    helper: _EncoderThread | None = getattr(_THREAD_LOCAL, "helper", None)
    if helper is None or not helper.is_alive():
        helper = _THREAD_LOCAL.helper = _EncoderThread()
    try:
        result, error = helper.run(work, seconds)
    except BaseException as ended:
        del _THREAD_LOCAL.helper  # it may run for hours
        if not isinstance(ended, queue.Empty):
            raise
        raise InputError(
            f"the tokenizer did not finish within {seconds:.0f} s: {len(texts)} texts of {num_characters} "
            f"characters, the longest of {max(map(len, texts), default=0)}",
            hint="a regular expression in the pre_tokenizer or the normalizer of tokenizer.json is the likely reason; "
            "a lower rows.max_bytes leaves out the longest rows",
        ) from None
    if error is not None:
        raise error
    return result


_THREAD_LOCAL = threading.local()


class _EncoderThread:
    """A thread that encodes on behalf of another one.

    Each calling thread keeps one: the libraries have thread-local caches, and a new thread for each call would run at
    a third of the speed.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self._is_done = threading.Event()
        arguments = self._requests, self._results, self._is_done
        self._thread = threading.Thread(target=_serve, args=arguments, name="packer-encoding", daemon=True)
        self._thread.start()

    def __del__(self) -> None:
        self._requests.put(None)

    def is_alive(self) -> bool:
        """Whether the thread runs; False in a forked process, which has none of the threads."""
        return self._thread.is_alive()

    def run(self, work: Callable[[], T], seconds: float) -> tuple[T, BaseException | None]:
        """Return the result and the error of `work`; raise `queue.Empty` after `seconds`.

        An interrupt is delayed as well: the interpreter must not shut down while a library may still call into it.
        """
        self._is_done.clear()
        self._requests.put(work)
        try:
            return self._results.get(timeout=seconds)
        except queue.Empty:
            raise
        except BaseException:
            self._is_done.wait(seconds)
            raise


def _serve(
    requests: queue.SimpleQueue[_Work | None], results: queue.SimpleQueue[_Result], done: threading.Event
) -> None:
    while (work := requests.get()) is not None:
        try:
            result: _Result = work(), None
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            result = None, error
        done.set()
        results.put(result)
        del work, result  # release the texts now: the next call may come much later
