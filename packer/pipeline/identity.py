"""What decides the bytes of a build: its engine, its tokenizer and its recipe, with the identities that they make.

The engine is resolved before a build begins, and recorded by name and version. ``auto`` uses the fast engine if it is
installed and agrees with the reference on every trial text. The outcome of that trial is cached
(`packer/model/backend.py`), and so is that the engines were found to differ during a build. The tokenizer's files are
copied into the cache, as the folder may change or disappear.

Identities are keys of partitions, and the fingerprint of the recipe. Both are the sha256 of canonical JSON. Paths,
times and numbers of workers are excluded. Only recipe keys that differ from their defaults are included, so that a
later version of packer can add a key without making every cache stale.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

import msgspec

from packer.curate import traits_version
from packer.errors import RecipeError, StorageError, UsageError
from packer.host.files import leads_outside
from packer.model.backend import cached_outcome, encode_outcome, fast_version, trial_path
from packer.model.model import TOKENIZER_FILE, Model, model_of
from packer.recipe.recipe import Recipe
from packer.source.partition import Partition
from packer.store.files import CacheFiles, damage
from packer.store.folder import write_atomically
from packer.store.manifest import FORMAT_VERSION, MANIFEST_NAME, Input, Manifest, ModelFile, ModelRecord
from packer.tokenize.fast import differences
from packer.tokenize.reference_encoder import ReferenceEncoder
from packer.version import library_version

RULES_VERSION = 29
"""Raised when the same rows, recipe and engine would produce different documents."""

CODE_VERSION = "packer_code"
"""Key of :func:`packer.version.code_digest` in a manifest's `versions`."""

TRAITS_VERSION = "packer_traits"
"""Key of :func:`packer.curate.traits_version` in a manifest's `versions`; it has one if it has a selection.
"""


def key_of(partition: Partition, entry: Input, **made: Mapping[str, Any]) -> str:
    """Return the key of what is made of a partition: its bytes, how its input's rows are read, and what decides it.

    `made` is one argument, `documents=` the documents half of a build or `traits=` the rules about rows; its name goes
    into the key.
    """
    rows = {
        "bytes": partition.xxh3,
        "num_bytes": partition.stop - partition.start,
        "num_rows": partition.num_rows,
        "format": partition.format,
        "schema": entry.schema,
        "columns": entry.columns,
        "roles": entry.roles,
    }
    return _digest(rows | made)


def same_traits(manifest: Manifest, recipe: Recipe) -> bool:
    """Whether a build would record the same traits as a cache of this recipe has, if it has any."""
    if manifest.selection is None or not recipe.chooses_rows:
        return True
    return manifest.versions.get(TRAITS_VERSION, "") == traits_version(recipe.row_rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Everything a manifest records about a cache's origin."""

    recipe: Recipe
    engine: str
    engine_version: str
    rules_version: int
    model: ModelRecord
    inputs: tuple[Input, ...]

    @property
    def documents_identity(self) -> dict[str, Any]:
        """Everything besides the row itself that determines a row's documents."""
        return {
            "format_version": FORMAT_VERSION,
            "rules_version": self.rules_version,
            "engine_version": self.engine_version,
            "model": self.model.digests,
            "recipe": _changed(self.recipe.documents_half(), Recipe().documents_half()),
        }

    @property
    def recipe_fingerprint(self) -> str:
        """The identity of a build's result: equal fingerprints produce the same cache."""
        whole = {
            "documents": self.documents_identity,
            "blocks": _changed(self.recipe.blocks_half(), Recipe().blocks_half()),
            "inputs": [msgspec.to_builtins(msgspec.structs.replace(entry, path="")) for entry in self.inputs],
            "partition_bytes": self.recipe.partition_bytes,
        }
        if self.recipe.chooses_rows:
            whole["rows"] = msgspec.to_builtins(self.recipe.row_rules.without_places)
        return _digest(whole)

    @classmethod
    def of(cls, manifest: Manifest, recipe: Recipe) -> "Provenance":
        """Return the provenance of a cache, with a recipe whose documents half is the cache's own."""
        return cls(
            recipe=recipe,
            engine=manifest.engine,
            engine_version=manifest.engine_version,
            rules_version=manifest.rules_version,
            model=manifest.model,
            inputs=manifest.inputs,
        )


def _changed(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that differ from their defaults, compared recursively."""
    changed: dict[str, Any] = {}
    for key, value in values.items():
        default = defaults.get(key)
        if value != default:
            changed[key] = _changed(value, default) if default and isinstance(default, Mapping) else value
    return changed


def _digest(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


# The engine, and the tokenizer


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
