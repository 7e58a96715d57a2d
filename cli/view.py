"""`packer view`: show a cache in the browser."""

from contextlib import suppress
from pathlib import Path

import click

from packer_cli.options import Command, cache_argument
from packer_cli.output import stdout
from packer_cli.reply import Reply


@click.command("view", cls=Command)
@cache_argument
@click.option(
    "--port", metavar="N", type=click.IntRange(0, 65535), default=0, help="Port of 127.0.0.1 to listen on [a free one]."
)
def command(*, cache: Path, port: int, reply: Reply) -> None:
    """Serve the page of `packer report`, with every block and row.

    Prints the address, for a browser on this machine; Ctrl-C ends it. Only those who have the address can use it;
    nothing is written, and nothing leaves the machine.
    """
    from packer.report import PageServer  # noqa: PLC0415 - not for --help

    with PageServer(cache, port=port) as server:
        reply.data({"url": server.url}, lambda: stdout().line(f"open {server.url} (Ctrl-C ends)"))
        with suppress(KeyboardInterrupt):
            server.serve()
