"""Looking at caches and at what comes before them: is it what was written, what is in it, how does it read."""

from packer.audit.check import Answer, Check, CheckReport, RowPair, RowText, check
from packer.audit.diff import CacheDiff, diff
from packer.audit.lint import Example, LintFinding, LintReport, LookedAt, lint
from packer.audit.preview import Excerpt, Preview, PreviewedInput, PreviewedRow, PreviewTotals, preview
from packer.audit.stats import SplitStats, Stats, rows_of_split, stats
from packer.audit.verify import verify
from packer.audit.verify_report import Checked, Finding, VerifyReport
from packer.audit.view import (
    BlockView,
    DocumentView,
    RowView,
    Run,
    view_block,
    view_document,
    view_pieces,
    view_row,
)
from packer.audit.why import WhyView, why

__all__ = [
    "Answer",
    "BlockView",
    "CacheDiff",
    "Check",
    "CheckReport",
    "Checked",
    "DocumentView",
    "Example",
    "Excerpt",
    "Finding",
    "LintFinding",
    "LintReport",
    "LookedAt",
    "Preview",
    "PreviewTotals",
    "PreviewedInput",
    "PreviewedRow",
    "RowPair",
    "RowText",
    "RowView",
    "Run",
    "SplitStats",
    "Stats",
    "VerifyReport",
    "WhyView",
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
    "why",
]
