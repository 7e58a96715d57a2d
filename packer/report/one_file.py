"""`packer report`: the page in one file that needs nothing else."""

from dataclasses import dataclass
from pathlib import Path

from packer.report.items import Chosen, Item, Name, names_of, read_item, sample
from packer.report.pages import PageFacts, cache_page
from packer.report.shell import check_place, write_page
from packer.report.tokens import PackedTokens, TokenTable, pack_tokens
from packer.store.cache import Cache

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
