"""Looking at a finished cache: is it what was written, what is in it, how does it read.

findings     what an audit tells: Finding, Checked, VerifyReport
files        presence, size and digests of single files; rejected.jsonl against the totals
shards       one shard: bytes, structure, row digests
rows         what every row must satisfy, whatever its digest says
pieces       blocks against the documents they were packed from
identity     the recipe fingerprint and the model record, worked out again
verify       all of these over a cache, in threads
stats        numbers of a cache: lengths, fill, trained share, rejections
runs         ids as trained and masked runs of text
view         a block, a document or a row as runs, for people
"""

from packer.audit.findings import Checked, Finding, VerifyReport
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
    "Checked",
    "DocumentView",
    "Finding",
    "RowView",
    "Run",
    "SplitStats",
    "Stats",
    "VerifyReport",
    "stats",
    "verify",
    "view_block",
    "view_document",
    "view_row",
]
