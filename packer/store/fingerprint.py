"""The fingerprint of a cache: the same for the same rows, made of the same inputs by the same rules.

It is the sha256 of JSON of parts of the manifest, which `docs/reference/format.md` lists. One of these parts is the
fingerprint of the content, which is computed from the rows.

So neither paths nor the engine, the number of processes, the machine or the versions of libraries change it; the sha256
of a file may depend on the version of Arrow that wrote it. Sources are compared by what was read of them: a pattern and
a list of the same files are the same, and so are a renamed file and one whose schema was detected or named.

Everything is in the manifest, so any version of packer computes the same value. `verify` computes again what the
manifest says about rows, splits and rejected rows: a cache with a pinned fingerprint that passes holds those rows.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from packer.batches import Int64, UInt64
from packer.errors import CheckError
from packer.store.block_shards import BlockShards
from packer.store.document_shards import DocumentShards
from packer.store.entries import Kind, has_column
from packer.store.manifest import MANIFEST_NAME, Manifest, Shard
from packer.store.row_tables import split_documents


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


def content_fingerprint(
    folder: Path, shards: Sequence[Shard], documents: Mapping[str, DocumentShards] | None = None
) -> str:
    """Compute the sha256 over each kind and split of all shards, in row order; digests are not checked here.

    A document contributes its doc_id (a digest of ids, labels, weights and values of its row), its row in the input
    file, its side and margin if it has them, and with values of files its row digest; a block contributes its
    row digest. A document's row digest is not used otherwise, as it also covers the row number within the partition:
    changing `partition_bytes` does not change the content. By default documents belong to the split of their shard.
    """
    if documents is None:
        documents = split_documents(folder, [shard for shard in shards if shard.kind == "documents"], None)
    blocks = [shard for shard in shards if shard.kind == "blocks"]
    rows: dict[tuple[Kind, str], Iterator[Int64 | UInt64]] = {
        ("documents", split): _document_content(own) for split, own in documents.items()
    }
    for split in {shard.split for shard in blocks}:
        own = BlockShards(folder, [each for each in blocks if each.split == split])
        rows["blocks", split] = (digests for _, (digests,) in own.by_shard({"digest": np.uint64}))
    whole = hashlib.sha256()
    for kind, split in sorted(rows):
        content = hashlib.sha256()
        for values in rows[kind, split]:
            content.update(values.data)
        whole.update(f"{kind}/{split} {content.hexdigest()}\n".encode())
    return whole.hexdigest()


def _document_content(documents: DocumentShards) -> Iterator[Int64]:
    """Yield what each document contributes, shard by shard.  # int64[rows of the shard, 2 to 5] each"""
    wanted: dict[str, type[np.generic]] = {"doc_id": np.int64, "row": np.int32}
    if any(shard.joined for shard in documents.shards):
        wanted["digest"] = np.uint64
    if has_column(documents.shards, "side"):
        wanted |= {"side": np.int8, "margin": np.float32}
    for shard, found in documents.by_shard(wanted):
        bits = (each.view(np.int32) if each.dtype == np.float32 else each for each in found)
        columns = np.stack([each.astype("<i8") for each in bits], axis=1)
        columns[:, 1] += shard.first_row
        yield columns
