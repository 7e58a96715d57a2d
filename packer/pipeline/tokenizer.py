"""The tokenizer of a build: the engine that encodes, and the copy in the cache, as the folder may change or disappear.

The engine is resolved before a build begins, and recorded by name and version. ``auto`` uses the fast engine if it is
installed and agrees with the reference on every trial text. The outcome of that trial is cached
(`packer/model/backend.py`). If the engines are found to differ during a build, that is cached as well.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from packer.errors import RecipeError, StorageError, UsageError
from packer.host.regular_file import leads_outside
from packer.model.backend import cached_outcome, encode_outcome, fast_version, trial_path
from packer.model.model import TOKENIZER_FILE, Model, model_of
from packer.recipe.recipe import Recipe
from packer.store.files import CacheFiles, damage
from packer.store.folder import write_atomically
from packer.store.manifest import MANIFEST_NAME, Manifest, ModelFile, ModelRecord
from packer.tokenize.fast import Check, FastEncoder, differences
from packer.tokenize.reference_encoder import Encoder, ReferenceEncoder
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
    agrees = cached_outcome(tokenizer_json)
    refused = None if agrees else "it was found not to load this tokenizer, or to encode it differently"
    if agrees is None:
        refused = differences(tokenizer_json)
        remember(tokenizer_json, agrees=refused is None)
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


def model_record(model: Model) -> ModelRecord:
    """Return a tokenizer's record for the manifest; its files are stored under a name derived from their contents."""
    digests = model.digests
    listed = "".join(f"{file} {digest}\n" for file, digest in sorted(digests.items()))
    name = hashlib.sha256(listed.encode()).hexdigest()[:12]
    return ModelRecord(
        files=tuple(
            ModelFile(path=f"{name}/{file}", num_bytes=len(content), sha256=digests[file])
            for file, content in sorted(model.files.items())
        ),
        vocab_size=model.vocab_size,
        pad_id=model.pad_id,
        eos_id=model.eos_id,
        stop_ids=model.stop_ids,
        control_ids=tuple(sorted(model.control.values())),
        processor=model.processor,
        image_ids=model.image_ids,
    )


def write_model(folder: Path, record: ModelRecord, files: Mapping[str, bytes]) -> None:
    """Copy a tokenizer's files into the cache; files that are already stored and intact are left alone."""
    cache = CacheFiles(folder)
    for file in record.files:
        name = f"model/{file.path}"
        if not leads_outside(folder, name) and cache.size(name) is not None and cache.sha256(name) == file.sha256:
            # A build that was killed may have named it without flushing the name.
            cache.sync(PurePosixPath(name).parent.as_posix())
        else:
            cache.write(name, files[PurePosixPath(name).name])


def kept_model(folder: Path, manifest: Manifest, recipe: Recipe) -> Model:
    """Return the model made of exactly the files that the manifest names; role markers are not searched for.

    A CheckError says that one of them is missing or damaged, or that none is a tokenizer.json.
    """
    files, cache = {}, CacheFiles(folder)
    for file in manifest.model.files:
        name = f"model/{file.path}"
        if cache.size(name) is None:
            raise damage(folder, name, "is missing")
        content = cache.read(name)
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise damage(folder, name, "is damaged: its sha256 is not the manifest's")
        files[PurePosixPath(file.path).name] = content
    if TOKENIZER_FILE not in files:
        raise damage(folder, MANIFEST_NAME, f"names no {TOKENIZER_FILE}")
    return model_of(files, folder / "model", stop=recipe.supervision.stop, pad_id=recipe.pack.pad_id)
