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


cache_argument = click.argument("cache", type=click.Path(path_type=Path))

jobs_option = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Files or partitions worked on at a time [one a core; fewer to build from small inputs].",
)
