"""Renders the page about a cache, which `packer report` writes as one self-contained file."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packer.audit.stats import stats
from packer.audit.view import token_texts
from packer.report.facts import BASE, HEIGHT, WIDTH, Documents, histograms, reasons, source_facts
from packer.report.shell import check_place, fill
from packer.report.tokens import PackedTokens, Thumbnails, pack_tokens, sample
from packer.store.cache import Cache
from packer.store.folder import write_atomically

_SOURCES = 20
"""Maximum number of inputs listed; the rest is summed up."""


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
        page = _page_of(cache, documents := Documents.of(cache))
        found = sample(cache, documents)
        shell = len(page(note=_note(0, len(found)), packed=PackedTokens("", "", 0)))
        control_ids, room = cache.manifest.model.control_ids, MAX_BYTES - shell
        packed = pack_tokens(token_texts(cache), control_ids, found, room, Thumbnails(cache))
    held = found[: packed.num_items]
    content = page(note=_note(len(held), len(found)), packed=packed)
    write_atomically(output, content)
    return Report(
        path=output,
        num_bytes=len(content),
        items=len(held),
        chosen=len(found),
        tokens=sum(item.num_tokens for item in held),
    )


def _page_of(cache: Cache, documents: Documents) -> Callable[..., bytes]:
    """Return what renders the page, given its tokens and a note on how they were chosen."""
    found = stats(cache.folder)
    return partial(
        fill,
        title=found.folder.resolve().name,
        found=found,
        manifest=cache.manifest,
        recipe=json.dumps(cache.manifest.recipe, indent=2, ensure_ascii=False),
        sources=source_facts(cache, documents),
        num_sources=_SOURCES,
        histograms=histograms(cache, documents),
        reasons=reasons(cache),
        width=WIDTH,
        height=HEIGHT,
        base=BASE,
    )


def _note(held: int, chosen: int) -> str:
    if held < chosen:
        return f"The first {held:,} of {chosen:,} that were chosen; a page has no room for more."
    return (
        "A sample: blocks spread evenly over each split, and the longest, shortest, most and least trained documents."
    )
