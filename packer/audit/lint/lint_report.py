"""The template report: every check in the order of the table of codes, then the first rows of the sources."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from packer.audit.findings import LEVELS, CodedFinding, Findings, in_order
from packer.audit.lint.buildable import find_losses, find_rejected_shapes, find_usable
from packer.audit.lint.codes import CODES
from packer.audit.lint.first_rows import FirstRows, find_in_rows, read_first_rows, verdict_on, wholly_rejected
from packer.audit.lint.history import find_forgotten_reasoning, find_marks, find_rewriting, find_terminators
from packer.audit.lint.probed_template import Subject
from packer.audit.lint.probes import CHAT, PLAIN, SHAPES
from packer.audit.lint.prompts import find_bos, find_clock, find_modes, find_openings, find_other_reading, find_own_text
from packer.pipeline.input_resolution import pin_recipe
from packer.pipeline.stages import named_template, overruns_at
from packer.progress import Silent
from packer.recipe import Recipe
from packer.source import SCHEMAS

_REFUSED = {"no_template", "bad_template", "no_marks", "split_marker"}
"""Errors that end a build before its first row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport(Findings):
    """The result of :func:`packer.audit.lint`."""

    tokenizer: Path
    template: Path | None
    """The template's file; None for the tokenizer's own."""

    findings: tuple[CodedFinding, ...]
    rows: tuple[FirstRows, ...]
    verdict: str
    """The result of a build of the recipe, in one line."""

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was looked at, and the verdict: names and what there is to say of them."""
        own = "the tokenizer's own" if self.template is None else str(self.template)
        rows = [("rows", entry.summary) for entry in self.rows]
        return [("tokenizer", str(self.tokenizer)), ("template", own), *rows, ("verdict", self.verdict)]


def lint(recipe: Recipe, *, num_rows: int = 200) -> LintReport:
    """Report what a recipe's template does under its tokenizer, and what becomes of the first rows of its sources.

    Everything is seen on renderings and ids, made by the stages that build. Nothing is written. Where a plain chat
    cannot be built, the report says why and which key helps, and ends there: under that key it has the rest.

    Args:
        recipe: names the tokenizer; sources are read where it has some.
        num_rows: rows read of each input at most; 0 reads none.

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
    findings = [*usable.findings, *(() if usable.subject is None else _checks(usable.subject))]
    files: list[FirstRows] = []
    if recipe.sources and num_rows and usable.model is not None:
        read = read_first_rows(recipe, usable.model, num_rows=num_rows)
        files = [found for _, found in read]
        findings += find_in_rows(read, recipe, usable.model)
    schemas = {each.schema for each in files}
    if schemas and not any(SCHEMAS[schema].is_templated for schema in schemas):
        findings = [replace(each, level="note") if each.code == "no_template" else each for each in findings]
    if any(each.code == "no_template" and each.level == "error" for each in findings):
        findings = [each for each in findings if each.code != "rows_rejected"]  # for that reason
    if schemas == {"tokens"}:  # no template makes anything of rows that bring their tokens
        findings = [each for each in findings if each.code == "rows_rejected"]
    first = {"rows_rejected"} if wholly_rejected(files) else set()
    findings.sort(key=lambda each: in_order(CODES, each.code, each.level))
    findings.sort(key=lambda each: (LEVELS.index(each.level), each.code not in first))
    errors = {each.code for each in findings if each.level == "error"}
    assert recipe.tokenizer is not None
    return LintReport(
        tokenizer=Path(recipe.tokenizer),
        template=Path(shown) if (shown := recipe.template.name or recipe.template.file) else None,
        findings=tuple(findings),
        rows=tuple(files),
        verdict=verdict_on(files, recipe, ok=not errors, begins=not errors & _REFUSED),
    )


def _checks(subject: Subject) -> Iterator[CodedFinding]:
    shapes = {
        label: subject.ask(row) for label, row in {"a plain answer": PLAIN, "a plain chat": CHAT, **SHAPES}.items()
    }
    yield from find_openings(subject)
    yield from find_modes(subject)
    yield from find_own_text(subject)
    yield from find_clock(subject, shapes)
    yield from find_rewriting(subject)
    yield from find_forgotten_reasoning(subject)
    yield from find_terminators(subject, shapes)
    yield from find_losses(subject)
    yield from find_rejected_shapes(shapes)
    yield from find_bos(subject)
    yield from find_other_reading(subject)
    yield from find_marks(subject)
