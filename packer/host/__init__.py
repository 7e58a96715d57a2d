"""What keeps this machine safe: limits on files, Arrow messages and templates; and the folder of packer's own files."""

import os
from pathlib import Path

from packer.errors import UsageError

CACHE_DIR = "PACKER_CACHE_DIR"
"""Environment variable that names this folder."""


def cache_dir(asked: Path | str | None = None) -> Path:
    """Return the folder for packer's own files."""
    if named := asked or os.environ.get(CACHE_DIR):
        return Path(named).absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # The XDG specification says to ignore relative paths.
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "packer"
    except RuntimeError:
        raise UsageError(
            "there is no home directory for packer's own files, such as copies of caches in buckets",
            hint=f"set {CACHE_DIR} to a folder for them",
        ) from None
