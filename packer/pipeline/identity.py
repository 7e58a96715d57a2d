"""Identities of what a build makes: keys of partitions, and the fingerprint of the recipe.

Both are the sha256 of canonical JSON. Paths, times and numbers of workers are excluded. Only recipe keys that differ
from their defaults are included, so that a later version of packer can add a key without making every cache stale.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import msgspec

from packer.curate import TraitRules, traits_version
from packer.recipe.recipe import Recipe
from packer.source.partition import Partition
from packer.store.manifest import FORMAT_VERSION, Input, Manifest, ModelRecord

RULES_VERSION = 27
"""Raised when the same rows, recipe and engine would produce different documents."""

CODE_VERSION = "packer_code"
"""Key of :func:`packer.version.code_digest` in a manifest's `versions`."""

TRAITS_VERSION = "packer_traits"
"""Key of :func:`packer.curate.traits_version` in a manifest's `versions`; it has one if it has a selection.
"""


def partition_key(partition: Partition, entry: Input, documents: Mapping[str, Any]) -> str:
    """Return the key of a partition's result: its bytes, how its input's rows are read, and the documents half."""
    return _digest({**_rows_identity(partition, entry), "documents": documents})


def traits_key(partition: Partition, entry: Input, max_row_bytes: int, rules: TraitRules) -> str:
    """Return the key of a partition's traits: its bytes, how its rows are read, and the rules that need traits."""
    asked = {"max_row_bytes": max_row_bytes, "rules": msgspec.to_builtins(rules)}
    return _digest({**_rows_identity(partition, entry), "traits": asked})


def _rows_identity(partition: Partition, entry: Input) -> dict[str, Any]:
    return {
        "bytes": partition.xxh3,
        "num_bytes": partition.stop - partition.start,
        "num_rows": partition.num_rows,
        "format": partition.format,
        "schema": entry.schema,
        "columns": entry.columns,
        "roles": entry.roles,
    }


def same_traits(manifest: Manifest, recipe: Recipe) -> bool:
    """Whether a build would record the same traits as a cache of this recipe has, if it has any."""
    if manifest.selection is None or not recipe.row_rules.is_set:
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
            "model": model_digests(self.model),
            "recipe": _changed(self.recipe.documents_half(), Recipe().documents_half()),
        }

    @property
    def recipe_fingerprint(self) -> str:
        """The identity of a build's result: equal fingerprints produce the same cache."""
        rules = self.recipe.row_rules.without_places
        whole = {
            "documents": self.documents_identity,
            "blocks": _changed(self.recipe.blocks_half(), Recipe().blocks_half()),
            "inputs": [msgspec.to_builtins(msgspec.structs.replace(entry, path="")) for entry in self.inputs],
            "partition_bytes": self.recipe.partition_bytes,
        }
        return _digest(whole | {"rows": msgspec.to_builtins(rules)} if rules.is_set else whole)

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


def model_digests(model: ModelRecord) -> dict[str, str]:
    """Return the sha256 of each of a tokenizer's files, by file name, and the identity of its processor."""
    files = {PurePosixPath(file.path).name: file.sha256 for file in model.files}
    return files if model.processor is None else files | {"processor": model.processor}


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
