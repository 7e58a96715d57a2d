"""The `tokenizers` encoder of a `tokenizer.json` and the file's JSON, cached per process.

This module imports little, so that a process can start loading before its other imports.
"""

import functools
import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from packer.tokenizer_folder import MAX_TOKENIZER_BYTES, read_regular
from packer.trials import is_known_fast

if TYPE_CHECKING:
    import fastokens


@functools.lru_cache(maxsize=4)
def load_backend(model_json: bytes) -> Tokenizer:
    """Return the cached `tokenizers` object of a `tokenizer.json`. Loading a large one takes half a second.

    Truncation and padding are turned off, whatever the file says: packer never truncates silently.
    """
    backend = Tokenizer.from_str(model_json.decode())
    backend.no_truncation()
    backend.no_padding()
    return backend


def load_fast_backend(model_json: bytes) -> "fastokens.Tokenizer":
    """Return the cached `fastokens` object of a `tokenizer.json`. Loading a large one takes a second.

    Loading releases the GIL. A caller that needs an object which another thread is loading waits for it.

    Raises:
        ImportError: `fastokens` is not installed.
        BaseException: whatever `fastokens` raises for a tokenizer it does not support.
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
    """Start loading the `fastokens` object in a thread. Errors are raised again by the call that needs the object."""

    def load() -> None:
        with suppress(BaseException):
            load_fast_backend(model_json)

    loading = threading.Thread(target=load)
    loading.start()
    return loading


def warm_up(tokenizer: Path, *, engine: str) -> threading.Thread | None:
    """Load the encoders that processes forked from this one will use, of a `tokenizer.json` or its folder.

    Return the thread that is still loading `fastokens`, if it is needed.

    Raises:
        InputError: the file cannot be read.
    """
    path = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    content = read_regular(path, max_bytes=MAX_TOKENIZER_BYTES, what=f"tokenizer {tokenizer}")
    loading = load_fast_meanwhile(content) if is_known_fast(engine, content) else None
    load_backend(content)
    return loading


@functools.lru_cache(maxsize=2)
def definition_of(model_json: bytes) -> dict[str, Any]:
    """Return a `tokenizer.json` as parsed JSON, cached: copy it before changing anything."""
    definition: dict[str, Any] = json.loads(model_json)
    return definition


def is_panic(error: BaseException) -> bool:
    """Whether an error is a Rust panic of `tokenizers`, which does not derive from `Exception`."""
    return type(error).__name__ == "PanicException"
