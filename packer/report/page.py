"""The page about a cache."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from packer.audit.stats import Stats, stats
from packer.audit.why import ReasonView, reasons
from packer.report.facts import Documents, Histogram, Padding, SourceFacts, histograms, padding, source_facts
from packer.report.items import Item
from packer.report.plots import BAR_WIDTH, HEIGHT, WIDTH, block_bar, draw
from packer.report.shell import SCRIPT, fill
from packer.report.tokens import PackedTokens
from packer.store.cache import Cache
from packer.store.manifest import Manifest

SCRIPTS = (SCRIPT, "tokens.js")

_SOURCES, _BARS = 20, 50
"""Inputs that are listed (the rest is summed up), and blocks that are drawn."""

_EXCERPT = 600
"""Characters of a row that is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """All that the page says of a cache without looking at tokens."""

    stats: Stats
    manifest: Manifest
    documents: Documents
    sources: list[SourceFacts]
    histograms: list[Histogram]
    padding: list[Padding]
    reasons: list[ReasonView]

    @classmethod
    def of(cls, cache: Cache) -> "PageFacts":
        """Gather them.

        Raises:
            CheckError: something of the cache is missing or damaged.
            StorageError: something cannot be read.

        """
        found, documents = stats(cache.folder), Documents.of(cache)
        return cls(
            stats=found,
            manifest=cache.manifest,
            documents=documents,
            sources=source_facts(cache, documents),
            histograms=histograms(cache, found, documents),
            padding=padding(found, documents.length),
            reasons=reasons(cache),
        )


def render(
    facts: PageFacts,
    items: Sequence[Item],
    *,
    note: str,
    packed: PackedTokens | None = None,
) -> bytes:
    """The page as UTF-8.

    Args:
        facts: of the cache.
        items: listed in the token view; blocks among them are drawn.
        note: how they were chosen.
        packed: their tokens; None where the page asks a server for them.

    """
    blocks = [item for item in items if item.kind == "block"]
    return fill(
        "cache",
        kind="report",
        title=facts.stats.folder.resolve().name,
        scripts=SCRIPTS,
        live=packed is None,
        facts=facts,
        found=facts.stats,
        recipe=json.dumps(facts.manifest.recipe, indent=2, ensure_ascii=False),
        plots=[(histogram, draw(histogram)) for histogram in facts.histograms],
        bars=[(item, block_bar(item, facts.stats.block_len)) for item in blocks[:_BARS]],
        num_blocks=len(blocks),
        items=items,
        note=note,
        packed=packed,
        width=WIDTH,
        height=HEIGHT,
        bar_width=BAR_WIDTH,
        num_sources=_SOURCES,
        excerpt=_EXCERPT,
    )
