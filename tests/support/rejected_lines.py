"""rejected.jsonl of a cache that nobody reads yet."""

import msgspec

from packer.store.files import CacheFiles
from packer.store.rejected import REJECTED_NAME, rejected_digests


def write_rejected(folder, lines):
    """Write the file under its name at once, and return what a manifest says of it."""
    lines = list(lines)
    CacheFiles(folder).write(REJECTED_NAME, (msgspec.json.encode(line) + b"\n" for line in lines))
    return dict(zip(("rejected_sha256", "rejected_content"), rejected_digests(lines), strict=True))
