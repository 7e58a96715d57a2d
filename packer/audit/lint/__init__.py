"""The template report: what a tokenizer and its chat template do to conversations, shown on renderings and ids."""

from packer.audit.lint.checks import lint
from packer.audit.lint.lint_report import CODES, LEVELS, Code, Example, Level, LintFinding, LintReport, LookedAt

__all__ = ["CODES", "LEVELS", "Code", "Example", "Level", "LintFinding", "LintReport", "LookedAt", "lint"]
