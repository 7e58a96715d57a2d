"""The pages, filled in: about a cache, and with the lines of a report.

`packer report` writes the first as one file that needs nothing else; `server` serves it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from packer.audit.stats import Stats, stats
from packer.audit.why import ReasonView, reasons
from packer.report.facts import (
    BAR_WIDTH,
    HEIGHT,
    WIDTH,
    Documents,
    Histogram,
    Padding,
    SourceFacts,
    block_bar,
    histograms,
    padding,
    source_facts,
)
from packer.report.items import Chosen, Item, Name, names_of, read_item, sample
from packer.report.shell import SCRIPT, check_place, fill, write_page
from packer.report.tokens import PackedTokens, TokenTable, pack_tokens
from packer.store.cache import Cache
from packer.store.manifest import Manifest

SCRIPTS = (SCRIPT, "tokens.js")

_SOURCES, _BARS = 20, 50
"""Inputs that are listed (the rest is summed up), and blocks that are drawn."""

_EXCERPT = 600
"""Characters of a row that is left out."""


Line: TypeAlias = Sequence[tuple[str, str]]
"""Texts of a line, each with the names of its styles."""


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


def text_page(kind: str, *, title: str, lines: Sequence[Line]) -> bytes:
    """A page that says what a command says: `kind` is its name, a line is texts with their styles."""
    return fill("text", kind=kind, title=title, lines=lines)


MAX_BYTES = 5_000_000
"""A page stays below: mail takes it, and a browser opens it at once."""

_MOST_ITEMS, _MOST_TOKENS = 1000, 5_000_000
"""What is read at most to fill a page; more would not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was written."""

    path: Path
    num_bytes: int
    items: int
    """Blocks, rows and documents whose tokens it holds."""

    chosen: int
    """Those that it was to hold."""

    tokens: int
    """Tokens it holds."""


def report(folder: Path | str, output: Path | str, *, chosen: Chosen | None = None) -> Report:
    """Write a page about a cache: one file of at most :data:`MAX_BYTES`, complete or not at all.

    Args:
        folder: the cache.
        output: the file; a page that is there is replaced.
        chosen: whose tokens it holds; by default a sample.

    Raises:
        UsageError: something chosen is not in the cache, or the file is; or another file is there.
        InputError, CheckError, StorageError: as :meth:`packer.Cache.open`; or the disk refuses.

    """
    output = Path(output)
    check_place(output, folder)
    with Cache.open(folder) as cache:
        facts = PageFacts.of(cache)
        names = names_of(chosen, cache) if chosen else sample(cache, facts.documents)
        found = _read(cache, names)
        empty = PackedTokens("", "", 0)
        shell = len(cache_page(facts, found, note=_note(0, len(names), sampled=not chosen), packed=empty))
        packed = pack_tokens(TokenTable.of(cache), found, MAX_BYTES - shell)
    held = found[: packed.num_items]
    note = _note(len(held), len(names), sampled=not chosen)
    page = cache_page(facts, held, note=note, packed=packed)
    write_page(page, output)
    return Report(
        path=output,
        num_bytes=len(page),
        items=len(held),
        chosen=len(names),
        tokens=sum(item.num_tokens for item in held),
    )


def _read(cache: Cache, names: list[Name]) -> list[Item]:
    found: list[Item] = []
    num_tokens = 0
    for name in names[:_MOST_ITEMS]:
        found.append(read_item(cache, name))
        num_tokens += found[-1].num_tokens
        if num_tokens > _MOST_TOKENS:
            break
    return found


def _note(held: int, chosen: int, *, sampled: bool) -> str:
    if held < chosen:
        return f"The first {held:,} of {chosen:,} that were chosen; a page has no room for more."
    return "A sample: blocks spread evenly over each split, and the documents at the edges." if sampled else ""
