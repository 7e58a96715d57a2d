"""The template report: what a tokenizer and its chat template do to conversations, shown on renderings and ids."""

from packer.audit.lint.checks import lint
from packer.audit.lint.codes import CODES

__all__ = ["CODES", "lint"]
