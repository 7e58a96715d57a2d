"""`packer diff`: why two caches differ."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer_cli.diff_page import DiffPage
from packer_cli.failures import error_object, print_error, print_json
from packer_cli.options import HELP_OPTIONS, output_options

if TYPE_CHECKING:
    from packer.audit import CacheDiff


@click.command("diff", context_settings=HELP_OPTIONS)
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--documents",
    type=click.IntRange(min=0),
    default=3,
    metavar="N",
    help="Rows whose documents differ to show, token by token [3].",
)
@output_options
def command(*, old: Path, new: Path, documents: int, verbose: bool, quiet: bool, as_json: bool) -> None:
    """Say why two caches differ: rules, inputs, template, tokenizer, documents, tokens, blocks.

    Exit code 1 where their content or their recipe differs.
    """
    from packer.audit import diff  # noqa: PLC0415 - not for --help

    found = diff(old, new, documents=documents)
    message = None if found.same else f"{found.old} and {found.new} differ: {found.meaning}"
    if as_json:
        print_json(**_fields(found), error=message and error_object("check_failed", message, None))
    else:
        if not quiet:
            DiffPage(whole=verbose).show(found)
        if message is not None:
            print_error(message, None)
    if message is not None:
        raise click.exceptions.Exit(1)


def _fields(found: "CacheDiff") -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    fields = asdict(found) | {"old": str(found.old), "new": str(found.new)}
    return {"command": "diff", "same": found.same, "same_bytes": found.same_bytes, **fields}
