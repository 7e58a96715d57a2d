"""Whether a cache is what was written: its files, its rows, its blocks; and, made again, what its inputs yield."""

from packer.audit.verify.verify_cache import verify

__all__ = ["verify"]
