"""rejected.jsonl of a cache that nobody reads yet."""

from packer.store.files import CacheFiles
from packer.store.folder import PRIVATE
from packer.store.manifest import pending_name
from packer.store.row_tables import REJECTED_NAME, stage_rejected


def write_rejected(folder, lines):
    """Write the file under its name at once, and return what a manifest says of it."""
    sha256, content = stage_rejected(folder, lines)
    CacheFiles(folder).rename(f"{PRIVATE}/{pending_name(sha256)}", REJECTED_NAME)
    return {"rejected_sha256": sha256, "rejected_content": content}
