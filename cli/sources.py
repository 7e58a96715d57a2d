"""SOURCE..., --tokenizer, --template, --schema, --split, -c and --set: the recipe a command works on.

One code for every command that takes them, so that what `lint` and `preview` look at is what `build` builds.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from packer.row_schemas import ROW_SCHEMAS
from packer_cli.output import stderr

if TYPE_CHECKING:
    from packer.recipe import Recipe

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options as they were typed."""

    sources: tuple[str, ...]
    tokenizer: str | None
    template: str | None
    schema: str | None
    split: str | None
    recipe: Path | None
    overrides: tuple[str, ...]

    def resolve(
        self, *, base: Mapping[str, Any] | None = None, block_len: int | None = None, no_sources: str | None = None
    ) -> "Recipe":
        """The recipe: that of the file, or `base`, or none; then the options; then `--set`.

        Args:
            base: recipe to start from where there is neither a file nor a SOURCE.
            block_len: of the option `--block-len`.
            no_sources: the hint where there is nothing to start from; None lets a recipe be without sources.

        Raises:
            UsageError: options that do not go together.
            RecipeError: the recipe cannot be read, or there is none.

        """
        from packer.errors import RecipeError  # noqa: PLC0415 - not for --help
        from packer.recipe import current_keys, load_recipe, make_recipe, to_json  # noqa: PLC0415 - as above

        if not self.sources and (self.schema or self.split):
            raise click.UsageError("--schema and --split need a SOURCE; in a recipe each source has its own")
        values: dict[str, Any] = {}
        if self.recipe is not None:
            values = to_json(load_recipe(self.recipe, note=_note))
        elif not self.sources and base is not None:
            values = current_keys(base)
        elif not self.sources and no_sources is not None:
            raise RecipeError("no sources", hint=no_sources)
        values |= self._given(values, block_len)
        where = "recipe" if self.recipe is None else str(self.recipe)
        return make_recipe(values, self.overrides, where=where, note=_note)

    def _given(self, values: Mapping[str, Any], block_len: int | None) -> dict[str, Any]:
        """What the options put in place of the recipe's own."""
        given: dict[str, Any] = {}
        if self.sources:
            given["sources"] = [
                {"path": path, "schema": self.schema or "auto", "split": self.split} for path in self.sources
            ]
        if self.tokenizer is not None:
            given["tokenizer"] = self.tokenizer
        if self.template is not None:
            given["template"] = {**values.get("template", {}), "file": self.template}
        if block_len is not None:
            given["pack"] = {**values.get("pack", {}), "block_len": block_len}
        return given


def _note(message: str) -> None:
    stderr().line(f"warning: {message}")


def recipe_options(function: Function) -> Function:
    """Give a command these options; it gets them together, as the argument `asked`."""

    @functools.wraps(function)
    def gathered(
        *,
        sources: tuple[str, ...],
        tokenizer: str | None,
        template: str | None,
        schema: str | None,
        split: str | None,
        recipe: Path | None,
        overrides: tuple[str, ...],
        **others: Any,
    ) -> Any:
        asked = Asked(
            sources=sources,
            tokenizer=tokenizer,
            template=template,
            schema=schema,
            split=split,
            recipe=recipe,
            overrides=overrides,
        )
        return function(asked=asked, **others)

    decorated: Any = gathered
    for decorate in reversed(_OPTIONS):
        decorated = decorate(decorated)
    taken: Function = decorated
    return taken


def file_and_row(text: str, option: str = "--row") -> tuple[str, int]:
    """The parts of `--row FILE:N`.

    Raises:
        UsageError: it is something else.

    """
    source, separator, row = text.rpartition(":")
    if not separator or not source or not row.isdecimal():
        raise click.UsageError(f"{option} {text}: expected FILE:N, for example {option} data/chat.jsonl:0")
    return source, int(row)


_OPTIONS = (
    click.argument("sources", nargs=-1, metavar="[SOURCE]..."),
    click.option(
        "--tokenizer",
        metavar="DIR|FILE|HUB_ID",
        help="Folder of the model's tokenizer, its tokenizer.json, or ORG/NAME[@REVISION] on the Hub.",
    ),
    click.option("--template", metavar="FILE", help="Chat template, in place of the tokenizer's own."),
    click.option(
        "--schema", type=click.Choice(("auto", *ROW_SCHEMAS)), help="What the rows of every SOURCE look like [auto]."
    ),
    click.option(
        "--split", metavar="NAME", help="Split that every SOURCE belongs to [train, or those of a saved DatasetDict]."
    ),
    click.option("-c", "--recipe", metavar="RECIPE", type=click.Path(path_type=Path), help="Recipe to start from."),
    click.option(
        "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Any key of the recipe; may be repeated."
    ),
)
