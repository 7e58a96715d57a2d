"""The report of a check of a cache's rows: one entry for each check."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["ok", "warning", "failure", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowText:
    """A row and the part of its text that a finding is about."""

    input: str
    """As the manifest names it."""

    row: int
    """Row number in the input, from 0."""

    split: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPair:
    """Two similar rows, or a row and a benchmark question that it contains."""

    first: RowText
    second: RowText
    similarity: float
    """Jaccard similarity of their shingles, 1 for copies; for a question, the share of its n-grams in the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check."""

    code: str
    """Such as `copies_between_splits`; docs/how-to/check.md explains each."""

    level: Outcome
    message: str
    """One line."""

    hint: str | None = None
    count: int | None = None
    """Rows that it found; None if it does not count rows."""

    pairs: tuple[RowPair, ...] = ()

    @classmethod
    def of(
        cls, code: str, message: str, bad: Outcome | None, *, hint: str | None = None, count: int | None = None
    ) -> "Check":
        """Make a check whose level is `bad`, with the hint, or ok if `bad` is None."""
        return cls(code=code, level=bad or "ok", message=message, hint=hint if bad else None, count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The result of :func:`packer.audit.check`."""

    folder: Path
    fingerprint: str
    checks: tuple[Check, ...]

    def count(self, level: Outcome) -> int:
        return sum(check.level == level for check in self.checks)

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return self.count("failure") == 0
