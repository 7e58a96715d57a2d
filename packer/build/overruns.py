"""Which template, and which row, for an error of a template that goes on for too long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from packer.recipe import Recipe
from packer.render.watchdog import TemplateOverrunError
from packer.source import Partition, lines_of_rows


@contextmanager
def overruns_at(where: Callable[[int], str]) -> Iterator[None]:
    """Name the place of what goes on for too long meanwhile; `where` is given the row, or -1 for none of the user's."""
    try:
        yield
    except TemplateOverrunError as error:
        raise error.at(where(error.row)) from error


def named_template(recipe: Recipe) -> str:
    """The template of a recipe."""
    return f"template {recipe.template.file or f'of {recipe.tokenizer}'}"


def named_row(partition: Partition, row: int, recipe: Recipe) -> str:
    """A row of a partition, and the template it is rendered by."""
    if row < 0:
        return named_template(recipe)
    lines = lines_of_rows(partition, [row])
    line = f":{lines[0]}" if lines else ""
    return f"{partition.path}{line} (row {partition.first_row + row}), {named_template(recipe)}"
