"""The report of a verification of a cache."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from packer.display import in_shell, repair_hint

_REPAIRABLE = frozenset({"size", "xxh3-128", "sha256", "name", "structure"})
"""Findings by which `build --repair` recognizes that a file is not the one that was written."""

Level: TypeAlias = Literal["default", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A deviation from what was written, or from what the format requires."""

    path: str
    """Relative to the cache, POSIX; an input is named as in the manifest."""

    row: int | None = None
    """Row of the file, from 0; None if the finding is about the whole file."""

    what: str
    """What was compared: `size`, `xxh3-128`, `row digest`, …"""

    expected: str
    found: str

    @property
    def where(self) -> str:
        return self.path if self.row is None else f"{self.path} row {self.row:,}"

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: expected {self.expected}, found {self.found}"


def differing(path: str, *compared: tuple[str, object, object]) -> list[Finding]:
    """Return a finding about a file for each (what, expected, found) whose values differ."""
    return [
        Finding(path=path, what=what, expected=_shown(expected), found=_shown(found))
        for what, expected, found in compared
        if expected != found
    ]


def unreadable(path: str, error: Exception) -> Finding:
    """Return the finding for a file that cannot be read or parsed."""
    return Finding(path=path, what="structure", expected="a readable file", found=getattr(error, "message", str(error)))


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_mended(finding: Finding) -> bool:
    """Whether `build --repair` would fix this; it keeps files that match their digest."""
    if finding.what in {"re-encoded", "partition", "input"}:
        return False  # findings about inputs
    return finding.what in _REPAIRABLE or not finding.path.startswith(("documents/", "blocks"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How much of one kind of file was checked."""

    kind: str
    """`manifest`, `documents`, `blocks`, `rejected`, `model`, `inputs` or `re-encoded`; of the last, files and
    rows are those of the inputs."""

    num_files: int
    num_rows: int
    num_bytes: int
    num_damaged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The result of :func:`packer.audit.verify`."""

    folder: Path | str
    """The cache, or its URL if it is in a bucket."""

    level: Level
    checked: tuple[Checked, ...]
    findings: tuple[Finding, ...]
    """Everything that is wrong, in the order of the manifest; empty if the cache is intact."""

    fingerprint: str | None
    manifest_sha256: str
    """Of the file that was found; paths, engine and versions are in it, too."""

    content_fingerprint: str | None = None
    """As recorded in the manifest; None if the manifest cannot be read."""

    recipe_fingerprint: str | None = None
    notes: tuple[str, ...] = ()
    num_reencoded: int | None = None
    """Rows of the inputs that were re-encoded and compared; None without `reencode`."""

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def is_another(self) -> bool:
        """Whether the only thing wrong is that the fingerprint is not the expected one."""
        return {finding.what for finding in self.findings} == {"fingerprint"}

    @property
    def hint(self) -> str | None:
        """The command that helps; None if nothing is wrong."""
        whats = {finding.what for finding in self.findings}
        if not whats:
            return None
        folder = in_shell(self.folder)
        if self.is_another:
            return f"nothing else is wrong: it has other rows or rules. packer diff OLD {folder} shows why"
        if whats <= {"input", "fingerprint"}:
            return (
                "the cache itself is intact; to build it again brings it up to date with them. Names are looked up "
                "from the current folder and below --sources"
            )
        if not any(_is_mended(finding) for finding in self.findings):
            return (
                "every file is what its digest says, so that --repair would keep it; to have the rows made again, "
                "build into another folder: packer build -c RECIPE -o OTHER"
            )
        return repair_hint(self.folder)
