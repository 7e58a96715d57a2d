"""What a build says, and the bytes that it leaves."""

import hashlib
from pathlib import Path

from packer.display import Silent


class Notes(Silent):
    """A progress that keeps the notes it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def digests(cache: Path) -> dict[str, str]:
    """The digest of every file of a cache, but for what a build notes for itself."""
    return {
        path.relative_to(cache).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(cache.rglob("*"))
        if path.is_file() and ".packer" not in path.parts
    }
