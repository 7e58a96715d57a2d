"""The engine that encodes: resolved before a build begins, and recorded by name and version.

``auto`` uses the fast engine if it is installed and agrees with the reference on every trial text. The outcome of that
trial is cached (`packer/model/backend.py`). If the engines are found to differ during a build, that is cached as well.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from packer.errors import RecipeError, StorageError, UsageError
from packer.model.backend import cached_outcome, encode_outcome, fast_version, trial_path
from packer.store.folder import write_atomically
from packer.tokenize import Check, Encoder, FastEncoder, ReferenceEncoder, differences
from packer.version import library_version

EngineName: TypeAlias = Literal["reference", "fast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The encoder of a build."""

    name: EngineName
    version: str
    """Versions of everything that determines its ids and texts."""


def resolve_engine(asked: str, tokenizer_json: bytes, *, before: str | None = None) -> Engine:
    """Choose the engine for a tokenizer: ``auto``, ``reference`` or ``fast`` is `asked`.

    ``auto`` keeps the reference if that was the engine of the existing cache, `before`, so that installing the other
    one does not cause everything to be tokenized again.
    """
    if asked == "reference" or (asked == "auto" and (fast_version() is None or before == "reference")):
        return _reference()
    if fast_version() is None:
        raise RecipeError(
            "engine is fast, but gigatoken is not installed",
            hint="pip install gigatoken, or --set engine=auto",
        )
    refused = _difference(tokenizer_json)
    if refused is None:
        return Engine(name="fast", version=f"{fast_version()}, {_reference().version}")
    if asked == "fast":
        raise RecipeError(f"engine is fast, but: {refused}", hint="--set engine=reference, or auto")
    return _reference()


def encoder_of(engine: str, tokenizer_json: bytes, check: Check | None = None) -> Encoder:
    """Return the encoder for a recipe's engine; an ``auto`` that is not resolved yet gets the reference."""
    return FastEncoder(tokenizer_json, check=check) if engine == "fast" else ReferenceEncoder(tokenizer_json)


def remember(tokenizer_json: bytes, *, agrees: bool) -> None:
    """Cache whether the fast engine agrees with the reference for a tokenizer."""
    # If the home directory is not writable, every build repeats the trial; nothing else breaks.
    with suppress(StorageError, UsageError):
        write_atomically(trial_path(tokenizer_json), encode_outcome(tokenizer_json, agrees=agrees))


def _reference() -> Engine:
    versions = f"tokenizers {ReferenceEncoder.version}, jinja2 {library_version('jinja2')}"
    return Engine(name="reference", version=versions)


def _difference(tokenizer_json: bytes) -> str | None:
    """Return how the fast engine differs, or None if it agrees; run the trial unless its outcome is cached."""
    agrees = cached_outcome(tokenizer_json)
    if agrees is None:
        difference = differences(tokenizer_json)
        remember(tokenizer_json, agrees=difference is None)
        return difference
    return None if agrees else "it was found not to load this tokenizer, or to encode it differently"
