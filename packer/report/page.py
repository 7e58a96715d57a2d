"""The page: a template filled with facts, under a Content-Security-Policy that lets its own script run alone.

Whatever a cache and its inputs hold is text here: Jinja escapes it, and characters that would turn its direction or
not be seen are written out.
"""

import base64
import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from packer import __version__
from packer.audit.stats import Stats, stats
from packer.display import number, percent, size, visible
from packer.report.facts import Documents, Histogram, Padding, SourceFacts, histograms, padding, source_facts
from packer.report.items import Item
from packer.report.left_out import LeftOut, ReasonFacts
from packer.report.plots import HEIGHT, WIDTH, block_bar, draw
from packer.store.cache import Cache
from packer.store.manifest import Manifest

SOURCES, BARS = 20, 100
"""Inputs that are listed (the rest is summed up), and blocks that are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """All that the page says of a cache without looking at tokens."""

    stats: Stats
    manifest: Manifest
    documents: Documents
    sources: list[SourceFacts]
    histograms: list[Histogram]
    padding: list[Padding]
    reasons: list[ReasonFacts]

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
            reasons=LeftOut(cache).reasons(),
        )


def render(
    facts: PageFacts,
    items: Sequence[Item],
    *,
    note: str,
    table: str = "",
    streams: Sequence[str] = (),
    live: bool = False,
) -> bytes:
    """The page as UTF-8.

    Args:
        facts: of the cache.
        items: listed in the token view; blocks among them are drawn.
        note: how they were chosen.
        table: as :func:`packer.report.tokens.pack_tokens` gives it; empty where the page asks a server for tokens.
        streams: one for each item.
        live: whether a server answers what the page asks for.

    """
    style, script = _file("page.css"), _file("page.js")
    blocks = [item for item in items if item.kind == "block"]
    html: str = _template().render(
        policy=content_security_policy(live=live),
        style=Markup(style),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704 - as above
        name=facts.stats.folder.resolve().name,
        facts=facts,
        found=facts.stats,
        recipe=json.dumps(facts.manifest.recipe, indent=2, ensure_ascii=False),
        plots=[(histogram, draw(histogram)) for histogram in facts.histograms],
        bars=[(item, block_bar(item, facts.stats.block_len)) for item in blocks[:BARS]],
        num_blocks=len(blocks),
        items=items,
        note=note,
        table=table,
        streams=list(zip(items, streams, strict=False)),
        live=live,
        version=__version__,
        width=WIDTH,
        height=HEIGHT,
        num_sources=SOURCES,
    )
    return html.encode("utf-8", "backslashreplace")


def content_security_policy(*, live: bool) -> str:
    """What the page may do: run its own script and style, and ask its own server where there is one."""
    directives = [
        "default-src 'none'",
        f"script-src {_hash('page.js')}",
        f"style-src {_hash('page.css')}",
        *(["connect-src 'self'"] if live else []),
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return "; ".join(directives)


@functools.cache
def _template() -> Any:
    environment = Environment(
        loader=DictLoader({"page": _file("page.html.j2")}),
        autoescape=True,  # by hand: what chooses by the name of a file does not know `.j2`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"visible": visible, "percent": _percent, "number": number, "size": size}
    return environment.get_template("page")


def _percent(share: float) -> str:
    return percent(share).replace(" ", "\N{NO-BREAK SPACE}")


@functools.cache
def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8")


def _hash(name: str) -> str:
    digest = hashlib.sha256(_file(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
