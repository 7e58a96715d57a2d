"""`packer diff --html` and `packer lint --html`: the reports of these commands as pages."""

from packer.audit.diff.compare import CacheDiff
from packer.audit.diff.settings import split_model
from packer.audit.findings import LEVELS
from packer.audit.lint.checks import LintReport
from packer.report.shell import fill

_LONG, _BEGUN = 300, 100
"""Characters of a value that is folded, and of its beginning, which is seen."""

_LINES = {"-": "removed", "+": "added", "@": "soft"}
"""What the first character of a line of a template's diff says."""


def diff_page(found: CacheDiff) -> bytes:
    """A page about why two caches differ."""
    model, tokens = split_model(found.model)
    sections = {
        "identity": ("Identity", True),
        "recipe": ("Recipe", found.recipe),
        "inputs": ("Inputs", found.inputs or found.inputs_reordered),
        "model": ("Tokenizer", found.model or found.templates),
        "documents": ("Documents", found.documents or found.moved),
        "rows": ("Rows", found.examples),
        "totals": ("Totals", found.totals or found.software),
    }
    return fill(
        "diff",
        kind="diff",
        title=" → ".join(folder.resolve().name for folder in (found.old, found.new)),
        found=found,
        identity=[
            ("fingerprint", "of all bytes", found.fingerprint),
            ("content", "of the data", found.content_fingerprint),
            ("recipe", "of rules and inputs", found.recipe_fingerprint),
        ],
        sections=[(name, heading) for name, (heading, is_there) in sections.items() if is_there],
        model=model,
        tokens=tokens,
        names=_LINES,
        long=_LONG,
        begun=_BEGUN,
    )


def lint_page(report: LintReport) -> bytes:
    """A page about what a chat template does."""
    return fill(
        "lint",
        kind="lint",
        title=(report.template or report.tokenizer).resolve().name,
        report=report,
        levels=[(level, [each for each in report.findings if each.level == level]) for level in LEVELS],
    )
