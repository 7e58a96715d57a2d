"""Looking at a finished cache, is it what was written, what is in it, how does it read; and at one to be built.

findings     what an audit tells: Finding, Checked, VerifyReport
files        presence, size and digests of single files; rejected.jsonl against the totals
shards       one shard: bytes, structure, row digests
rows         what every row must satisfy, whatever its digest says
pieces       blocks against the documents they were packed from
identity     the recipe fingerprint and the model record, worked out again
reencode     documents made again from the inputs, against those that are stored
verify       all of these over a cache, in threads
stats        numbers of a cache: lengths, fill, trained share, rejections
runs         ids as trained and masked runs of text
view         a block, a document or a row as runs, for people
excerpts     what shows why a row is rejected
way_out      what to do about a rejected row
preview      the first rows as a build would make them
lint         what a template does to conversations
diff         why two caches differ
foreign      what another tool prepared
"""

from packer.audit.diff import CacheDiff, diff
from packer.audit.excerpts import Excerpt
from packer.audit.findings import Checked, Finding, VerifyReport
from packer.audit.lint import Example, LintFinding, LintReport, LookedAt, lint
from packer.audit.preview import Preview, PreviewedInput, PreviewedRow, PreviewTotals, preview
from packer.audit.stats import SplitStats, Stats, stats
from packer.audit.verify import verify
from packer.audit.view import (
    BlockView,
    DocumentView,
    RowView,
    Run,
    view_block,
    view_document,
    view_row,
)

__all__ = [
    "BlockView",
    "CacheDiff",
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
    "RowView",
    "Run",
    "SplitStats",
    "Stats",
    "VerifyReport",
    "diff",
    "lint",
    "preview",
    "stats",
    "verify",
    "view_block",
    "view_document",
    "view_row",
]
