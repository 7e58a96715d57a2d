"""The template report: every check, in the order of the table of codes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from packer.audit.lint.codes import LEVELS, ORDER
from packer.audit.lint.endings import find_after, find_terminators
from packer.audit.lint.findings import LintFinding, LintReport, LookedAt
from packer.audit.lint.history import find_forgotten_reasoning, find_rewriting
from packer.audit.lint.marks import find_marks
from packer.audit.lint.prompts import find_clock, find_modes, find_openings, find_own_text
from packer.audit.lint.rows import look_at_rows
from packer.audit.lint.shapes import ask_shapes, find_adapted, find_changed_answers, find_losses, find_refused
from packer.audit.lint.subject import Subject
from packer.audit.lint.tokens import find_bos, find_merges, find_other_reading, find_settings, find_swallowed
from packer.audit.lint.usable import find_usable
from packer.recipe import Recipe


def lint(recipe: Recipe, *, num_rows: int = 200) -> LintReport:
    """Report what a recipe's template does under its tokenizer, and what becomes of the first rows of its sources.

    Everything is seen on renderings and ids, made by the stages that build. Nothing is written.

    Args:
        recipe: names the tokenizer; sources are looked at where it has some.
        num_rows: rows looked at of each input at most; 0 looks at none.

    Raises:
        RecipeError: no tokenizer.
        InputError: the tokenizer or a source cannot be read.

    """
    usable = find_usable(recipe)
    subject = usable.subject
    findings = list(usable.findings)
    if subject is not None:
        findings += _checks(subject)
    rows: tuple[LookedAt, ...] = ()
    if recipe.sources and num_rows and usable.built is not None:
        rows, found = look_at_rows(*usable.built, subject, num_rows=num_rows)
        findings += found
    if rows and all(entry.schema in ("completion", "text") for entry in rows):
        findings = [replace(each, allowed=each.allowed or each.code == "no_template") for each in findings]
    assert recipe.tokenizer is not None
    return LintReport(
        tokenizer=Path(recipe.tokenizer),
        template=Path(recipe.template.file) if recipe.template.file else None,
        findings=tuple(sorted(findings, key=lambda each: (LEVELS.index(each.level), ORDER[each.code]))),
        assumed=usable.assumed,
        rows=rows,
    )


def _checks(subject: Subject) -> Iterator[LintFinding]:
    shapes = ask_shapes(subject)
    yield from find_openings(subject)
    yield from find_modes(subject)
    yield from find_own_text(subject)
    yield from find_clock(subject, shapes)
    yield from find_rewriting(subject)
    yield from find_forgotten_reasoning(subject)
    yield from find_terminators(subject, shapes)
    yield from find_after(subject)
    yield from find_losses(subject, shapes)
    yield from find_refused(subject, shapes)
    yield from find_adapted(subject, shapes)
    yield from find_changed_answers(subject)
    yield from find_bos(subject)
    yield from find_merges(subject)
    yield from find_swallowed(subject)
    yield from find_other_reading(subject)
    yield from find_settings(subject)
    yield from find_marks(subject)
