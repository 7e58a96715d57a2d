"""`packer report`: the page in one file that needs nothing else."""

from dataclasses import dataclass
from pathlib import Path

from packer.errors import UsageError
from packer.report.items import Chosen, ItemTokens, Name, names_of, read_item, sample
from packer.report.page import PageFacts, render
from packer.report.tokens import TokenTable, pack_tokens
from packer.store.cache import Cache
from packer.store.folder import AtomicFile

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
        output: the file; one that is there is replaced.
        chosen: whose tokens it holds; by default a sample.

    Raises:
        UsageError: something chosen is not in the cache, or the file is.
        InputError, CheckError, StorageError: as :meth:`packer.Cache.open`; or the disk refuses.

    """
    if Path(output).resolve().is_relative_to(Path(folder).resolve()):
        raise UsageError(f"{output} is in the cache", hint="write the page beside it")
    with Cache.open(folder) as cache:
        facts = PageFacts.of(cache)
        names = names_of(chosen, cache) if chosen else sample(cache, facts.documents)
        found = _read(cache, names)
        shown = [tokens.item for tokens in found]
        shell = len(render(facts, shown, note=_note(len(shown), len(names), sampled=not chosen)))
        packed = pack_tokens(TokenTable.of(cache), found, MAX_BYTES - shell - 100 * len(shown))
    held = [item for item, _ in packed.streams]
    page = render(
        facts,
        held,
        note=_note(len(held), len(names), sampled=not chosen),
        table=packed.table,
        streams=[stream for _, stream in packed.streams],
    )
    output = Path(output)
    with AtomicFile(output.parent) as file:
        file.write(page)
        file.commit(output.name)
    return Report(
        path=output,
        num_bytes=len(page),
        items=len(held),
        chosen=len(names),
        tokens=sum(item.num_tokens for item in held),
    )


def _read(cache: Cache, names: list[Name]) -> list[ItemTokens]:
    found: list[ItemTokens] = []
    for name in names[:_MOST_ITEMS]:
        found.append(read_item(cache, name))
        if sum(tokens.item.num_tokens for tokens in found) > _MOST_TOKENS:
            break
    return found


def _note(held: int, chosen: int, *, sampled: bool) -> str:
    if held < chosen:
        return f"The first {held:,} of {chosen:,} that were chosen; a page has no room for more."
    return "A sample: blocks spread evenly over each split, and the documents at the edges." if sampled else ""
