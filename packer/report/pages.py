"""The pages, filled in: about a cache, and of the reports of `packer diff` and `packer lint`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from packer.audit.diff.compare import CacheDiff
from packer.audit.diff.settings import split_model
from packer.audit.findings import LEVELS
from packer.audit.lint.lint_report import LintReport
from packer.audit.stats import Stats, stats
from packer.audit.why import ReasonView, reasons
from packer.report.facts import Documents, Padding, SourceFacts, histograms, padding, source_facts
from packer.report.items import Item
from packer.report.plots import BAR_WIDTH, HEIGHT, WIDTH, Histogram, block_bar
from packer.report.shell import SCRIPT, fill
from packer.report.tokens import PackedTokens
from packer.store.cache import Cache
from packer.store.manifest import Manifest

SCRIPTS = (SCRIPT, "tokens.js")

_SOURCES, _BARS = 20, 50
"""Inputs that are listed (the rest is summed up), and blocks that are drawn."""

_EXCERPT = 600
"""Characters of a row that is left out."""

_LONG, _BEGUN = 300, 100
"""Characters of a value that is folded, and of its beginning, which is seen."""

_LINES = {"-": "removed", "+": "added", "@": "soft"}
"""What the first character of a line of a template's diff says."""


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
        """Gather them."""
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


def cache_page(facts: PageFacts, items: Sequence[Item], *, note: str, packed: PackedTokens | None = None) -> bytes:
    """The page about a cache, as UTF-8.

    `note` says how the items were chosen; without `packed`, the page asks a server for their tokens.
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
        bars=[(item, block_bar(item.documents, facts.stats.block_len)) for item in blocks[:_BARS]],
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


def diff_page(found: CacheDiff) -> bytes:
    """A page about why two caches differ."""
    model, tokens = split_model(found.model)
    sections = {
        "identity": ("Identity", True),
        "recipe": ("Recipe", found.recipe),
        "inputs": ("Inputs", found.inputs or found.inputs_reordered),
        "model": ("Tokenizer", found.model or found.templates),
        "documents": ("Documents", found.documents or found.moved),
        "rows": ("Rows", found.examples),
        "totals": ("Totals", found.totals or found.software),
    }
    return fill(
        "diff",
        kind="diff",
        title=" → ".join(folder.resolve().name for folder in (found.old, found.new)),
        found=found,
        identity=[
            ("fingerprint", "of all bytes", found.fingerprint),
            ("content", "of the data", found.content_fingerprint),
            ("recipe", "of rules and inputs", found.recipe_fingerprint),
        ],
        sections=[(name, heading) for name, (heading, is_there) in sections.items() if is_there],
        model=model,
        tokens=tokens,
        names=_LINES,
        long=_LONG,
        begun=_BEGUN,
    )


def lint_page(report: LintReport) -> bytes:
    """A page about what a chat template does."""
    return fill(
        "lint",
        kind="lint",
        title=(report.template or report.tokenizer).resolve().name,
        report=report,
        levels=[(level, [each for each in report.findings if each.level == level]) for level in LEVELS],
    )
