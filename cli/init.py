"""`packer init`: write a folder with everything for a first cache, or a recipe for a family of models."""

from pathlib import Path

import click

from packer.display import in_shell
from packer.starter import FAMILIES
from packer_cli.options import Command
from packer_cli.output import stdout
from packer_cli.reply import Reply


@click.command("init", cls=Command)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--for", "family", type=click.Choice(FAMILIES), help="Write a recipe for your own rows and a family of models."
)
def command(*, folder: Path, family: str | None, reply: Reply) -> None:
    """Write a starter recipe, samples and a small tokenizer.

    DIR must be new or empty. Nothing is downloaded. With --for, write only the recipe.yaml that such models need.
    """
    from packer.starter import write_family, write_starter  # noqa: PLC0415 - not for --help

    files = write_starter(folder) if family is None else write_family(family, folder)

    def show() -> None:
        out, (recipe, cache) = stdout(), (in_shell(folder / name) for name in ("recipe.yaml", "cache"))
        out.line(f"wrote {len(files)} files to {folder}" if family is None else f"wrote {files[0]} for {family}")
        for path in files if reply.verbose and family is None else ():
            out.line(f"  {path}")
        rows = "" if family is None else " FILE... --tokenizer FOLDER"
        out.line()
        out.line(f"next: packer build -c {recipe}{rows} -o {cache}")

    reply.summary({"folder": str(folder), "files": [str(path) for path in files]}, show)
