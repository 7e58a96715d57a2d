"""Identify this packer, by its version and a digest of its source, and the libraries it uses."""

import hashlib
from functools import cache
from pathlib import Path

__version__ = "1.0.0"


@cache
def library_version(name: str) -> str | None:
    """Return the version of an installed library; None if it is not installed. Cached, as it reads files."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - doubles the time of `import packer`

    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def code_digest() -> str:
    """Return the sha256 over the names and contents of packer's modules.

    The version alone does not show that somebody has edited an installed copy.
    """
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
