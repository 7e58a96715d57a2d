"""A local folder that mirrors a cache in a bucket: the rest of packer sees an ordinary folder.

A folder is a mirror only in a process that was given its URL, and in those that this process hands the URL to. Nothing
in a folder makes it one, since a folder may come from anybody. The folder for copies is the user's own.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from packer.errors import UsageError, show_as_url, url_of
from packer.host.limits import storage_errors
from packer.store.files import MIRRORED, CacheFiles
from packer.store.folder import PRIVATE, AtomicFile
from packer.store.own_files import make_folder


def make_mirror(folder: Path, url: str) -> CacheFiles:
    """Make a folder the mirror of a URL, for this process."""
    with storage_errors("write into", folder):
        make_folder(folder)
        make_folder(folder / MIRRORED)
    show_as_url(folder, url)
    return CacheFiles(folder)


@dataclass(frozen=True, slots=True)
class SentFolder:
    """The folder of a cache, as one process sends it to another, which need not know what it mirrors."""

    folder: Path
    url: str | None
    probe: Path | None = None
    """A file that is in the folder now, which shows on another machine that it is the same one."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        return cls(folder, url_of(folder))

    @classmethod
    @contextmanager
    def to_machines(cls, folder: Path) -> Iterator[Self]:
        """Provide a folder for other machines, which see the same one, or have a copy of the bucket each."""
        with ExitStack() as held:
            url, probe = url_of(folder), None
            if url is None:
                probe = held.enter_context(AtomicFile(folder / PRIVATE, below=folder)).path
            yield cls(folder, url, probe)

    def arrive(self) -> Path:
        """Return the folder, after making it here what it is there."""
        if self.url is not None:
            make_mirror(self.folder, self.url)
        if self.probe is not None and not self.probe.exists():
            raise UsageError(
                f"node {socket.gethostname()} does not see {self.folder}",
                hint="the cache must lie on a file system that all nodes have under the same absolute path",
            )
        return self.folder
