"""Inspection of caches and of the inputs they are built from: integrity, contents, statistics and readable views."""

from packer.audit.check import check, check_files
from packer.audit.diff import diff
from packer.audit.lint import lint
from packer.audit.preview import preview
from packer.audit.stats import rows_of_split, stats
from packer.audit.verify import verify
from packer.audit.view import view_block, view_document, view_pieces, view_row
from packer.audit.why import why

__all__ = [
    "check",
    "check_files",
    "diff",
    "lint",
    "preview",
    "rows_of_split",
    "stats",
    "verify",
    "view_block",
    "view_document",
    "view_pieces",
    "view_row",
    "why",
]
