"""Which rows a cache has: copies, leaks between splits, benchmarks, and what it was made from."""

from packer.audit.check.check import check
from packer.audit.check.check_report import Answer, Check, CheckReport, RowPair, RowText

__all__ = ["Answer", "Check", "CheckReport", "RowPair", "RowText", "check"]
