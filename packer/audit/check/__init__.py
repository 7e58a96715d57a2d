"""Which rows a cache has: copies, leaks between splits, benchmarks, and what it was made from."""

from packer.audit.check.check import check, check_files

__all__ = ["check", "check_files"]
