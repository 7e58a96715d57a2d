"""The encoder of a `tokenizer.json`, and the file as JSON: loaded once in a process and shared.

It imports next to nothing, so that a process can begin to load before it has imported the rest.
"""

import functools
import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

if TYPE_CHECKING:
    import fastokens


@functools.lru_cache(maxsize=4)
def load_backend(model_json: bytes) -> Tokenizer:
    """The `tokenizers` object of a `tokenizer.json`, shared: loading a large one takes half a second.

    Truncation and padding are off, whatever the file says: packer never truncates silently.
    """
    backend = Tokenizer.from_str(model_json.decode())
    backend.no_truncation()
    backend.no_padding()
    return backend


def load_fast_backend(model_json: bytes) -> "fastokens.Tokenizer":
    """The `fastokens` object of a `tokenizer.json`, shared: loading a large one takes a second.

    Others run meanwhile; who asks for one that is being loaded waits for it.

    Raises:
        ImportError: it is not installed.
        BaseException: what it raises that does not take this tokenizer.

    """
    with _LOADING:
        return _load_fast(model_json)


_LOADING = threading.Lock()


@functools.lru_cache(maxsize=2)
def _load_fast(model_json: bytes) -> "fastokens.Tokenizer":
    import fastokens  # noqa: PLC0415 - an extra

    backend = fastokens.Tokenizer.from_json_str(model_json.decode())
    backend.no_truncation()
    backend.no_padding()
    return backend


def load_fast_meanwhile(model_json: bytes) -> threading.Thread:
    """Begin to load the `fastokens` object in a thread; what it raises is raised again by the call that needs it."""
    loading = threading.Thread(target=_try_fast, args=[model_json])
    loading.start()
    return loading


def warm_up(tokenizer: Path, *, fast: bool) -> threading.Thread | None:
    """Load what the processes forked from this one will encode with.

    Args:
        tokenizer: `tokenizer.json`, or the folder it lies in.
        fast: whether `fastokens` is needed.

    Returns:
        What goes on loading it.

    Raises:
        OSError: the file cannot be read.

    """
    path = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    content = path.read_bytes()
    loading = load_fast_meanwhile(content) if fast else None
    load_backend(content)
    return loading


def _try_fast(model_json: bytes) -> None:
    with suppress(BaseException):
        load_fast_backend(model_json)


@functools.lru_cache(maxsize=2)
def definition_of(model_json: bytes) -> dict[str, Any]:
    """A `tokenizer.json` as JSON, shared: make a copy before changing anything in it."""
    definition: dict[str, Any] = json.loads(model_json)
    return definition


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of the Rust code of `tokenizers`, which Python does not count among exceptions."""
    return type(error).__name__ == "PanicException"
