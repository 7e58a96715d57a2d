"""Why two caches differ: what of their recipe, inputs and tokenizer, and which documents and blocks it changed."""

from packer.audit.diff.compare import diff
from packer.audit.diff.report import CacheDiff

__all__ = ["CacheDiff", "diff"]
