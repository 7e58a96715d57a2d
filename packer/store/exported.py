"""``export.json``: what an export was made from, and what its form says of each split; it makes a folder an export."""

import json
from pathlib import Path
from typing import Any

RECORD = "export.json"


def read_record(folder: Path) -> dict[str, Any] | None:
    """What stands in the record of an export; None where there is none that can be read."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
