"""The `tokenizers` encoder of a `tokenizer.json` and the file's JSON, cached per process.

This module imports little, so that a process can start loading before its other imports.
"""

import functools
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

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


class FastBackend(NamedTuple):
    """The object of the library that encodes fast."""

    library: str
    encoder: Any
    """`gigatoken.gigatoken_rs.BPETokenizer` or `SentencePieceTokenizer`, or `fastokens.Tokenizer`."""


class FastLoadError(Exception):
    """No installed library that encodes fast loads a tokenizer; the message says why, for each."""


def load_fast_backend(model_json: bytes, *, anew: bool = False) -> FastBackend:
    """Return the fast encoder of a `tokenizer.json`, cached: that of the first library that loads it.

    `anew` loads it in any case, without the words that the cached one remembers.

    `gigatoken` loads the common tokenizers in half the time of `fastokens` and encodes SentencePiece-like ones several
    times as fast; `fastokens` knows any pattern that splits a text, where `gigatoken` knows those of a list. Loading
    takes a second for a large vocabulary. A caller that needs an object which another thread is loading waits for it.

    Raises:
        FastLoadError: neither loads it.
    """
    with _LOADING_FAST:
        if anew:
            _load_fast.cache_clear()
        return _load_fast(model_json)


_LOADING_FAST = threading.Lock()


@functools.lru_cache(maxsize=2)
def _load_fast(model_json: bytes) -> FastBackend:
    reasons = []
    for library, load in (("gigatoken", _gigatoken), ("fastokens", _fastokens)):
        try:
            return FastBackend(library, load(model_json))
        except ImportError as error:
            reasons.append(f"{library} cannot be imported: {error}")
        except BaseException as error:
            if out_of(error) is not None or not (isinstance(error, Exception) or is_panic(error)):
                raise
            reasons.append(f"{library} does not load this tokenizer: {str(error).partition(chr(10))[0][:120]}")
    raise FastLoadError("; ".join(reasons))


def _gigatoken(model_json: bytes) -> Any:
    from gigatoken.gigatoken_rs import load_hf_json  # noqa: PLC0415 - an extra

    return load_hf_json(model_json)


def _fastokens(model_json: bytes) -> Any:
    import fastokens  # noqa: PLC0415 - an extra

    backend = fastokens.Tokenizer.from_json_str(model_json.decode())
    backend.no_truncation()
    backend.no_padding()
    return backend


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
