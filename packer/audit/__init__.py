"""Inspection of caches and of the inputs they are built from: integrity, contents, statistics and readable views."""

from packer.audit.check.check import check
from packer.audit.diff import diff
from packer.audit.lint.lint_report import lint
from packer.audit.preview import preview
from packer.audit.stats import rows_of_split, stats
from packer.audit.verify.verify_cache import verify
from packer.audit.view import view_block, view_document, view_pieces, view_row

__all__ = [
    "check",
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
]
