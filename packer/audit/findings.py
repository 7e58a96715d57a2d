"""Findings of `lint` and of `verify --foreign`: a code with its level, a sentence, texts that show it, a hint."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["error", "warning", "note"]

LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""In the order of a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A text that shows a finding, with a place in it."""

    label: str
    """What the text is: `prompt`, `turn 1, learned`, …"""

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

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return self.count("error") == 0
