"""A finished cache, opened for reading, and what identifies it."""

import hashlib
import json
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec

from packer.errors import CheckError, UsageError
from packer.names import shown
from packer.store.entries import Kind, has_column
from packer.store.manifest import MANIFEST_NAME, Manifest, read_manifest
from packer.store.mapping import check_sizes
from packer.store.media_shards import MediaShards
from packer.store.place import SentFolder, cache_place
from packer.store.row_tables import documents_of
from packer.store.shards import BlockShards, DocumentShards

__all__ = ["BlockShards", "Cache", "DocumentShards"]


class Cache:
    """A cache whose manifest and file sizes have been checked. Shards are memory-mapped on first access.

    Pickles as its folder and fingerprint: another process opens the same rows, or gets an error.

    Example:
        >>> cache = Cache.open("cache")  # doctest: +SKIP
        >>> cache.blocks("train").read(np.array([0, 1]))  # doctest: +SKIP
    """

    def __init__(self, folder: Path, manifest: Manifest, sources: Iterable[str | Path] = ()) -> None:
        self.folder = folder
        self.manifest = manifest
        self._sources = tuple(Path(each).absolute() for each in sources)
        self._blocks: dict[str, BlockShards] = {}
        self._documents: Mapping[str, DocumentShards] | None = None

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        cache_dir: Path | str | None = None,
        sources: str | Path | Sequence[str | Path] = (),
    ) -> Self:
        """Read the manifest and compare every shard's size with it.

        Args:
            folder: the cache; on the Hub ``hf://datasets/ORG/NAME[@REVISION][/FOLDER]``, in a bucket
                ``s3://BUCKET/FOLDER``, ``gs://…`` or ``az://…``.
            cache_dir: folder for downloaded shards of a cache in a bucket, shared by all processes of a machine. Shards
                are downloaded on first access. None uses `PACKER_CACHE_DIR`, or packer's folder in the user's cache.
            sources: folders below which images are read that the cache only names (``media.keep: reference``): where
                they are now, or a folder above the `media.root` of its build. By default no such file is opened.

        Raises:
            UsageError: it is in a bucket and obstore is not installed.
            InputError: not a cache, or its build did not finish.
            CheckError: the manifest is invalid, or a shard is missing, truncated or too long.
            StorageError: a file cannot be read.
        """
        folder = cache_place(folder, keep_in=cache_dir)
        manifest = read_manifest(folder)
        # No build writes blocks of pairs or rated answers: rejected answers would be imitated.
        is_packed = any(shard.kind == "blocks" for shard in manifest.shards)
        if is_packed and has_column(manifest.document_shards, "side"):
            hint = "the same build with --force keeps its documents, which readers batch padded or without padding"
            raise CheckError(f"{folder} has blocks of pairs or rated answers, which nothing reads", hint=hint)
        check_sizes(folder, manifest.stored)
        return cls(folder, manifest, as_folders(sources))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (SentFolder.of(self.folder.absolute()), self.fingerprint, self._sources)

    def __repr__(self) -> str:
        totals = self.manifest.totals
        blocks = f"{totals.blocks:,} blocks of {self.manifest.recipe['pack']['block_len']:,} tokens"
        holds = f"{totals.documents:,} documents, {blocks}, fingerprint {self.fingerprint[:12]}"
        return f"<Cache '{shown(self.folder)}': {holds}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def splits(self, kind: Kind) -> tuple[str, ...]:
        """Return the splits that have documents or blocks, in the manifest's order."""
        if kind == "documents" and self.manifest.selection is not None:
            return self.manifest.selection.splits
        return tuple(dict.fromkeys(shard.split for shard in self.manifest.shards if shard.kind == kind))

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same rows, made of the same inputs by the same rules (:func:`fingerprint`)."""
        return fingerprint(self.manifest)

    @cached_property
    def has_sides(self) -> bool:
        """Whether each document is a side of a pair, or a rated answer; a split without documents does not show it."""
        return has_column(self.manifest.document_shards, "side")

    @cached_property
    def is_paired(self) -> bool:
        """Whether the documents are sides of pairs."""
        return any(self.documents(split).is_paired for split in self.splits("documents"))

    @cached_property
    def images(self) -> MediaShards:
        """The images of the documents."""
        return MediaShards.of(self.folder, self.manifest, self._sources)

    def refuse_images(self, reader: str) -> None:
        """Refuse a cache with images for what reads tokens alone; `reader` names it.

        Raises:
            UsageError: the cache has images.
        """
        if self.manifest.media is not None:
            raise UsageError(
                f"{self.folder} has images, which {reader} would leave out", hint="packer.load.PackedLoader reads them"
            )

    def documents(self, split: str) -> DocumentShards:
        """Return the documents of a split.

        Raises:
            UsageError: no such split.
        """
        if self._documents is None:
            self._documents = documents_of(self.folder, self.manifest)
        if split not in self._documents:
            raise self._no_split("documents", split)
        return self._documents[split]

    def blocks(self, split: str) -> BlockShards:
        """Return the blocks of a split.

        Raises:
            UsageError: no such split.
        """
        if split not in self._blocks:
            shards = [shard for shard in self.manifest.shards if (shard.kind, shard.split) == ("blocks", split)]
            if not shards:
                raise self._no_split("blocks", split)
            self._blocks[split] = BlockShards(self.folder, shards)
        return self._blocks[split]

    def close(self) -> None:
        """Release the mapped files; arrays that were returned stay valid."""
        self._blocks.clear()
        self._documents = None

    def _no_split(self, kind: Kind, split: str) -> UsageError:
        there = ", ".join(self.splits(kind))
        if not there and kind == "blocks":
            hint = "batching padded, padding_free and token_budget read documents; images need pack.max_pixels"
            return UsageError(f"{self.folder} has no blocks: pack.mode is 'none'", hint=hint)
        return UsageError(
            f"{self.folder} has no {kind} of split '{split}'", hint=f"splits with {kind}: {there or 'none'}"
        )


def as_folders(sources: Any) -> tuple[str | Path, ...]:
    """Return the folders below which images are read: one, or several; TypeError for anything else."""
    folders = (sources,) if isinstance(sources, str | Path) else sources
    if not isinstance(folders, list | tuple) or not all(isinstance(each, str | Path) for each in folders):
        raise TypeError(f"sources is {reprlib.repr(sources)}; expected a folder, or a list of folders")
    return tuple(folders)


def _reopen(sent: SentFolder, fingerprint: str, sources: tuple[Path, ...]) -> Cache:
    cache = Cache.open(sent.arrive(), sources=sources)
    if cache.fingerprint != fingerprint:
        found = f"expected fingerprint {fingerprint}, found {cache.fingerprint}"
        raise CheckError(
            f"{cache.folder} was built again while in use: {found}",
            hint="start again with the new cache",
        )
    return cache


def fingerprint(manifest: Manifest) -> str:
    """Compute the fingerprint of a cache: the same for the same rows, made of the same inputs by the same rules.

    It is the sha256 of JSON of parts of the manifest, which `docs/reference/format.md` lists. So neither paths nor the
    engine, the number of processes, the machine or the versions of libraries change it. Sources are compared by what
    was read of them: a pattern and a list of the same files are the same, so are a renamed file and one whose schema
    was detected or named. `verify` computes again what the manifest says about rows, splits and rejected rows.
    """
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
