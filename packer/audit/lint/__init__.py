"""The template report: what a tokenizer and its chat template do to conversations, shown with renderings and ids."""

from packer.audit.lint.codes import CODES
from packer.audit.lint.lint_report import lint

__all__ = ["CODES", "lint"]
