"""The `tokenizers` encoder of a `tokenizer.json` and the file's JSON, cached per process.

This module imports little, so that a process can start loading before its other imports.
"""

import functools
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from packer.host.limits import is_panic, out_of, refuse_many_values
from packer.model.tokenizer_folder import MAX_TOKENIZER_BYTES, read_regular, refuse_growth, refuse_long_pieces
from packer.model.trials import is_known_fast, is_worth_loading


def load_backend(model_json: bytes) -> Tokenizer:
    """Return the cached `tokenizers` object of a `tokenizer.json`. Loading a large one takes half a second.

    A caller that needs an object which another thread is loading waits for it.

    Truncation and padding are turned off, whatever the file says: packer never truncates silently.

    Raises:
        Exception: it cannot be loaded, it can multiply a text, or it would take too much memory.
    """
    with _LOADING_REFERENCE:
        return _load_reference(model_json)


_LOADING_REFERENCE = threading.Lock()


@functools.lru_cache(maxsize=4)
def _load_reference(model_json: bytes) -> Tokenizer:
    refuse_growth(definition_of(model_json))
    refuse_long_pieces(definition_of(model_json))
    backend = Tokenizer.from_str(model_json.decode())
    backend.no_truncation()
    backend.no_padding()
    return backend


NO_ID = 2**32 - 2
"""An id that no vocabulary has."""


@functools.lru_cache(maxsize=4)
def load_part(model_json: bytes, name: str) -> Tokenizer:
    """Return a tokenizer that shares one component with another, such as its `normalizer`; cached. It loads at once.

    Its vocabulary is the letter ``a`` alone, whose id is `NO_ID`.
    """
    part = {name: definition_of(model_json).get(name)}
    model = {"type": "BPE", "vocab": {"a": NO_ID}, "merges": []}
    return Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model, **part}))


class FastLoadError(Exception):
    """`gigatoken` does not load a tokenizer; the message says why."""


def load_fast_backend(model_json: bytes, *, anew: bool = False) -> Any:
    """Return the fast encoder of a `tokenizer.json`, cached: `gigatoken`'s object for its kind of vocabulary.

    `anew` loads it in any case, without the words that the cached one remembers. Loading takes a second for a large
    vocabulary. A caller that needs an object which another thread is loading waits for it.

    Raises:
        FastLoadError: it is not loaded, as one whose pattern for splitting texts is not on the library's list.
    """
    with _LOADING_FAST:
        if anew:
            _load_fast.cache_clear()
        return _load_fast(model_json)


_LOADING_FAST = threading.Lock()


@functools.lru_cache(maxsize=2)
def _load_fast(model_json: bytes) -> Any:
    try:
        return _gigatoken(model_json)
    except ImportError as error:
        raise FastLoadError(f"gigatoken cannot be imported: {error}") from None
    except BaseException as error:
        if out_of(error) is not None or not (isinstance(error, Exception) or is_panic(error)):
            raise
        reason = str(error).partition("\n")[0][:120]
        raise FastLoadError(f"gigatoken does not load this tokenizer: {reason}") from None


def _gigatoken(model_json: bytes) -> Any:
    from gigatoken.gigatoken_rs import load_hf_json  # noqa: PLC0415 - an extra

    return load_hf_json(model_json)


def load_meanwhile(load: Callable[[], object]) -> threading.Thread:
    """Start loading in a thread what will be cached. Errors are raised again by the call that needs the object."""

    def run() -> None:
        with suppress(BaseException):
            load()

    loading = threading.Thread(target=run)
    loading.start()
    return loading


def read_tokenizer(tokenizer: Path) -> bytes:
    """Return the content of a `tokenizer.json`, or of that of a folder."""
    path = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    return read_regular(path, max_bytes=MAX_TOKENIZER_BYTES, what=f"tokenizer {tokenizer}")


def load_fast_meanwhile(engine: str, model_json: bytes, num_bytes: int | None = None) -> threading.Thread | None:
    """Start loading the fast encoder in a thread if it will encode that many bytes of rows; None means many."""
    is_wanted = num_bytes is None or is_worth_loading(num_bytes, model_json)
    if not is_wanted or not is_known_fast(engine, model_json):
        return None
    return load_meanwhile(lambda: load_fast_backend(model_json))


def load_encoders(tokenizer: Path, engine: str, num_bytes: int) -> None:
    """Load the reference of a file or folder, and the fast encoder beside it if it will encode the rows."""
    content = read_tokenizer(tokenizer)
    load_fast_meanwhile(engine, content, num_bytes)
    load_backend(content)


@functools.lru_cache(maxsize=2)
def definition_of(model_json: bytes) -> dict[str, Any]:
    """Return a `tokenizer.json` as parsed JSON, cached: copy it before changing anything."""
    refuse_many_values(model_json)
    definition: dict[str, Any] = msgspec.json.decode(model_json)
    return definition


def vocabulary_of(definition: dict[str, Any]) -> dict[str, int]:
    """Return the ids of all entries by text, without the added tokens."""
    entries = definition["model"]["vocab"]
    return entries if isinstance(entries, dict) else {piece: number for number, (piece, _) in enumerate(entries)}
