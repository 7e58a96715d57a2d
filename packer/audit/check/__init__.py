"""Which rows a cache has: copies, leaks between splits, benchmarks, and what it was made from."""

from packer.audit.check.check import check

__all__ = ["check"]
