"""The cached outcomes of trials: whether the fast encoder agrees with the reference for a tokenizer.

A trial of a large tokenizer takes seconds (:func:`packer.tokenize.differences`), so its outcome is kept in the user's
cache folder, under a key of the tokenizer and the versions of both encoders. It is a small file with one of two
possible contents, both derived from that key; any other content counts as a cache miss. The file belongs to the user:
whoever can write it can make a build skip the trial, but the documents of each partition are still verified.

This module imports little, so that a process knows early which encoder to load.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

from packer.errors import InputError, UsageError
from packer.host.cache_dir import cache_dir
from packer.model.tokenizer_folder import read_regular
from packer.version import library_version

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


def _key(tokenizer_json: bytes) -> str:
    """Return the key of a trial: a digest of the tokenizer, both encoders' versions and that of the trial texts."""
    versions = f"{fast_version()} {library_version('tokenizers')} {_TRIALS_VERSION}"
    return hashlib.sha256(f"{hashlib.sha256(tokenizer_json).hexdigest()} {versions}".encode()).hexdigest()
