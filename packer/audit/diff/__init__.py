"""Why two caches differ: changes in recipe, inputs and tokenizer, and the documents and blocks they affect."""

from packer.audit.diff.compare import diff

__all__ = ["diff"]
