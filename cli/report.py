"""`packer report`: write a cache as one HTML file."""

from pathlib import Path
from typing import TypeAlias

import click

from packer.display import number, plural, size
from packer_cli.options import Command, cache_argument, number_of
from packer_cli.output import stdout
from packer_cli.reply import Reply, fields_of

Places: TypeAlias = tuple[tuple[str, int], ...]

_MOST_PLACES = 100_000


def _ranges(_context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> Places:
    """Parse `NAME:N` or `NAME:N-M` as a name and each number; for blocks the name may be missing."""
    found = []
    for text in texts:
        name, _, numbers = text.rpartition(":")
        begin, dash, end = numbers.partition("-")
        first, last = number_of(begin), number_of(end if dash else begin)
        if first is None or last is None or not (name or parameter.name == "blocks"):
            raise click.BadParameter(f"{text}: expected {parameter.metavar}")
        places = range(first, last + 1)
        if not 0 < len(places) <= _MOST_PLACES:
            raise click.BadParameter(f"{text}: expected N not above M, and at most {_MOST_PLACES:,} of them")
        found += [(name, place) for place in places]
    return tuple(found)


@click.command("report", cls=Command)
@cache_argument
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), required=True, help="The HTML file to write."
)
@click.option(
    "--block",
    "blocks",
    metavar="[SPLIT:]N[-M]",
    multiple=True,
    callback=_ranges,
    help="Include the tokens of these blocks, from 0; may be repeated.",
)
@click.option(
    "--rows",
    metavar="FILE:N[-M]",
    multiple=True,
    callback=_ranges,
    help="Include the tokens of these rows of an input, from 0; may be repeated.",
)
@click.option("--doc", "documents", metavar="ID", type=int, multiple=True, help="Include a document; may be repeated.")
def command(
    *,
    cache: Path,
    output: Path,
    blocks: Places,
    rows: Places,
    documents: tuple[int, ...],
    reply: Reply,
) -> None:
    """Write a page about CACHE: facts, plots, rows left out, tokens.

    The page is one file of at most 5 MB that loads nothing. It holds excerpts of the rows; share it with those who may
    read them. By default the tokens are a sample: blocks spread over each split, and the longest, shortest, most and
    least trained documents.
    """
    from packer.report import ReportContents, report  # noqa: PLC0415 - not for --help

    named = tuple((split or None, block) for split, block in blocks)
    found = report(cache, output, chosen=ReportContents(blocks=named, rows=rows, documents=documents))

    def show() -> None:
        out = stdout()
        out.line(f"wrote {found.path}, {size(found.num_bytes)}")
        fits = "" if found.items == found.chosen else f"the first {number(found.items)} of "
        out.line(f"  with {plural(found.tokens, 'token')} of {fits}{number(found.chosen)} blocks, rows and documents")

    reply.summary(fields_of(found), show)
