"""The engine that encodes: resolved before a build begins, and recorded by name and version.

``auto`` uses the fast engine if it is installed and agrees with the reference on every trial text. The trial of a large
tokenizer takes seconds, so its outcome is cached in the user's cache folder, keyed by the digest of the tokenizer and
the versions of both encoders. If the engines are found to differ during a build, that is cached as well.

The cached outcome is a small file with one of two possible contents, both derived from that key; any other content
counts as a cache miss. The file belongs to the user: whoever can write it can make a build skip the trial, but the
documents of each partition are still verified.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeAlias

from packer.errors import InputError, RecipeError, StorageError, UsageError
from packer.store.folder import write_atomically
from packer.store.place import cache_dir
from packer.tokenize import Encoder, FastEncoder, ReferenceEncoder, differences, fast_version
from packer.tokenizer_folder import read_regular

EngineName: TypeAlias = Literal["reference", "fast"]

WORTH_LOADING_BYTES = 2 * 2**20
"""Bytes of rows that the reference encodes in about the time it takes to load the fast encoder.

A smaller input is left to the reference.
"""

_TRIALS_VERSION = 1
"""Raised when the trial texts change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The encoder of a build."""

    name: EngineName
    version: str
    """Versions of everything that determines its ids and texts."""

    refused: str | None = None
    """Why the fast engine is not used although it is installed; None if it is used or not installed."""


def resolve_engine(asked: str, tokenizer_json: bytes, *, before: str | None = None) -> Engine:
    """Choose the engine for a tokenizer.

    Args:
        asked: ``auto``, ``reference`` or ``fast``.
        tokenizer_json: content of the tokenizer's file.
        before: engine of the existing cache. ``auto`` keeps it, so that installing the other engine does not cause
            everything to be tokenized again.

    Raises:
        RecipeError: ``fast`` is required but cannot be used.

    """
    if asked == "reference" or (asked == "auto" and (fast_version() is None or before == "reference")):
        return _reference()
    if fast_version() is None:
        raise RecipeError(
            "engine is fast, and fastokens is not installed", hint="pip install fastokens, or --set engine=auto"
        )
    refused = _difference(tokenizer_json)
    if refused is None:
        return Engine(name="fast", version=f"fastokens {fast_version()}, {_reference().version}")
    if asked == "fast":
        raise RecipeError(f"engine is fast, but: {refused}", hint="--set engine=reference, or auto")
    return Engine(name="reference", version=_reference().version, refused=refused)


def encoder_of(engine: str, tokenizer_json: bytes) -> Encoder:
    """Return the encoder for a recipe's engine; an ``auto`` that is not resolved yet gets the reference."""
    return FastEncoder(tokenizer_json) if engine == "fast" else ReferenceEncoder(tokenizer_json)


def is_known_fast(asked: str, tokenizer_json: bytes) -> bool:
    """Whether the fast engine will be chosen, judging by cached outcomes alone; runs no trial."""
    return asked != "reference" and fast_version() is not None and _remembered(tokenizer_json) is True


def remember(tokenizer_json: bytes, *, agrees: bool) -> None:
    """Cache whether the fast engine agrees with the reference for a tokenizer."""
    # If the home directory is not writable, every build repeats the trial; nothing else breaks.
    with suppress(StorageError, UsageError):
        write_atomically(_place(tokenizer_json), _outcome(tokenizer_json, agrees=agrees))


def _reference() -> Engine:
    return Engine(name="reference", version=f"tokenizers {ReferenceEncoder.version}, jinja2 {version('jinja2')}")


def _difference(tokenizer_json: bytes) -> str | None:
    """Return how the fast engine differs, or None if it agrees; run the trial unless its outcome is cached."""
    agrees = _remembered(tokenizer_json)
    if agrees is None:
        difference = differences(tokenizer_json)
        remember(tokenizer_json, agrees=difference is None)
        return difference
    return None if agrees else "fastokens was found to encode differently from tokenizers with this tokenizer"


def _remembered(tokenizer_json: bytes) -> bool | None:
    """Return the cached outcome: whether the fast engine agreed; None without one, or if the file is not a trial's."""
    with suppress(InputError, UsageError):
        found = read_regular(_place(tokenizer_json), max_bytes=80, what="the outcome of a trial")
        return {_outcome(tokenizer_json, agrees=agrees): agrees for agrees in (True, False)}.get(found)
    return None


def _outcome(tokenizer_json: bytes, *, agrees: bool) -> bytes:
    """Return the exact content of the file that records an outcome."""
    return f"{_trial_key(tokenizer_json)} {'agrees' if agrees else 'differs'}\n".encode()


def _trial_key(tokenizer_json: bytes) -> str:
    """Return the key of a trial: a digest of the tokenizer, both encoders' versions and that of the trial texts."""
    key = f"{hashlib.sha256(tokenizer_json).hexdigest()} {fast_version()} {ReferenceEncoder.version} {_TRIALS_VERSION}"
    return hashlib.sha256(key.encode()).hexdigest()


def _place(tokenizer_json: bytes) -> Path:
    """Return the path of a tokenizer's cached outcome; raise UsageError without a home directory."""
    return cache_dir() / "engines" / f"{_trial_key(tokenizer_json)[:24]}.txt"
