"""The fingerprint of a cache: the same for the same rows, made of the same inputs by the same rules.

It is the sha256 of JSON of parts of the manifest, which `docs/reference/format.md` lists.

So neither paths nor the engine, the number of processes, the machine or the versions of libraries change it; the sha256
of a file may depend on the version of Arrow that wrote it. Sources are compared by what was read of them: a pattern and
a list of the same files are the same, and so are a renamed file and one whose schema was detected or named.

Everything is in the manifest, so any version of packer computes the same value. `verify` computes again what the
manifest says about rows, splits and rejected rows: a cache with a pinned fingerprint that passes holds those rows.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from packer.errors import CheckError
from packer.store.manifest import MANIFEST_NAME, Manifest


def fingerprint(manifest: Manifest) -> str:
    """Compute the fingerprint of a manifest's cache."""
    try:
        canonical = json.dumps(_decides(manifest), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        raise CheckError(f"{MANIFEST_NAME}: its recipe is nested too deep") from None
    return hashlib.sha256(canonical.encode()).hexdigest()


def _decides(manifest: Manifest) -> dict[str, Any]:
    parts = ("format_version", "rules_version", "model", "totals", "content_fingerprint", "rejected_content")
    of_shards = ("kind", "split", "source", "first_row", "rows_sha256")
    decides: dict[str, Any] = msgspec.to_builtins({name: getattr(manifest, name) for name in parts})
    sources = manifest.recipe.get("sources", ())
    chosen = [{name: source[name] for name in ("where", "take") if name in source} for source in sources]
    places = ("path",) if any(chosen) else ("path", "part")
    return decides | {
        "recipe": _without_places(manifest.recipe) | ({"sources": chosen} if any(chosen) else {}),
        "inputs": [_without(msgspec.to_builtins(entry), *places) for entry in manifest.inputs],
        "shards": [{name: getattr(shard, name) for name in of_shards} for shard in manifest.shards],
    }


def _without_places(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe without its places and sources; one that somebody else wrote may hold anything at these keys."""
    rules: dict[str, Any] = _without(recipe, "engine", "tokenizer", "sources")
    if "template" in rules:
        rules["template"] = _without(rules["template"], "file", "name")
    if media := _without(rules.pop("media", {}), "root"):
        rules["media"] = media
    for key in ("token_columns", "document_columns"):
        if isinstance(group := rules.get(key), dict):
            rules[key] = {name: _without(rule, "file") for name, rule in group.items()}
    if isinstance(asked := rules.get("decontaminate"), dict) and isinstance(asked.get("against"), list):
        rules["decontaminate"] = asked | {"against": [_without(each, "path") for each in asked["against"]]}
    return rules


def _without(values: Any, *names: str) -> Any:
    return {name: values[name] for name in values if name not in names} if isinstance(values, dict) else values
