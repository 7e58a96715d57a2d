"""Inspection of caches and of the inputs they are built from: integrity, contents, statistics and readable views.

Findings of `preview`, `check` and `verify --foreign` are a code with its level, a sentence, texts and a hint. All else
is in the modules, of which this one imports none, since each of them needs other parts of packer.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from packer.display import plural

Level: TypeAlias = Literal["error", "warning", "note", "ok", "skipped"]
"""A check is `ok` or `skipped` if there is nothing to find, or nothing to compare."""

LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""Those of a report's findings, in its order."""

TEMPLATE_CODES = {
    "opening_learned": "every answer opens with text of the template, which is trained: a header, an empty reasoning "
    "block",
    "tokenizer_read_otherwise": "transformers 5 gives a chat other ids than tokenizer.json does, because of its "
    "tokenizer_class",
}
"""Code → meaning of what `preview` finds out about a template, in the order of a report. All are warnings."""


class Code(NamedTuple):
    """A kind of finding."""

    level: Level
    meaning: str
    unit: str = ""
    """Unit of the finding's count, in the singular; empty if findings of this kind are not counted."""

    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A text that illustrates a finding, with the relevant part marked."""

    label: str
    """What the text is: `prompt`, `turn 1, trained`, …"""

    text: str
    mark: tuple[int, int] | None = None
    """Range of characters in `text` that the finding is about; an empty one is a position between two characters."""

    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedFinding:
    """A problem, or a fact worth knowing, found before training with a template or on rows; or that there is none."""

    code: str
    message: str
    """One line."""

    level: Level
    examples: tuple[Example, ...] = ()
    hint: str | None = None
    count: int | None = None
    """How many there are; None if they are not counted."""

    num_rows: int | None = None
    """Rows that have any, if what is counted is not rows."""


class Findings:
    """Base class of reports that list findings."""

    __slots__ = ()
    findings: tuple[CodedFinding, ...]
    """Errors first, then warnings, then notes; within a level in the order of the table of codes."""

    @property
    def counted(self) -> str:
        """Counts by level, such as `1 error, 2 warnings, 3 notes`."""
        return ", ".join(plural(self.count(level), level) for level in LEVELS)

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return self.count("error") == 0
