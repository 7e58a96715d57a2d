"""What a cache is made from, and the names of what is made: keys of partitions, the fingerprint of the recipe.

Both are sha256 of canonical JSON. Places (paths, folders), times and numbers of workers never enter. Of a
recipe only the keys that differ from their default enter, so that a later version of packer can add a key without
making every cache look stale.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import msgspec

from packer.curate.trait_rules import TraitRules
from packer.recipe import Recipe
from packer.source import Partition
from packer.store.manifest import FORMAT_VERSION, Input, Manifest, ModelRecord

RULES_VERSION = 5
"""Raised when the same rows, recipe and engine give other documents."""

CODE_VERSION = "packer_code"
"""Under which a manifest's `versions` have :func:`packer.version.code_digest`."""


def documents_identity(
    recipe: Recipe, model_digests: Mapping[str, str], engine_version: str, *, rules_version: int = RULES_VERSION
) -> dict[str, Any]:
    """What decides the documents of a row, besides the row.

    `model_digests`: sha256 of each file of the tokenizer, the template among them.
    """
    return {
        "format_version": FORMAT_VERSION,
        "rules_version": rules_version,
        "engine_version": engine_version,
        "model": dict(model_digests),
        "recipe": _changed(recipe.documents_half(), Recipe().documents_half()),
    }


def partition_key(partition: Partition, entry: Input, documents: Mapping[str, Any]) -> str:
    """Identity of a partition's result: its bytes, how its input's rows are read, and the documents half."""
    return _digest({**_rows_identity(partition, entry), "documents": documents})


def traits_key(partition: Partition, entry: Input, max_row_bytes: int, rules: TraitRules) -> str:
    """Identity of the traits of a partition: its bytes, how its input's rows are read, and what is asked of them."""
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
        **_roles(entry.roles),
    }


def recipe_fingerprint(recipe: Recipe, documents: Mapping[str, Any], inputs: Sequence[Input]) -> str:
    """Identity of what a build would make: equal fingerprints make the same cache."""
    read = [
        {
            "split": entry.split,
            "format": entry.format,
            "schema": entry.schema,
            "sha256": entry.sha256,
            "num_rows": entry.num_rows,
            "columns": entry.columns,
            **_roles(entry.roles),
        }
        | ({} if entry.part is None else {"part": entry.part})
        for entry in inputs
    ]
    blocks = _changed(recipe.blocks_half(), Recipe().blocks_half())
    partition_bytes = recipe.partition_bytes
    whole = {"documents": documents, "blocks": blocks, "inputs": read, "partition_bytes": partition_bytes}
    rules = recipe.row_rules.without_places
    return _digest(whole | {"rows": msgspec.to_builtins(rules)} if rules.asks else whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Everything a manifest says of a cache's origin."""

    recipe: Recipe
    engine: str
    engine_version: str
    rules_version: int
    model: ModelRecord
    inputs: tuple[Input, ...]

    @property
    def recipe_fingerprint(self) -> str:
        digests = model_digests(self.model)
        documents = documents_identity(self.recipe, digests, self.engine_version, rules_version=self.rules_version)
        return recipe_fingerprint(self.recipe, documents, self.inputs)

    @classmethod
    def of(cls, manifest: Manifest, recipe: Recipe) -> "Provenance":
        """That of a cache, with a recipe whose documents half is the cache's own."""
        return cls(
            recipe=recipe,
            engine=manifest.engine,
            engine_version=manifest.engine_version,
            rules_version=manifest.rules_version,
            model=manifest.model,
            inputs=manifest.inputs,
        )


def model_digests(model: ModelRecord) -> dict[str, str]:
    """File of a tokenizer → its sha256."""
    return {PurePosixPath(file.path).name: file.sha256 for file in model.files}


def _roles(roles: Mapping[str, str]) -> dict[str, Any]:
    """Roles of a source enter an identity where there are some: the key came later than the first caches."""
    return {"roles": dict(roles)} if roles else {}


def _changed(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that differ from their default, level by level."""
    changed: dict[str, Any] = {}
    for key, value in values.items():
        default = defaults.get(key)
        if value == default:
            continue
        nested = isinstance(value, Mapping) and isinstance(default, Mapping)
        changed[key] = _changed(value, default) if nested and default else value
    return changed


def _digest(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
