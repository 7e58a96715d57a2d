"""Options that several commands share, and how SOURCE..., --tokenizer, -c, --set and the like become a recipe.

All commands use this code, so that `preview` looks at exactly what `build` builds.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from packer.errors import RecipeError
from packer.named_templates import NAMED_TEMPLATES
from packer.recipe import ROW_SCHEMAS
from packer.recipe.named_options import NAMED_OPTIONS, as_setting
from packer.version import __version__
from packer_cli.reply import Reply

if TYPE_CHECKING:
    from packer.recipe.recipe import Recipe

HELP_OPTIONS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_MOST_DIGITS = 18
MOST_ROWS = 10**_MOST_DIGITS
"""More than any input has, and no more than Python counts."""

Function: TypeAlias = Callable[..., Any]
"""A command, or a function that will be decorated into one."""

version_option = click.version_option(__version__, "--version", prog_name="packer", message="%(prog)s %(version)s")


def options(*decorators: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Combine several of click's decorators into one, in the order of a command's help."""
    return lambda function: functools.reduce(lambda below, decorate: decorate(below), reversed(decorators), function)


_output_options = options(
    click.option("-v", "--verbose", is_flag=True, help="Print more; on a bug, show where it happened."),
    click.option("-q", "--quiet", is_flag=True, help="No progress and no summary; only data and errors."),
    click.option("--json", "as_json", is_flag=True, help='One JSON object on stdout, with "schema": 1.'),
    version_option,
)


class Command(click.Command):
    """A command of packer. It adds `-v`, `-q` and `--json` at the end of its help, and passes them as the argument
    `reply`.
    """

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name, context_settings=HELP_OPTIONS, **settings)
        self.params += click.command(_output_options(lambda: None)).params

    def invoke(self, ctx: click.Context) -> Any:
        asked = {option: ctx.params.pop(option) for option in ("verbose", "quiet", "as_json")}
        ctx.params["reply"] = Reply(command=ctx.info_name or "", **asked)
        return super().invoke(ctx)


def _share(text: str) -> float:
    """Parse `0.01` or `1%` as a fraction."""
    number, percent, rest = text.partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if rest or not 0 <= share <= 1:
        raise click.BadParameter(f"{text}: expected a share from 0 to 1, such as 0.01 or 1%")
    return share


fail_above_option = click.option(
    "--fail-above",
    metavar="SHARE",
    type=_share,
    help="Commit nothing and exit with 1 if more than SHARE of the rows is rejected, or more than SHARE of the tokens "
    "is in no block: 0.01 or 1%; 1 accepts everything [rows: 1, tokens: 0.1].",
)


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return what parses a number of an option. Unlike click's own type, it adds no range to the help."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            limits = f", {least} or more" if most is None else f" from {least} to {most}"
            raise click.BadParameter(f"{text}: expected a whole number{limits}")
        return number

    return parse


_FILE = click.Path(readable=False)
"""A text that may name a file, which a shell completes; whatever else it is, the build says what is wrong with it."""

sources_option = click.option(
    "--sources",
    "roots",
    metavar="ROOT",
    multiple=True,
    help="Folder, file or address (hf://, s3://) below which files that CACHE names may be read; may be repeated "
    "[none].",
)


cache_argument = click.argument("cache", type=click.Path(path_type=Path))


jobs_option = click.option(
    "-j",
    "--jobs",
    type=whole_number(1),
    metavar="N",
    help="Files or partitions at a time [one per core; fewer for small inputs].",
)


