"""Which engine encodes: resolved before a build begins, and recorded by its name and version.

``auto`` takes the fast engine where it is installed and agrees with the reference on everything it is tried on. A trial
of a large tokenizer takes seconds, so its outcome is remembered in the user's cache folder, under the digest of the
tokenizer and the versions of both encoders. A tokenizer that was found to differ in a build is remembered too.
"""

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from packer.errors import RecipeError, StorageError
from packer.store.folder import write_atomically
from packer.tokenize import Encoder, FastEncoder, ReferenceEncoder, differences, fast_version

EngineName: TypeAlias = Literal["reference", "fast"]

WORTH_LOADING_BYTES = 2 * 2**20
"""Rows that the reference encodes in about the time that a fast encoder takes to be loaded; fewer are left to it."""

_TRIALS_VERSION = 1
"""Raised when the trials of a tokenizer change."""


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is remembered of a trial."""

    difference: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What encodes a build's texts."""

    name: EngineName
    version: str
    """Of everything that decides its ids and texts."""

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
    """Whether the fast engine will be taken, as far as can be told before a build is planned; nothing is tried."""
    return (
        asked != "reference" and fast_version() is not None and _remembered(tokenizer_json) == _Outcome(difference=None)
    )


def remember(tokenizer_json: bytes, difference: str | None) -> None:
    """Keep what the fast engine gets wrong with a tokenizer, or that nothing was found."""
    # A home that cannot be written to costs a trial at every build, nothing else.
    with suppress(StorageError, RuntimeError):
        write_atomically(_place(tokenizer_json), msgspec.json.encode(_Outcome(difference=difference)))


def _reference() -> Engine:
    return Engine(name="reference", version=f"tokenizers {ReferenceEncoder.version}, jinja2 {version('jinja2')}")


def _tried(tokenizer_json: bytes) -> str | None:
    """What the fast engine gets wrong; tried once for each tokenizer and pair of versions."""
    found = _remembered(tokenizer_json)
    if found is not None:
        return found.difference
    difference = differences(tokenizer_json)
    remember(tokenizer_json, difference)
    return difference


def _remembered(tokenizer_json: bytes) -> _Outcome | None:
    with suppress(OSError, RuntimeError, msgspec.DecodeError):
        return msgspec.json.decode(_place(tokenizer_json).read_bytes(), type=_Outcome)
    return None


def _place(tokenizer_json: bytes) -> Path:
    """Where the outcome for a tokenizer is kept; RuntimeError where there is no home."""
    key = f"{hashlib.sha256(tokenizer_json).hexdigest()} {fast_version()} {ReferenceEncoder.version} {_TRIALS_VERSION}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "packer" / "engines" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
