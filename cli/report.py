"""`packer report`: write a cache as one HTML file."""

from pathlib import Path

import click

from packer.display import number, plural, size
from packer_cli.options import Command, cache_argument, sources_option
from packer_cli.output import stdout
from packer_cli.reply import Reply, fields_of


@click.command("report", cls=Command)
@cache_argument
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), required=True, help="The HTML file to write."
)
@sources_option
def command(*, cache: Path, output: Path, roots: tuple[str, ...], reply: Reply) -> None:
    """Write a page about CACHE: facts, plots, rows left out, tokens.

    The page is one file of at most 5 MB that loads nothing. It contains excerpts of the rows, so share it only with
    people who may read them. Its tokens are a sample.
    """
    from packer.report import report  # noqa: PLC0415 - not for --help

    found = report(cache, output, sources=roots)

    def show() -> None:
        out = stdout()
        out.line(f"wrote {found.path}, {size(found.num_bytes)}")
        first = "" if found.items == found.chosen else f"the first {number(found.items)} of "
        out.line(f"  with {plural(found.tokens, 'token')} of {first}{number(found.chosen)} blocks and documents")

    reply.summary(fields_of(found), show)
