"""Renders the page about a cache, which `packer report` writes as one self-contained file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packer.audit.stats import Stats, stats
from packer.audit.view import token_texts
from packer.report.facts import (
    BASE,
    HEIGHT,
    WIDTH,
    Documents,
    Histogram,
    Reason,
    SourceFacts,
    histograms,
    reasons,
    source_facts,
)
from packer.report.shell import check_place, fill, write_page
from packer.report.thumbnails import Thumbnails
from packer.report.tokens import PackedTokens, pack_tokens, sample
from packer.store.cache import Cache
from packer.store.manifest import Manifest

_SOURCES = 20
"""Maximum number of inputs listed; the rest is summed up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """Everything that the page shows about a cache except tokens."""

    stats: Stats
    manifest: Manifest
    documents: Documents
    sources: list[SourceFacts]
    histograms: list[Histogram]
    reasons: list[Reason]

    @classmethod
    def of(cls, cache: Cache) -> "PageFacts":
        """Collect the facts about a cache."""
        found, documents = stats(cache.folder), Documents.of(cache)
        return cls(
            stats=found,
            manifest=cache.manifest,
            documents=documents,
            sources=source_facts(cache, documents),
            histograms=histograms(cache, documents),
            reasons=reasons(cache),
        )


def cache_page(facts: PageFacts, *, note: str, packed: PackedTokens) -> bytes:
    """Render the page about a cache, as UTF-8; `note` says how the items were chosen."""
    return fill(
        title=facts.stats.folder.resolve().name,
        facts=facts,
        found=facts.stats,
        recipe=json.dumps(facts.manifest.recipe, indent=2, ensure_ascii=False),
        note=note,
        packed=packed,
        width=WIDTH,
        height=HEIGHT,
        base=BASE,
        num_sources=_SOURCES,
    )


MAX_BYTES = 5_000_000
"""Maximum size of a page: small enough to mail, and opened by a browser without delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of :func:`report`."""

    path: Path
    num_bytes: int
    items: int
    """Blocks and documents whose tokens the page includes."""

    chosen: int
    """Blocks and documents of the sample."""

    tokens: int
    """Tokens that the page includes."""


def report(folder: Path | str, output: Path | str, *, sources: str | Path | Sequence[str | Path] = ()) -> Report:
    """Write a page about a cache: one file of at most :data:`MAX_BYTES`, written atomically.

    Args:
        folder: the cache.
        output: the file; an existing page is replaced.
        sources: folders of the images that the cache only names, as in :meth:`packer.Cache.open`.
    """
    output = Path(output)
    check_place(output, folder)
    with Cache.open(folder, sources=sources) as cache:
        facts = PageFacts.of(cache)
        found = sample(cache, facts.documents)
        empty = PackedTokens("", "", 0)
        shell = len(cache_page(facts, note=_note(0, len(found)), packed=empty))
        control_ids, room = cache.manifest.model.control_ids, MAX_BYTES - shell
        packed = pack_tokens(token_texts(cache), control_ids, found, room, Thumbnails(cache))
    held = found[: packed.num_items]
    page = cache_page(facts, note=_note(len(held), len(found)), packed=packed)
    write_page(page, output)
    return Report(
        path=output,
        num_bytes=len(page),
        items=len(held),
        chosen=len(found),
        tokens=sum(item.num_tokens for item in held),
    )


def _note(held: int, chosen: int) -> str:
    if held < chosen:
        return f"The first {held:,} of {chosen:,} that were chosen; a page has no room for more."
    return (
        "A sample: blocks spread evenly over each split, and the longest, shortest, most and least trained documents."
    )
