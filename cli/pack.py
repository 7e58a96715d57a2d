"""`packer pack`: make other blocks from the documents of a cache."""

import time
from pathlib import Path
from typing import Any

import click

from packer_cli.options import Command, cache_argument, fail_above_option, jobs_option, on_option
from packer_cli.reply import Reply, listener
from packer_cli.result import print_lines, result_fields

_MODES = ("isolated", "eos", "stream", "none")
_STRATEGIES = ("best_fit", "first_fit", "sequential")
_OVERLONG = ("reject", "truncate_left", "truncate_right", "split")


@click.command("pack", cls=Command)
@cache_argument
@click.option(
    "-o", "--output", metavar="CACHE2", type=click.Path(path_type=Path), required=True, help="Folder of the new cache."
)
@click.option("--block-len", metavar="N", type=int, help="Tokens of a block.")
@click.option("--mode", type=click.Choice(_MODES), help="Whether the documents of a block see each other.")
@click.option("--strategy", type=click.Choice(_STRATEGIES), help="Which block a document goes to.")
@click.option("--overlong", type=click.Choice(_OVERLONG), help="What to do with documents longer than a block.")
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Any key of the recipe's pack, shard_bytes, and rules about rows such as split.seed; may be repeated.",
)
@jobs_option
@on_option
@fail_above_option
@click.option("--force", is_flag=True, help="Replace a cache that was made with other rules.")
def command(
    *,
    cache: Path,
    output: Path,
    overrides: tuple[str, ...],
    jobs: int | None,
    on: str | None,
    fail_above: float | None,
    force: bool,
    reply: Reply,
    **options: Any,
) -> None:
    """Pack the documents of CACHE into other blocks.

    Nothing is read or tokenized again. Rules that are not given stay as in CACHE. CACHE2 gets the same document shards,
    by hard link if both are on one disk, and is what `packer build` would make with these rules, byte for byte.
    """
    from packer.pipeline.repacking import repack  # noqa: PLC0415 - not for --help

    began = time.monotonic()
    pack = {key: value for key, value in options.items() if value is not None}
    with listener(quiet=reply.quiet) as progress:
        result = repack(
            cache, output, pack, overrides, jobs=jobs, on=on, fail_above=fail_above, force=force, progress=progress
        )
    seconds = time.monotonic() - began
    lines = result.lines(seconds, done="packed", verbose=reply.verbose)
    reply.summary(result_fields(result, seconds), lambda: print_lines(lines))
