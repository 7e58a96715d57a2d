"""Which engine encodes: resolved before a build begins, and recorded by its name and version.

``auto`` takes the fast engine where it is installed and agrees with the reference on everything it is tried on. A trial
of a large tokenizer takes seconds, so its outcome is remembered in the user's cache folder, under the digest of the
tokenizer and the versions of both encoders. A tokenizer that was found to differ in a build is remembered too.

What is remembered is a small file that holds one of two texts, which name that digest; anything else in its place is as
good as nothing. It is the user's own file: whoever can write it can make a build use the fast engine untried, and then
each partition is still proved.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeAlias

from packer.errors import InputError, RecipeError, StorageError
from packer.store.folder import write_atomically
from packer.store.place import cache_dir
from packer.tokenize import Encoder, FastEncoder, ReferenceEncoder, differences, fast_version
from packer.tokenizer_folder import read_regular

EngineName: TypeAlias = Literal["reference", "fast"]

WORTH_LOADING_BYTES = 2 * 2**20
"""Rows that the reference encodes in about the time that a fast encoder takes to be loaded; fewer are left to it."""

_TRIALS_VERSION = 1
"""Raised when the trials of a tokenizer change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The encoder of a build."""

    name: EngineName
    version: str
    """Versions of everything that decides its ids and texts."""

    refused: str | None = None
    """Why the fast engine is not used, where it is installed."""


def resolve_engine(asked: str, tokenizer_json: bytes, *, before: str | None = None) -> Engine:
    """The engine for a tokenizer.

    Args:
        asked: ``auto``, ``reference`` or ``fast``.
        tokenizer_json: the tokenizer.
        before: engine of the cache that is there. ``auto`` stays with it, so that installing the other one does not
            tokenize everything again.

    Raises:
        RecipeError: ``fast`` was asked for and cannot be used.

    """
    if asked == "reference" or (asked == "auto" and (fast_version() is None or before == "reference")):
        return _reference()
    if fast_version() is None:
        raise RecipeError(
            "engine is fast, and fastokens is not installed", hint="pip install fastokens, or --set engine=auto"
        )
    refused = _tried(tokenizer_json)
    if refused is None:
        return Engine(name="fast", version=f"fastokens {fast_version()}, {_reference().version}")
    if asked == "fast":
        raise RecipeError(f"engine is fast, but: {refused}", hint="--set engine=reference, or auto")
    return Engine(name="reference", version=_reference().version, refused=refused)


def encoder_of(engine: str, tokenizer_json: bytes) -> Encoder:
    """The encoder of a recipe's engine; that of ``auto`` before it is resolved is the reference."""
    return FastEncoder(tokenizer_json) if engine == "fast" else ReferenceEncoder(tokenizer_json)


def is_known_fast(asked: str, tokenizer_json: bytes) -> bool:
    """Whether the fast engine will be taken, as far as is known before a build is planned; nothing is tried."""
    return asked != "reference" and fast_version() is not None and _remembered(tokenizer_json) is True


def remember(tokenizer_json: bytes, *, agrees: bool) -> None:
    """Keep whether the fast engine encodes as the reference does with a tokenizer."""
    # A home that cannot be written to costs a trial at every build, nothing else.
    with suppress(StorageError, RuntimeError):
        write_atomically(_place(tokenizer_json), _outcome(tokenizer_json, agrees=agrees))


def _reference() -> Engine:
    return Engine(name="reference", version=f"tokenizers {ReferenceEncoder.version}, jinja2 {version('jinja2')}")


def _tried(tokenizer_json: bytes) -> str | None:
    """What the fast engine gets wrong; tried once for each tokenizer and pair of versions."""
    agrees = _remembered(tokenizer_json)
    if agrees is None:
        difference = differences(tokenizer_json)
        remember(tokenizer_json, agrees=difference is None)
        return difference
    return None if agrees else "fastokens was found to encode otherwise than tokenizers with this tokenizer"


def _remembered(tokenizer_json: bytes) -> bool | None:
    """Whether the fast engine agreed; None where it was not tried, or what lies there is not what a trial writes."""
    with suppress(InputError, RuntimeError):
        found = read_regular(_place(tokenizer_json), max_bytes=80, what="the outcome of a trial")
        return {_outcome(tokenizer_json, agrees=agrees): agrees for agrees in (True, False)}.get(found)
    return None


def _outcome(tokenizer_json: bytes, *, agrees: bool) -> bytes:
    """All that the file of a trial holds."""
    return f"{_trial(tokenizer_json)} {'agrees' if agrees else 'differs'}\n".encode()


def _trial(tokenizer_json: bytes) -> str:
    """What a trial depends on: the tokenizer, both encoders, and what is tried."""
    key = f"{hashlib.sha256(tokenizer_json).hexdigest()} {fast_version()} {ReferenceEncoder.version} {_TRIALS_VERSION}"
    return hashlib.sha256(key.encode()).hexdigest()


def _place(tokenizer_json: bytes) -> Path:
    """Where the outcome for a tokenizer is kept; RuntimeError where there is no home."""
    return cache_dir() / "engines" / f"{_trial(tokenizer_json)[:24]}.txt"
