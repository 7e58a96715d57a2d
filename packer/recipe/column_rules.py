"""Columns that a recipe declares: values for each token, or for each document, that training reads beside the ids.

A value comes from a field of the rows, or from a Parquet file whose rows name documents by their doc_id.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from packer.errors import RecipeError
from packer.names import RuleName
from packer.recipe.row_rules import Rule

MAX_WIDTH = 256
"""A limit, as a batch has so many numbers for each slot, and a cache may come from anybody."""

TAKEN = frozenset({
    "doc_id", "input_ids", "labels", "loss_weights", "spans", "length", "num_trained", "row", "sample_id", "side",
    "margin", "media", "digest", "attention_mask", "position_ids", "seq_lengths", "kto_tags", "images", "videos",
    "audios",
})  # fmt: skip
"""Names that shards or exports have for something else."""


class Column(Rule, frozen=True, kw_only=True):
    """What a column holds, and where its values are."""

    kind: Literal["int32", "float32"]
    width: Annotated[int, Meta(ge=1, le=MAX_WIDTH)] | None = None
    """Values of each token; None is one, without a dimension of its own."""

    missing: int | float | None = None
    """Value of padding, and whatever has none; None refuses what has none, and gives padding 0."""

    field: str | None = None
    """Field of the rows, or column of the file; None is the column's own name."""

    file: str | None = None
    sha256: str | None = None
    """Of the file; filled in by the build."""

    def __post_init__(self) -> None:
        if self.sha256 is not None and self.file is None:
            raise ValueError("sha256 is of a file, and there is none")
        if self.missing is None:
            return
        if self.kind == "int32" and not (-(2**31) <= self.missing < 2**31 and self.missing == int(self.missing)):
            raise ValueError(f"missing: expected a whole number of 32 bits, found {self.missing}")
        if not abs(self.missing) < 3.4e38:
            raise ValueError("missing: expected a finite number of 32 bits")


ColumnRules = dict[RuleName, Column]
AnyRecipe = TypeVar("AnyRecipe", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A column with its name and place."""

    name: str
    of_tokens: bool
    rule: Column

    @property
    def field(self) -> str:
        return self.rule.field or self.name

    @property
    def fill(self) -> int | float:
        """Value where there is none."""
        return self.rule.missing or 0

    @property
    def form(self) -> tuple[Any, ...]:
        """What columns of one name have in common in caches that are read together."""
        return self.of_tokens, self.rule.kind, self.rule.width, self.fill

    @property
    def inner(self) -> tuple[int, ...]:
        """Shape of the value of one token or document."""
        return () if self.rule.width is None else (self.rule.width,)


def declared(recipe: Any) -> tuple[Declared, ...]:
    """Return the columns of a recipe, or of a manifest's `recipe`, by name; those of tokens may have a width."""
    groups = (("token_columns", True), ("document_columns", False))
    found = []
    for key, of_tokens in groups:
        rules = recipe.get(key, {}) if isinstance(recipe, Mapping) else getattr(recipe, key)
        for name, rule in msgspec.convert(rules, ColumnRules).items():
            found.append(Declared(name=name, of_tokens=of_tokens, rule=rule))
    return tuple(sorted(found, key=lambda each: each.name))


def with_rules(recipe: AnyRecipe, change: Callable[[Column], Column]) -> AnyRecipe:
    """Return a recipe with the rule of each of its columns changed."""
    for key in ("token_columns", "document_columns"):
        changed = {name: change(rule) for name, rule in getattr(recipe, key).items()}
        recipe = msgspec.structs.replace(recipe, **{key: changed})
    return recipe


def check_columns(columns: tuple[Declared, ...], where: str, *, reads_images: bool) -> None:
    """Refuse columns that cannot be."""
    names = [each.name for each in columns]
    if columns and reads_images:
        raise RecipeError(f"{where}: columns beside images are not supported", hint="--set media.images=reject")
    for each in columns:
        said = None
        if each.name in TAKEN or names.count(each.name) > 1:
            said = "the name is taken"
        elif each.rule.width is not None and not each.of_tokens:
            said = "a width is for tokens; a document has one value"
        if said is not None:
            group = "token_columns" if each.of_tokens else "document_columns"
            raise RecipeError(f"{where}: {group}.{each.name}: {said}", hint="docs/how-to/columns.md shows every key")
