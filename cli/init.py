"""`packer init`: a folder with everything to build a first cache."""

import shlex
from pathlib import Path

import click

from packer_cli.failures import print_json
from packer_cli.options import HELP_OPTIONS, output_options


@click.command("init", context_settings=HELP_OPTIONS)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@output_options
def command(*, folder: Path, verbose: bool, quiet: bool, as_json: bool) -> None:
    """Write a starter recipe, samples and a small tokenizer.

    DIR must be new or empty. Nothing is downloaded.
    """
    from packer.starter import write_starter  # noqa: PLC0415 - not for --help

    files = write_starter(folder)
    if as_json:
        print_json(command="init", folder=str(folder), files=[str(path) for path in files])
        return
    if quiet:
        return
    click.echo(f"wrote {len(files)} files to {folder}")
    for path in files if verbose else ():
        click.echo(f"  {path}")
    click.echo()
    recipe, cache = (shlex.quote(str(folder / name)) for name in ("recipe.yaml", "cache"))
    click.echo(f"next: packer build -c {recipe} -o {cache}")
