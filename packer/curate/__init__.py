"""Decides which rows are trained on (filters, duplicates, splits), from facts about each row, and records the reasons.

`traits.TraitMaker` computes the traits of a batch of rows; `select.select_rows` decides about all rows from their
traits alone. Builds without rules about rows load only what is here: the part of a recipe's rules that determines
traits. Equal rules yield equal traits for equal rows, so they are the identity of a table of traits.
"""

import unicodedata

import msgspec

from packer.recipe.row_rules import WHERE, Condition, Decontaminate, Filter, RowRules, Split, fields_of

VERSION = 6
"""Increased whenever the same rows and rules yield other traits."""


class TraitRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules for the rows of one source that determine their traits."""

    fields: tuple[str, ...]
    """Paths of the fields that the rules use; bit i of `known` is field i."""

    where: dict[str, Condition]
    filters: tuple[Filter, ...]
    """The filters that need no document."""

    group: str | None
    time: str | None
    unit: str
    compared: tuple[tuple[str, int], ...] = ()
    """What rows are compared by: `conversation` or `prompt`, with the number of words per shingle."""

    questions: Decontaminate | None = None
    """The benchmarks, identified by their digests alone."""

    unicode: str | None = None
    """Version of the Unicode tables that split texts into words; None if no words are needed."""

    version: int = VERSION

    @classmethod
    def of(cls, rules: RowRules, source: int) -> "TraitRules":
        """Extract the rules for the rows of a source, by its number."""
        where = rules.where[source] if rules.where else {}
        filters = tuple(each for each in rules.filters if each.tokens is None)
        split = rules.split or Split()
        near = None if rules.deduplicate is None else rules.deduplicate.near
        compared = {(each.of, each.ngram) for each in (near, split.leakage) if each is not None}
        return cls(
            fields=fields_of(filters, rules.split, where),
            where=where,
            filters=filters,
            group=split.group,
            time=split.time,
            unit=split.unit,
            compared=tuple(sorted(compared)),
            questions=rules.without_places.decontaminate,
            unicode=unicodedata.unidata_version if compared or rules.decontaminate is not None else None,
        )

    @classmethod
    def for_check(cls, ngram: int, *, near: bool) -> "TraitRules":
        """Return rules for rows without a recipe: compare prompts, and conversations if near copies are wanted."""
        compared = (("conversation", ngram), ("prompt", ngram)) if near else (("prompt", ngram),)
        none = cls.of(RowRules(), 0)
        return msgspec.structs.replace(none, compared=compared, unicode=unicodedata.unidata_version)

    @property
    def conditions(self) -> tuple[tuple[Condition, str, str | None], ...]:
        """For each bit of `failed`: the condition, its name, and the field it tests, or None if it tests texts."""
        where = tuple((condition, f"{WHERE} {field}", field) for field, condition in self.where.items())
        return (*where, *((each, each.name, each.field) for each in self.filters))


def traits_version(rules: RowRules) -> str:
    """Return the versions of all that the traits of a recipe's rows depend on besides the rows and the rules."""
    asked = TraitRules.of(rules, 0)
    words = None if asked.unicode is None else f"words by Unicode {asked.unicode}"
    return "; ".join(each for each in (str(asked.version), words) if each is not None)
