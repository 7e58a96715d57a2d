"""The `tokenizers` encoder of a `tokenizer.json` and the file's JSON, cached per process.

A trial of the fast encoder with a large tokenizer takes seconds (:func:`packer.tokenize.fast.differences`). Its outcome
is kept in the user's cache folder, under a key of the tokenizer and the versions of both encoders. It is a small file
with one of two possible contents, both derived from that key; any other content counts as a cache miss. The file
belongs to the user: whoever can write it can make a build skip the trial, but the documents of each partition are still
verified.

This module imports little, so that a process can start loading before its other imports.
"""

import ctypes
import functools
import hashlib
import json
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from packer.errors import InputError, UsageError
from packer.host.files import cache_dir, is_panic, out_of, refuse_many_values
from packer.model.tokenizer_folder import read_main_file, read_regular, refuse_growth, refuse_long_pieces
from packer.version import library_version


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
    return_freed()
    return backend


def return_freed() -> None:
    """Give freed memory back to the system. A few milliseconds; nothing where the allocator has no such call.

    A vocabulary is loaded in a thread, whose allocator keeps what was freed for that thread alone: of Llama 3's, about
    fifty megabytes, which nothing else of a build could use.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # musl has none
        trim(0)


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
        encoder = _gigatoken(model_json)
    except ImportError as error:
        raise FastLoadError(f"gigatoken cannot be imported: {error}") from None
    except BaseException as error:
        if out_of(error) is not None or not (isinstance(error, Exception) or is_panic(error)):
            raise
        reason = str(error).partition("\n")[0][:120]
        raise FastLoadError(f"gigatoken does not load this tokenizer: {reason}") from None
    return_freed()
    return encoder


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
    return read_main_file(tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer, tokenizer)


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
    """Return a `tokenizer.json` as parsed JSON, cached: copy it before changing anything.

    The merges of its model stay as the file has them, in `msgspec.Raw`: they are most of its values, and rarely read.
    """
    refuse_many_values(model_json)
    parts: dict[str, Any] = msgspec.json.decode(model_json, type=dict[str, msgspec.Raw])
    if "model" in parts:
        model = msgspec.json.decode(parts["model"], type=dict[str, msgspec.Raw])
        parts["model"] = {name: raw if name == "merges" else _parsed(raw) for name, raw in model.items()}
    return {name: part if name == "model" else _parsed(part) for name, part in parts.items()}


def _parsed(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


def vocabulary_of(definition: dict[str, Any]) -> dict[str, int]:
    """Return the ids of all entries by text, without the added tokens."""
    entries = definition["model"]["vocab"]
    return entries if isinstance(entries, dict) else {piece: number for number, (piece, _) in enumerate(entries)}


_TRIALS_VERSION = 2
"""Raised when the trial texts change, or how they are given to an encoder."""


def fast_version() -> str | None:
    """Return the library that encodes fast, with its version; None if it is not installed."""
    version = library_version("gigatoken")
    return None if version is None else f"gigatoken {version}"


def is_known_fast(asked: str, tokenizer_json: bytes) -> bool:
    """Whether the fast engine will be chosen, judging by cached outcomes alone; runs no trial."""
    return asked != "reference" and fast_version() is not None and cached_outcome(tokenizer_json) is True


WORTH_LOADING = 1 / 3
"""Bytes of rows for each byte of a `tokenizer.json` that the reference encodes in the time that it takes to load the
fast encoder: both times grow with their file. A smaller input is left to the reference."""


def is_worth_loading(num_bytes: int, tokenizer_json: bytes) -> bool:
    """Whether the fast encoder is loaded and done before the reference would have encoded that many bytes of rows."""
    return num_bytes >= WORTH_LOADING * len(tokenizer_json)


def cached_outcome(tokenizer_json: bytes) -> bool | None:
    """Return the cached outcome: whether the fast engine agreed; None without one, or if the file is not a trial's."""
    with suppress(InputError, UsageError):
        found = read_regular(trial_path(tokenizer_json), max_bytes=80, what="the outcome of a trial")
        return {encode_outcome(tokenizer_json, agrees=agrees): agrees for agrees in (True, False)}.get(found)
    return None


def encode_outcome(tokenizer_json: bytes, *, agrees: bool) -> bytes:
    """Return the exact content of the file that records an outcome."""
    return f"{_key(tokenizer_json)} {'agrees' if agrees else 'differs'}\n".encode()


def trial_path(tokenizer_json: bytes) -> Path:
    """Return the path of a tokenizer's cached outcome."""
    return cache_dir() / "engines" / f"{_key(tokenizer_json)[:24]}.txt"


@functools.lru_cache(maxsize=2)
def _key(tokenizer_json: bytes) -> str:
    """Return the key of a trial: a digest of the tokenizer, both encoders' versions and that of the trial texts."""
    versions = f"{fast_version()} {library_version('tokenizers')} {_TRIALS_VERSION}"
    return hashlib.sha256(f"{hashlib.sha256(tokenizer_json).hexdigest()} {versions}".encode()).hexdigest()
