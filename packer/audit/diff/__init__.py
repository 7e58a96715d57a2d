"""Why two caches differ: what of their recipe, inputs and tokenizer, and which documents and blocks it changed."""

from packer.audit.diff.compare import diff

__all__ = ["diff"]
