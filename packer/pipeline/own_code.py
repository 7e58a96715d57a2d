"""packer's own source as a digest: which code made a cache."""

import hashlib
from functools import cache
from pathlib import Path

import packer

VERSION_NAME = "packer_code"
"""Under which a manifest's `versions` have it."""


@cache
def code_digest() -> str:
    """sha256 over the names and the bytes of packer's modules.

    Its version says what was released; somebody who changed a line has the same version.
    """
    root = Path(packer.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
