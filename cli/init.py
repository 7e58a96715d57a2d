"""`packer init`: write a folder with everything for a first cache, or convert another trainer's configuration."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer.display import in_shell, plural
from packer.errors import UsageError
from packer.starter import FAMILIES
from packer_cli.options import Command
from packer_cli.output import stdout
from packer_cli.reply import Reply

if TYPE_CHECKING:
    from packer.recipe_from import Converted


@click.command("init", cls=Command)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Convert a configuration of axolotl or LLaMA-Factory to a recipe.",
)
@click.option(
    "--for", "family", type=click.Choice(FAMILIES), help="Write a recipe for your own rows and a family of models."
)
def command(
    *,
    folder: Path,
    config: Path | None,
    family: str | None,
    reply: Reply,
) -> None:
    """Write a starter recipe, samples and a small tokenizer.

    DIR must be new or empty. Nothing is downloaded. With --from, write only recipe.yaml, and list the keys of FILE that
    are not carried over. With --for, write only the recipe.yaml that such models need.
    """
    if config is not None and family is not None:
        raise UsageError("--from and --for both write a recipe", hint="give one of them")
    if config is not None:
        _from_config(config, folder, reply)
        return
    from packer.starter import write_family, write_starter  # noqa: PLC0415 - not for --help

    files = write_starter(folder) if family is None else write_family(family, folder)

    def show() -> None:
        out = stdout()
        out.line(f"wrote {len(files)} files to {folder}" if family is None else f"wrote {files[0]} for {family}")
        for path in files if reply.verbose and family is None else ():
            out.line(f"  {path}")
        _print_next(folder, "" if family is None else " FILE... --tokenizer FOLDER")

    reply.summary({"folder": str(folder), "files": [str(path) for path in files]}, show)


def _print_next(folder: Path, tokenizer: str = "") -> None:
    recipe, cache = (in_shell(folder / name) for name in ("recipe.yaml", "cache"))
    out = stdout()
    out.line()
    out.line(f"next: packer build -c {recipe}{tokenizer} -o {cache}")


def _from_config(config: Path, folder: Path, reply: Reply) -> None:
    from packer.recipe_from import read_config, write_recipe  # noqa: PLC0415 - not for --help

    converted = read_config(config, folder)
    path = write_recipe(converted, folder)

    def show() -> None:
        sources = plural(len(converted.values["sources"]), "source")
        stdout().words(f"wrote {path} from {config}: {sources}")
        _print_keys(converted, verbose=reply.verbose)
        _print_next(folder, "" if "tokenizer" in converted.values else " --tokenizer FOLDER")

    fields = {name: getattr(converted, name) for name in ("kind", "carried", "left", "left_out")}
    reply.summary({"folder": str(folder), "files": [str(path)], **fields}, show)


def _print_keys(converted: "Converted", *, verbose: bool) -> None:
    """Print which entries and keys were not carried over; the recipe says so, too."""
    sentences = [f"left out: {entry}: {reason}" for entry, reason in converted.left_out.items()]
    sentences += [f"not carried over: {', '.join(converted.left)}"] * bool(converted.left)
    sentences += [f"carried over: {', '.join(converted.carried)}"] * verbose
    for sentence in sentences:
        stdout().line()
        stdout().words(sentence)
