"""What an audit of a cache tells."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["quick", "default", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it was written, or not as it must be."""

    path: str
    """Relative to the cache, POSIX; an input is named as the manifest names it."""

    row: int | None
    """Row of the file, from 0; None where the whole file is meant."""

    what: str
    """What was compared: `size`, `xxh3-128`, `row digest`, …"""

    expected: str
    found: str

    def __str__(self) -> str:
        where = self.path if self.row is None else f"{self.path} row {self.row}"
        return f"{where}: {self.what}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How much of one kind of file was checked."""

    kind: str
    """`manifest`, `documents`, `blocks`, `rejected`, `model`, `inputs` or `re-encoded`: of the last, files and rows are
    those of the inputs."""

    num_files: int
    num_rows: int
    num_bytes: int
    """Bytes that were read and digested; at level `quick` bytes whose number was compared."""

    num_damaged: int
    """Files with a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The result of :func:`packer.audit.verify`."""

    folder: Path
    level: Level
    checked: tuple[Checked, ...]
    findings: tuple[Finding, ...]
    """Everything that is wrong, in the order of the manifest; none where the cache is whole."""

    strays: tuple[str, ...]
    """Shard files no manifest names: left by a build that was killed. The next build removes them."""

    fingerprint: str
    """sha256 of the manifest as it is."""

    content_fingerprint: str | None
    """As the manifest names it; None where the manifest cannot be read."""

    recipe_fingerprint: str | None

    notes: tuple[str, ...] = ()
    """What is not wrong, and worth knowing."""

    num_reencoded: int | None = None
    """Rows of the inputs that were made into documents again and compared; None where that was not asked for."""

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def hint(self) -> str | None:
        """The command that helps, where something is wrong."""
        whats = {finding.what for finding in self.findings}
        if not whats:
            return None
        if whats == {"fingerprint"}:
            return "these are not the bytes that were pinned; compare the recipe and the inputs of both builds"
        if whats <= {"input", "fingerprint"}:
            return f"the cache itself is whole; packer build -o {self.folder} brings it up to date with its inputs"
        if whats <= {"re-encoded", "partition", "input", "fingerprint"}:
            if self.level == "quick":
                return f"packer verify {self.folder} tells whether its files still are what was written"
            return (
                "every file is what its digest says, so that --repair would keep it; to have the documents made again, "
                "build into another folder: packer build -c RECIPE -o OTHER"
            )
        return f"packer build -o {self.folder} --repair makes damaged files again"
