"""Checks of the rows in a cache: duplicates, leaks between splits, benchmark contamination, and provenance."""

from packer.audit.check.check import check, check_files

__all__ = ["check", "check_files"]
