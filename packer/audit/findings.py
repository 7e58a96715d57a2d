"""Findings of `lint` and of `verify --foreign`: a code with its level, a sentence, texts that show it, a hint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from packer.display import plural

Level: TypeAlias = Literal["error", "warning", "note"]

LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""In the order of a report."""


class Code(NamedTuple):
    """A kind of finding."""

    level: Level
    meaning: str
    unit: str = ""
    """The unit of its count, in the singular, where findings of this kind are counted."""

    hint: str | None = None


def in_order(codes: Mapping[str, Code], code: str, level: Level) -> tuple[int, int]:
    """Where a finding stands in a report: errors first; within a level as the table of codes has them."""
    return LEVELS.index(level), list(codes).index(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A text that shows a finding, with a place in it."""

    label: str
    """What the text is: `prompt`, `turn 1, trained`, …"""

    text: str
    mark: tuple[int, int] | None = None
    """Characters of `text` the finding is about; empty where it is about the place between two."""

    note: str = ""
    """A remark on the mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedFinding:
    """One thing to know before training with a template, or on rows."""

    code: str
    """One of the codes of the report's folder, which say its level and what it means."""

    message: str
    """One sentence without a full stop."""

    level: Level
    examples: tuple[Example, ...] = ()
    hint: str | None = None
    """What to do."""


class Findings:
    """What reports of findings have in common."""

    __slots__ = ()
    findings: tuple[CodedFinding, ...]
    """Errors first, then warnings, then notes; within a level as the table of codes has them."""

    @property
    def counted(self) -> str:
        """`1 error, 2 warnings, 3 notes`."""
        return ", ".join(plural(self.count(level), level) for level in LEVELS)

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return self.count("error") == 0
