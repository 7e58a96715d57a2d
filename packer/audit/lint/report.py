"""The template report: every check, in the order of the table of codes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packer.audit.lint.codes import LEVELS, ORDER
from packer.audit.lint.endings import find_after, find_terminators
from packer.audit.lint.findings import LintFinding, LintReport
from packer.audit.lint.history import find_forgotten_reasoning, find_rewriting
from packer.audit.lint.losses import find_losses, find_others_as_answers, lost_shapes
from packer.audit.lint.marks import find_marks
from packer.audit.lint.prompts import find_clock, find_modes, find_openings, find_own_text
from packer.audit.lint.row_findings import find_in_rows, verdict
from packer.audit.lint.rows import Rows, look_at_rows
from packer.audit.lint.shapes import ask_shapes, find_adapted, find_changed_answers, find_refused
from packer.audit.lint.subject import Subject
from packer.audit.lint.tokens import find_bos, find_merges, find_other_reading, find_settings, find_swallowed
from packer.audit.lint.usable import find_usable
from packer.build.places import pin_recipe
from packer.build.plan import TEMPLATED
from packer.build.progress import Silent
from packer.build.stages import named_template, overruns_at
from packer.recipe import Recipe
from packer.source import naming_standard_input


@naming_standard_input()
def lint(recipe: Recipe, *, num_rows: int = 200) -> LintReport:
    """Report what a recipe's template does under its tokenizer, and what becomes of the first rows of its sources.

    Everything is seen on renderings and ids, made by the stages that build. Nothing is written.

    Args:
        recipe: names the tokenizer; sources are looked at where it has some.
        num_rows: rows looked at of each input at most; 0 looks at none.

    Raises:
        RecipeError: no tokenizer.
        InputError: the tokenizer or a source cannot be read.
        TemplateOverrunError: the template goes on for too long.

    """
    recipe = pin_recipe(recipe, Silent().note)
    with overruns_at(lambda _: named_template(recipe)):
        return _lint(recipe, num_rows)


def _lint(recipe: Recipe, num_rows: int) -> LintReport:
    usable = find_usable(recipe)
    subject = usable.subject
    findings = list(usable.findings)
    if subject is not None:
        findings += _checks(subject)
    rows = Rows(files=(), num_kept_given=None)
    if recipe.sources and num_rows and usable.built is not None:
        assumed, model = usable.built
        rows = look_at_rows(assumed, model, recipe, subject, num_rows=num_rows)
        findings += find_in_rows(rows, assumed, model, subject, assumed=bool(usable.assumed))
    texts = bool(rows.files) and all(each.schema not in TEMPLATED for each in rows.files)
    if texts:
        findings = [replace(each, level="note") if each.code == "no_template" else each for each in findings]
    assumed_keys = usable.assumed
    if rows.num_kept_given is not None and _are_tokens(rows):
        findings, assumed_keys = [each for each in findings if each.code in _OF_TOKEN_ROWS], ()
    findings.sort(key=lambda each: (LEVELS.index(each.level), ORDER[each.code]))
    ok = all(each.level != "error" for each in findings)
    assert recipe.tokenizer is not None
    return LintReport(
        tokenizer=Path(recipe.tokenizer),
        template=Path(recipe.template.file) if recipe.template.file else None,
        findings=_with_causes(findings),
        assumed=tuple(override.setting for override in assumed_keys),
        rows=rows.looked_at(assumed=bool(assumed_keys)),
        verdict=verdict(rows, recipe, ok=ok, begins=texts or not _REFUSED.intersection(each.code for each in findings)),
    )


_OF_TOKEN_ROWS = {"rows_all_rejected", "rows_rejected", "pad_is_stop"}
"""What is of interest where all rows bring their tokens: no template and no tokenizer makes anything of them."""


def _are_tokens(rows: Rows) -> bool:
    return bool(rows.files) and all(each.schema == "tokens" for each in rows.files)


_REFUSED = {"no_template", "bad_template", "no_marks", "split_marker"}
"""Errors that end a build before its first row."""

_OF_TOKENS = {
    "turn_end_is_no_stop", "terminator", "after_terminator", "no_terminator", "bos_missing", "bos_doubled",
    "bos_repeated", "border_merges", "space_swallowed", "pad_is_stop", "marks_no_terminator", "marks_past_end",
    "tokenizer_read_otherwise", "rows_merged", "rows_control_tokens",
}  # fmt: skip
"""What may be otherwise with a tokenizer that knows the markers of the template."""


def _with_causes(findings: Sequence[LintFinding]) -> tuple[LintFinding, ...]:
    """Findings on tokens name the finding that the template belongs to another tokenizer, where that is so."""
    codes = {each.code for each in findings}
    if "split_marker" not in codes:
        return tuple(findings)
    follow = _OF_TOKENS | ({"chat_rewritten"} if "no_terminator" in codes else set())
    return tuple(replace(each, because="split_marker") if each.code in follow else each for each in findings)


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
    lost = lost_shapes(subject)
    yield from find_losses(subject, shapes, lost)
    yield from find_others_as_answers(subject)
    yield from find_refused(subject, shapes, lost)
    yield from find_adapted(subject, shapes)
    yield from find_changed_answers(subject)
    yield from find_bos(subject)
    yield from find_merges(subject)
    yield from find_swallowed(subject)
    yield from find_other_reading(subject)
    yield from find_settings(subject)
    yield from find_marks(subject)
