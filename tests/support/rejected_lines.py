"""rejected.jsonl of a cache that nobody reads yet."""

import msgspec

from packer.store.files import CacheFiles
from packer.store.rejected import REJECTED_NAME


def write_rejected(folder, lines):
    """Write the file under its name at once, and return its sha256."""
    return CacheFiles(folder).write(REJECTED_NAME, (msgspec.json.encode(line) + b"\n" for line in lines)).sha256