on_option = click.option(
    "--on",
    metavar="ray",
    help="Run on a Ray cluster; inputs and CACHE have the same paths on all nodes, or are in a bucket.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeOptions:
    """The options as typed."""

    sources: tuple[str, ...]
    tokenizer: str | None
    template: str | None
    schema: str | None
    split: str | None
    ignored: tuple[str, ...]
    recipe: Path | None
    overrides: tuple[str, ...]

    def resolve(self, *, no_sources: str | None = None) -> "Recipe":
        """Return the recipe: the file's, if there is one, with the options applied.

        `no_sources` is the hint for the error if there is nothing to start from; None allows a recipe without sources.

        Raises:
            UsageError: options that exclude each other.
            RecipeError: the recipe cannot be read, or there is none.
        """
        from packer.recipe.recipe import load_recipe, make_recipe, template_key, to_json  # noqa: PLC0415 - not for --help

        if not self.sources and (self.schema or self.split):
            raise click.UsageError("--schema and --split need a SOURCE; in a recipe each source has its own")
        if not self.sources and self.recipe is None and no_sources is not None:
            raise RecipeError("no sources", hint=no_sources)
        values: dict[str, Any] = {} if self.recipe is None else to_json(load_recipe(self.recipe))
        if self.sources:
            named = {"schema": self.schema or "auto", "split": self.split}
            values["sources"] = [{"path": path, **named} for path in self.sources]
        if self.tokenizer is not None:
            values["tokenizer"] = self.tokenizer
        if self.template is not None:
            values["template"] = {**values.get("template", {}), **template_key(self.template)}
        for source in values.get("sources", ()) if self.ignored else ():
            source["ignore"] = [*dict.fromkeys((*source.get("ignore", ()), *self.ignored))]
        return make_recipe(values, self.overrides, where="recipe" if self.recipe is None else str(self.recipe))


_recipe_options = options(
    click.argument("sources", nargs=-1, metavar="[SOURCE]...", type=_FILE),
    click.option(
        "--tokenizer",
        metavar="DIR|FILE|HUB_ID",
        type=_FILE,
        help="The model's folder, its tokenizer.json, or ORG/NAME[@REVISION] on the Hub.",
    ),
    click.option(
        "--template",
        metavar="NAME|FILE",
        type=_FILE,
        help=f"Chat template instead of the tokenizer's own: a file, or {', '.join(NAMED_TEMPLATES)}.",
    ),
    click.option(
        "--schema",
        type=click.Choice(("auto", *ROW_SCHEMAS)),
        metavar="NAME",
        help=f"Schema of the rows: auto, {', '.join(ROW_SCHEMAS)} [auto].",
    ),
    click.option("--split", metavar="NAME", help="Split of the rows [train, or those of a saved DatasetDict]."),
    *(
        click.option(f"--{name.replace('_', '-')}", name, metavar=option.metavar, help=option.help)
        for name, option in NAMED_OPTIONS.items()
    ),
    click.option(
        "--ignore",
        "ignored",
        metavar="FIELD",
        multiple=True,
        help="Leave out this field, which nothing reads, such as metadata.notes or messages[].apis; or train this "
        "block, such as '<cot>...</cot>', with the answers that begin with it. May be repeated.",
    ),
    click.option("-c", "--recipe", metavar="RECIPE", type=click.Path(path_type=Path), help="Recipe to start from."),
    click.option(
        "--set",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help="Set any key of the recipe; sources[N].KEY is of source N, from 0; may be repeated.",
    ),
)


def recipe_options(function: Function) -> Function:
    """Add these options to a command, which gets them together in the argument `options`."""

    @_recipe_options
    @functools.wraps(function)
    def gathered(**values: Any) -> Any:
        named = {name: values.pop(name) for name in NAMED_OPTIONS}
        settings = (as_setting(name, text) for name, text in named.items() if text is not None)
        values["overrides"] = (*settings, *values["overrides"])
        options = RecipeOptions(**{field.name: values.pop(field.name) for field in fields(RecipeOptions)})
        return function(options=options, **values)

    return gathered


def file_and_row(text: str) -> tuple[str, int]:
    """Split `--row FILE:N`."""
    source, _, digits = text.rpartition(":")
    if not source or not digits.isdecimal() or len(digits) > _MOST_DIGITS:
        raise click.UsageError(f"--row {text}: expected FILE:N, for example --row data/chat.jsonl:0")
    return source, int(digits)
