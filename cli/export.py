"""`packer export`: write a cache in another trainer's format."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.display import duration, number, plural, size
from packer.export.formats import FORMATS
from packer_cli.options import Command, cache_argument
from packer_cli.output import stdout
from packer_cli.reply import Reply, fields_of, listener

if TYPE_CHECKING:
    from packer.export.run import Exported

_HELP = f"""Write CACHE in another trainer's file format.

{"; ".join(f"{name}: {entry.help}" for name, entry in FORMATS.items())}. If a format has no place for the loss mask,
nothing is written. OUT appears when it is finished, with export.json, which says what it was made from.
"""
_WITH_BOTH = ", ".join(name for name, entry in FORMATS.items() if {"documents", "blocks"} <= {*entry.holds})


@click.command("export", cls=Command, help=_HELP)
@cache_argument
@click.option("--to", type=click.Choice(list(FORMATS)), required=True, help="Format to write.")
@click.option("-o", "--output", metavar="OUT", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option("--split", metavar="NAME", help="Only this split [all].")
@click.option("--blocks", is_flag=True, help=f"Packed blocks in place of documents; with --to {_WITH_BOTH}.")
def command(*, cache: Path, output: Path, blocks: bool, reply: Reply, **options: Any) -> None:
    from packer.export.run import export  # noqa: PLC0415 - not for --help

    began = time.monotonic()
    with listener(quiet=reply.quiet) as progress:
        found = export(cache, output, unit="blocks" if blocks else None, progress=progress, **options)
    seconds = time.monotonic() - began
    fields = {"seconds": round(seconds, 3), **fields_of(found)}
    reply.summary(fields, lambda: _print(found, seconds, every=reply.verbose))


def _print(found: "Exported", seconds: float, *, every: bool) -> None:
    out = stdout()
    out.line(f"exported {found.unit} to {found.folder} in {duration(seconds)}")
    out.line()
    out.table(
        [(each.split, *map(number, (each.num_rows, each.num_tokens, each.num_trained))) for each in found.splits],
        *("<", f"{found.unit}>", "tokens>", "trained>"),
    )
    total = size(sum(file.num_bytes for file in found.files))
    out.line()
    out.line(f"{plural(len(found.files), 'file')}, {total}; export.json has their digests")
    for file in found.files if every else ():
        out.line(f"  {file.path}")
    for note in found.notes:
        out.words(f"note: {note}", hanging=2)
    out.line()
    out.line(f"made from    {found.fingerprint}")
