"""What is asked of single rows: the part of a recipe's rules that traits are made by.

Equal rules make equal traits of equal rows, so that these are the identity of a table of traits.
"""

import unicodedata
from importlib.metadata import PackageNotFoundError, version

import msgspec

from packer.row_rules import WHERE, Condition, Decontaminate, Filter, RowRules, Split, fields_of

VERSION = 2
"""Raised when the same rows and rules give other traits."""

LANGUAGES = "py3langid"
"""The library that tells the language of texts."""


class TraitRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked of the rows of a source; equal rules make equal traits of equal rows."""

    fields: tuple[str, ...]
    """Paths of the fields that are asked about; bit i of `known` is field i."""

    where: dict[str, Condition]
    filters: tuple[Filter, ...]
    """Those that need no document."""

    group: str | None
    time: str | None
    unit: str
    zone: str | None
    compared: tuple[tuple[str, int], ...] = ()
    """What rows are compared by: `conversation` or `prompt`, and the words of a shingle."""

    questions: Decontaminate | None = None
    """The benchmarks, by their digests alone."""

    unicode: str | None = None
    """Version of the tables that tell the words of a text; None where no words are asked for."""

    language: str | None = None
    """Version of what tells the language of a text; None where no language is asked for, or it is not installed."""

    version: int = VERSION

    @classmethod
    def of(cls, rules: RowRules, source: int) -> "TraitRules":
        """What the rules ask of the rows of a source, by its number."""
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
            zone=split.zone,
            compared=tuple(sorted(compared)),
            questions=rules.without_places.decontaminate,
            unicode=unicodedata.unidata_version if compared or rules.decontaminate is not None else None,
            language=_language_version() if any(each.language for each in filters) else None,
        )

    @classmethod
    def for_check(cls, ngram: int, *, near: bool) -> "TraitRules":
        """What is asked of rows where no recipe asks: prompts, and where near copies are looked for, conversations."""
        compared = (("conversation", ngram), ("prompt", ngram)) if near else (("prompt", ngram),)
        none = cls.of(RowRules(), 0)
        return msgspec.structs.replace(none, compared=compared, unicode=unicodedata.unidata_version)

    @property
    def conditions(self) -> tuple[tuple[Condition, str, str | None], ...]:
        """Each bit of `failed`: the condition, its name, and the field it is about, None where it is about texts."""
        where = tuple((condition, f"{WHERE} {field}", field) for field, condition in self.where.items())
        return (*where, *((each, each.name, each.field) for each in self.filters))


def _language_version() -> str | None:
    """The library normalises texts, so the tables of Unicode are part of it."""
    try:
        return f"{LANGUAGES} {version(LANGUAGES)}, Unicode {unicodedata.unidata_version}"
    except PackageNotFoundError:
        return None
