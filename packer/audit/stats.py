"""Statistics of a cache: rows in, documents out, document lengths."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer.batches import SIDES, Int32, Side
from packer.display import repair_hint
from packer.errors import CheckError
from packer.pipeline.messages.build_result import BuildResult
from packer.store.cache import Cache
from packer.store.entries import InNoBlock, Totals
from packer.store.files import CacheFiles
from packer.store.manifest import MANIFEST_NAME, Manifest, ModelFile, StoredTable
from packer.store.row_tables import read_selection, rejected_path
from packer.store.shards import BlockShards, DocumentShards

_QUANTILES = {"min": 0.0, "p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Document lengths of a split in tokens: extremes and quantiles, each an actual length."""

    min: int
    p10: int
    """A tenth of the documents are this long or shorter."""

    p50: int
    p90: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStats:
    """Statistics of one split."""

    split: str
    kept: int
    """Rows of the inputs that have documents there."""

    documents: int
    tokens: int
    trained: int
    lengths: Lengths | None
    sides: dict[Side, Lengths]
    """Document lengths by side; empty in a cache without sides."""

    blocks: int
    slots: int
    packed_tokens: int

    @property
    def trained_share(self) -> float:
        """Trained tokens as a fraction of all document tokens."""
        return _ratio(self.trained, self.tokens)

    @property
    def fill(self) -> float:
        """Tokens in blocks as a fraction of slots."""
        return _ratio(self.packed_tokens, self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Statistics of a whole cache: what its manifest counts, and what it does not."""

    summary: BuildResult
    """The cache as a build finds it that has nothing to do: its report, with warnings about rules and blocks; in `rows`
    the effect of the recipe's rules about rows, if it has any."""

    splits: tuple[SplitStats, ...]
    images: int
    """Images in all documents, as often as they show them. Rows that rules leave out count too."""

    image_tokens: int
    image_pixels: int
    """What a vision tower reads for all of them: `pack.max_pixels` counts the same."""

    num_bytes: dict[str, int]
    """Of documents, of blocks, and of all else: manifest, rejected.jsonl, tokenizer files, images, tables of rules."""

    @property
    def manifest(self) -> Manifest:
        assert self.summary.manifest is not None, "that of the cache"
        return self.summary.manifest

    @property
    def totals(self) -> Totals:
        """Counts over all rows that are not rejected, also of those that rules leave out."""
        return self.manifest.totals

    @property
    def block_len(self) -> int:
        length: int = self.manifest.recipe["pack"]["block_len"]
        return length

    @property
    def documents(self) -> int:
        """Documents of all splits, as `tokens` and `trained`: without those of rows that rules leave out."""
        return sum(split.documents for split in self.splits)

    @property
    def tokens(self) -> int:
        return sum(split.tokens for split in self.splits)

    @property
    def trained(self) -> int:
        return sum(split.trained for split in self.splits)

    @property
    def trained_share(self) -> float:
        return _ratio(self.trained, self.tokens)

    @property
    def fill(self) -> float:
        return _ratio(self.totals.slots - self.totals.padding, self.totals.slots)

    @property
    def cut_tokens(self) -> int:
        """Tokens of `tokens` that are not in any block."""
        return InNoBlock.of(self.totals).tokens

    @property
    def bytes_per_token(self) -> float:
        """Bytes of the whole cache per token of `tokens`."""
        return _ratio(sum(self.num_bytes.values()), self.tokens)


def stats(folder: Path | str) -> Stats:
    """Compute statistics of a cache. Reads the manifest and the columns of lengths and identities, no tokens.

    Raises:
        InputError: not a cache, or its build did not finish.
        CheckError: a file is missing, or does not have the size or structure that the manifest records.
        StorageError: a file cannot be read.
    """
    with Cache.open(folder) as cache:
        shown = _images(cache)
        return Stats(
            summary=BuildResult.of_cache(cache.folder, cache.manifest),
            splits=tuple(_split_stats(cache, split) for split in cache.splits("documents")),
            images=len(shown),
            image_tokens=int(shown[:, 1].sum(dtype=np.int64)),
            image_pixels=int(shown[:, 4].sum(dtype=np.int64)),
            num_bytes=_num_bytes(cache),
        )


def count_lengths(lengths: Int32) -> Lengths | None:
    """Compute quantiles."""
    if not len(lengths):
        return None
    quantiles = np.quantile(lengths, [*_QUANTILES.values()], method="inverted_cdf").tolist()
    return Lengths(**dict(zip(_QUANTILES, quantiles, strict=True)))


def _split_stats(cache: Cache, split: str) -> SplitStats:
    documents = cache.documents(split)
    lengths = documents.lengths()
    sides = {}
    if documents.has_sides:
        of_document = documents.sides()
        sides = {name: count_lengths(lengths[of_document == number]) for number, name in enumerate(SIDES)}
    shards = [shard for shard in cache.manifest.shards if (shard.kind, shard.split) == ("blocks", split)]
    blocks = BlockShards(cache.folder, shards)
    return SplitStats(
        split=split,
        kept=kept_rows(cache, split),
        documents=len(lengths),
        tokens=documents.num_tokens,
        trained=int(documents.num_trained().sum(dtype=np.int64)),
        lengths=count_lengths(lengths),
        sides={name: own for name, own in sides.items() if own is not None},
        blocks=len(blocks),
        slots=len(blocks) * int(cache.manifest.recipe["pack"]["block_len"]),
        packed_tokens=blocks.num_tokens,
    )


def kept_rows(cache: Cache, split: str) -> int:
    """Return the number of input rows that have documents in a split."""
    selection = cache.manifest.selection
    if selection is None:
        return sum(shard.num_kept for shard in cache.documents(split).shards)
    return int((read_selection(cache.folder, selection).split == selection.splits.index(split)).sum())


def _images(cache: Cache) -> Int32:
    """Return the places of each image that a document shows, as `Media` has them.  # int32[M, 5]"""
    none = np.zeros((0, 5), np.int32)
    if cache.manifest.media is None:
        return none
    chunks = DocumentShards(cache.folder, cache.manifest.document_shards).chunks()
    return np.concatenate([none, *(rows.media.places for rows, _ in chunks if rows.media is not None)])


def _num_bytes(cache: Cache) -> dict[str, int]:
    """Return the bytes of documents, of blocks, and of all else."""
    manifest, found = cache.manifest, {"documents": 0, "blocks": 0, "other": 0}
    for shard in manifest.shards:
        found[shard.kind] += shard.num_bytes
    files: tuple[ModelFile | StoredTable, ...] = (*manifest.model.files, *manifest.tables, *(manifest.media or ()))
    found["other"] += sum(file.num_bytes for file in files)
    for name in (MANIFEST_NAME, rejected_path(cache.folder, manifest)):
        size = CacheFiles(cache.folder).size(name)
        if size is None:
            raise CheckError(f"{cache.folder / name} is missing", hint=repair_hint(cache.folder))
        found["other"] += size
    return found


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
