"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from packer import __version__

HELP_OPTIONS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

Function = TypeVar("Function", bound=Callable[..., Any])

version_option = click.version_option(__version__, "--version", prog_name="packer", message="%(prog)s %(version)s")


def output_options(function: Function) -> Function:
    """`-v`, `-q`, `--json`, `--version`: every command has them, last in its help."""
    decorators = (
        click.option("-v", "--verbose", is_flag=True, help="Tell more; on a bug, show where it happened."),
        click.option("-q", "--quiet", is_flag=True, help="No progress and no summary; only data and errors."),
        click.option("--json", "as_json", is_flag=True, help='One JSON object on stdout, with "schema": 1.'),
        version_option,
    )
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def _share(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """`0.01` or `1%` as a share below 1."""
    if text is None:
        return None
    number, percent, rest = text.partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if rest or not 0 <= share < 1:
        raise click.BadParameter(f"{text}: expected a share from 0 to below 1, as 0.01 or 1%")
    return share


fail_above_option = click.option(
    "--fail-above",
    metavar="SHARE",
    callback=_share,
    help="Commit nothing, and exit with 1, where more than this share of the rows is rejected, or of the tokens is in "
    "no block: 0.01 or 1%.",
)

cache_argument = click.argument("cache", type=click.Path(path_type=Path))

jobs_option = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Files or partitions worked on at a time [one a core; fewer to build from small inputs].",
)
