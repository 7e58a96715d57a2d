"""`packer push`: upload a cache to the Hugging Face Hub."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer.display import plural, size
from packer_cli.options import Command, cache_argument
from packer_cli.output import stdout
from packer_cli.reply import Reply, fields_of, listener

if TYPE_CHECKING:
    from packer.report import Pushed


@click.command("push", cls=Command)
@cache_argument
@click.argument("name", metavar="ORG/NAME")
@click.option("--public", is_flag=True, help="Make a new dataset public instead of private.")
@click.option("--replace", "replaces", is_flag=True, help="Replace another cache at the destination.")
def command(*, cache: Path, name: str, reply: Reply, **options: bool) -> None:
    """Verify CACHE and put it on the Hugging Face Hub as a dataset.

    It comes with a card, in one commit. ORG/NAME may be hf://datasets/ORG/NAME[@BRANCH][/FOLDER]. A new dataset is
    created as a private one. Commands and readers then take hf://datasets/ORG/NAME as a cache. Log in with `hf auth
    login`, or set HF_TOKEN.
    """
    from packer.report import push  # noqa: PLC0415 - not for --help

    with listener(quiet=reply.quiet) as progress:
        found = push(cache, name, progress=progress, **options)
    reply.summary(fields_of(found), lambda: _print(found, cache))


def _print(found: "Pushed", cache: Path) -> None:
    out = stdout()
    if found.num_files:
        seen_by = "private" if found.is_private else "public"
        out.line(f"pushed {cache}: {plural(found.num_files, 'file')}, {size(found.num_bytes)}, {seen_by}")
    else:
        out.line(f"{cache} already exists; nothing was uploaded")
    if found.keeps_card:
        out.line("  its README.md existed before and was not changed")
    out.line()
    out.line(f"fingerprint  {found.fingerprint}")
    out.line(f"page         {found.address}")
    out.line()
    out.line(f"next: packer verify {found.name}")
