"""Figures of a report that `packer stats` does not have: histograms, tokens of each input.

The templates draw plots as SVG in shares of their width and height, which needs no script and scales with the page.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.audit.stats import count_lengths
from packer.batches import Int32, Int64
from packer.display import plural
from packer.rejections import CODES, ROW_REASONS, rejection_hint
from packer.store.cache import Cache
from packer.store.manifest import Input
from packer.store.row_tables import Rejected, read_rejected
from packer.store.shards import DocumentShards


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Numbers of documents, or blocks, in consecutive ranges."""

    title: str
    caption: str
    axis: str
    """Name of the axis, with its unit."""

    unit: str = ""
    """Unit of a range, as it follows the range."""

    of: str
    """What is counted, as a singular noun."""

    edges: tuple[str, ...]
    """Start of each range, and end of the last one: one more than there are counts."""

    counts: tuple[int, ...]
    ranges: tuple[str, ...]
    """Names of the ranges."""


_EXAMPLES = 3
"""Lines shown for each code."""


class SourceFacts(NamedTuple):
    """What an input contributes to the cache."""

    input: Input
    documents: int
    tokens: int
    trained: int


class Reason(NamedTuple):
    """A code of rejected.jsonl, with how often it occurs and the first lines that have it."""

    code: str
    meaning: str
    hint: str
    num: int
    of: str
    """The unit of `count`: rows, or parts of documents."""

    examples: tuple[Rejected, ...]


class Documents(NamedTuple):
    """Columns of the documents of all splits, in the order of splits and files. D documents."""

    doc_id: Int64  # [D]
    length: Int32  # [D] tokens
    trained: Int32  # [D] tokens
    source: Int64  # [D] index into the manifest's inputs

    @classmethod
    def of(cls, cache: Cache) -> "Documents":
        """Read the columns of a cache's documents, without tokens."""
        none = DocumentShards(cache.folder, ())
        shards = [none, *map(cache.documents, cache.splits("documents"))]
        columns = [(each.doc_ids(), each.lengths(), each.num_trained(), each.origins()[0]) for each in shards]
        return cls(*map(np.concatenate, zip(*columns, strict=True)))


def source_facts(cache: Cache, documents: Documents) -> list[SourceFacts]:
    """Count rows, documents and tokens of each input; the most tokens first."""
    inputs = cache.manifest.inputs
    counts, tokens, trained = (
        np.bincount(documents.source, weights=weights, minlength=len(inputs)).astype(np.int64).tolist()
        for weights in (None, documents.length, documents.trained)
    )
    found = map(SourceFacts, inputs, counts, tokens, trained)
    return sorted(found, key=lambda source: -source.tokens)


def reasons(cache: Cache) -> list[Reason]:
    """Return the codes of rejected.jsonl, the most frequent first.

    Its lines say where a row is and what is wrong with it. The row's own text is not shown: it is in a file outside of
    the cache, and a name in a cache says nothing about who may read that file.
    """
    found: dict[tuple[str, str], list[Rejected]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for line in read_rejected(cache.folder, cache.manifest):
        key = line.code, "rows" if line.document is None or line.code in ROW_REASONS else "parts"
        counts[key] += 1
        if counts[key] <= _EXAMPLES:
            found.setdefault(key, []).append(line)
    return [
        Reason(code, CODES.get(code, ""), rejection_hint(code) if code in CODES else "", count, of, (*found[code, of],))
        for (code, of), count in counts.most_common()
    ]


def histograms(cache: Cache, documents: Documents) -> list[Histogram]:
    """Compute histograms of document lengths, of trained shares, and of block fill."""
    plots = []
    lengths = count_lengths(documents.length)
    if lengths is not None:
        caption = f"half have up to {lengths.p50:,} tokens, 99 % up to {lengths.p99:,}; most: {lengths.max:,}"
        plots.append(_lengths(documents.length, caption.replace("99 %", "99\N{NO-BREAK SPACE}%")))
        shares = documents.trained / np.maximum(documents.length, 1)
        q10, q50, q90 = np.quantile(shares, (0.1, 0.5, 0.9)).tolist()
        caption = f"half have up to {q50:.0%} trained, a tenth up to {q10:.0%}, a tenth {q90:.0%} or more"
        plots.append(_shares("Trained share of documents", caption, "trained tokens of all tokens", "document", shares))
    stored = (cache.blocks(name).stored("length", np.int32) for name in cache.splits("blocks"))
    filled = np.concatenate([np.zeros(0, np.int32), *stored])
    if len(filled):
        block_len = cache.manifest.recipe["pack"]["block_len"]
        under = int((filled < 0.9 * block_len).sum())
        caption = f"{under:,} of {plural(len(filled), 'block')} {'is' if under == 1 else 'are'} less than 90% full"
        plots.append(_shares("Fill of blocks", caption, "slots with tokens", "block", filled / block_len))
    return plots


def _lengths(lengths: Int32, caption: str) -> Histogram:
    """Count lengths in bins that double every four, or hold one length where that is more."""
    low, high = (float(np.log2(max(1, edge))) for edge in (lengths.min(), lengths.max()))
    steps = np.arange(np.floor(4 * low), np.floor(4 * high) + 2) / 4
    edges = np.unique(np.ceil(2.0**steps).astype(np.int64))
    edges[0] = min(edges[0], lengths.min())  # documents may be empty
    ranges = (
        f"{first:,} to {end - 1:,}" if first < end - 1 else f"{first:,}" for first, end in pairwise(edges.tolist())
    )
    return Histogram(
        title="Length of documents",
        caption=caption,
        axis="length in tokens, logarithmic",
        unit=" tokens",
        of="document",
        edges=tuple(f"{edge:,}" for edge in edges.tolist()),
        counts=tuple(np.histogram(lengths, edges)[0].tolist()),
        ranges=tuple(ranges),
    )


def _shares(title: str, caption: str, axis: str, of: str, shares: npt.NDArray[np.float64]) -> Histogram:
    edges = tuple(f"{2 * edge}\N{NO-BREAK SPACE}%" for edge in range(51))
    return Histogram(
        title=title,
        caption=caption.replace("%", "\N{NO-BREAK SPACE}%"),
        axis=axis,
        of=of,
        edges=edges,
        counts=tuple(np.histogram(shares, bins=50, range=(0.0, 1.0))[0].tolist()),
        ranges=tuple(f"{low} to {high}" for low, high in pairwise(edges)),
    )
