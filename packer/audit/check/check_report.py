"""The report of a check of a cache's rows: a line for each check, and what the cache was made from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "warning", "failure", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowText:
    """A row, named, with the text that a finding is about."""

    input: str
    """As the manifest names it."""

    row: int
    """From 0 in the input."""

    split: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPair:
    """Two rows that are alike, or a row and a question that stands in it."""

    first: RowText
    second: RowText
    similarity: float
    """Jaccard similarity of their shingles, 1 for copies; of a question the share of its n-grams in the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check."""

    code: str
    """Such as `copies_between_splits`; docs/how-to/check.md explains each."""

    level: Level
    message: str
    """One line."""

    hint: str | None = None
    count: int | None = None
    """Rows that it found, where it counts rows."""

    pairs: tuple[RowPair, ...] = ()

    @classmethod
    def of(
        cls, code: str, message: str, bad: Level | None, *, hint: str | None = None, count: int | None = None
    ) -> "Check":
        """A check that is ok, or `bad` and then with its hint."""
        return cls(code=code, level=bad or "ok", message=message, hint=hint if bad else None, count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer a cache records to one question that should be settled before training from it."""

    question: str
    """`files`, `rows`, `tokenizer`, `packing` or `code`."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The result of :func:`packer.audit.check`."""

    folder: Path
    """The cache; of rows that are in none, the first path that was named."""

    fingerprint: str | None
    """None of rows that are in no cache."""

    checks: tuple[Check, ...]
    answers: tuple[Answer, ...]

    def count(self, level: Level) -> int:
        return sum(check.level == level for check in self.checks)

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return self.count("failure") == 0
