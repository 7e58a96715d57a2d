"""The template report: findings with examples, in the order of their levels."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from packer.audit.lint.codes import CODES, Level

_OF_ITS_CODE = cast("Level", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A text that shows a finding, with a place in it."""

    label: str
    """What the text is: `prompt`, `turn 1, learned`, …"""

    text: str
    mark: tuple[int, int] | None = None
    """Characters of `text` the finding is about; empty where it is about the place between two."""

    note: str = ""
    """What there is to say of the mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """One thing a template does that whoever trains with it should know."""

    code: str
    """One of :data:`packer.audit.lint.CODES`."""

    message: str
    """One sentence without a full stop."""

    examples: tuple[Example, ...] = ()
    hint: str | None = None
    """What to do; a `--set` it names was tried, and does what the hint says."""

    level: Level = _OF_ITS_CODE
    """That of its code, if whoever found it does not know better: what a recipe asks for is a note."""

    def __post_init__(self) -> None:
        if self.level == _OF_ITS_CODE:
            object.__setattr__(self, "level", CODES[self.code].level)


@dataclass(slots=True, kw_only=True)
class LookedAt:
    """The first rows of one input, and their results."""

    path: str
    schema: str
    num_rows: int
    """Rows read, from the start of the file."""

    is_whole: bool
    """Whether the file has no more."""

    num_kept: int = 0
    """Rows a build of the recipe keeps."""

    num_turns: int = 0
    """Answers learned."""

    num_tokens: int = 0
    num_last_tokens: int = 0
    """Tokens of each row's last document."""

    rejected: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    """Place and reason of the first rejection of each code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The result of :func:`packer.audit.lint`."""

    tokenizer: Path
    template: Path | None
    """The template's file; None for the tokenizer's own."""

    findings: tuple[LintFinding, ...]
    """Errors first, then warnings, then notes; within a level as the table of codes has them."""

    rows: tuple[LookedAt, ...]
    verdict: str
    """What a build of the recipe would give, in one line."""

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return self.count("error") == 0
