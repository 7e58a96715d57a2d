"""The template report: all checks in the order of the table of codes, then the first rows of the sources.

The results of these rows predict what a build of the recipe would do.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from packer.audit.findings import LEVELS, CodedFinding, Example, Findings, in_order
from packer.audit.lint.codes import CODES, finding
from packer.audit.lint.probed_template import ProbedTemplate
from packer.audit.lint.template_checks import (
    find_openings,
    find_rewriting,
    find_tokenizer_difference,
    prepare_probes,
)
from packer.batches import RowBatch
from packer.display import number, plural
from packer.model.model import Model
from packer.pipeline.messages.losses import MOST_TIMES, last_tokens, rewrite_cost
from packer.pipeline.messages.suggestions import remedy
from packer.pipeline.plan.input_resolution import pin_recipe, resolve_sources
from packer.pipeline.plan.inputs import open_inputs
from packer.pipeline.plan.open_keys import settled
from packer.pipeline.plan.unread_fields import Questions
from packer.pipeline.stages import Stages, named_template, overruns_at
from packer.progress import Silent
from packer.recipe.recipe import Recipe
from packer.source.rows import InputFile
from packer.source.schema import SCHEMAS


@dataclass(slots=True, kw_only=True)
class FirstRows:
    """The first rows of one input, and counts of their results."""

    path: str
    schema: str
    num_rows: int
    """Rows read, from the start of the file."""

    is_whole: bool
    """Whether these are all rows of the file."""

    num_kept: int = 0
    """Rows that a build of the recipe keeps."""

    num_turns: int = 0
    """Answers trained."""

    num_tokens: int = 0
    num_last_tokens: int = 0
    """Tokens of each row's last document."""

    rejected: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    """Location and reason of the first rejection for each code."""

    @property
    def summary(self) -> str:
        which = f"all {number(self.num_rows)}" if self.is_whole else f"the first {number(self.num_rows)}"
        kept = f"{number(self.num_kept)} kept, {plural(self.num_turns, 'answer')}"
        return f"{which} of {self.path} ({self.schema}): {kept}"


def read_first_rows(
    entries: Iterable[InputFile], recipe: Recipe, model: Model, *, num_rows: int
) -> list[tuple[InputFile, FirstRows]]:
    """Run the first rows of each input of the recipe through the stages, and count their results."""
    stages = Stages(recipe, model)
    stages.renderer = stages.renderer.by_reference()  # of a single row, each is compared with it anyway
    files = []
    for entry in entries:
        rows = list(islice(entry.rows(), num_rows + 1))
        found = FirstRows(
            path=entry.name, schema=entry.schema, num_rows=len(rows[:num_rows]), is_whole=len(rows) <= num_rows
        )
        for row in rows[:num_rows]:
            place = f"{entry.name} (row {row.number})"
            with overruns_at(lambda _: place):  # noqa: B023 - called within this iteration
                _count(found, stages, row.batch)
        files.append((entry, found))
    return files


def find_in_rows(
    read: Sequence[tuple[InputFile, FirstRows]], questions: Questions, recipe: Recipe, model: Model
) -> Iterator[CodedFinding]:
    """Yield findings about the first rows of all inputs."""
    files = [found for _, found in read]
    asked = questions.questions
    if asked:
        yield finding("rows_unread", "; ".join(map(str, asked)), hint=questions.hint(asked))
    if any(each.rejected for each in files):
        yield _rejected(read, recipe, model)


def wholly_rejected(files: Sequence[FirstRows]) -> list[FirstRows]:
    """Return the inputs whose first rows are all rejected."""
    return [each for each in files if each.rejected and not each.num_kept]


def verdict_on(files: Sequence[FirstRows], recipe: Recipe, *, ok: bool, begins: bool) -> str:
    """Predict the result of a build of the recipe.

    `ok`: there are no errors. `begins`: a build would reach its first row.
    """
    if not begins:
        return "a build would refuse this template before its first row"
    if not files:
        return "plain chats can be built" if ok else "no plain chat can be built with this recipe"
    num_kept, num_rows = sum(each.num_kept for each in files), sum(each.num_rows for each in files)
    if not num_kept:
        return f"a build would keep none of the {plural(num_rows, 'row')} examined"
    if recipe.supervision.history_rewrite is None and _rewrite_cost(files) > MOST_TIMES:
        return "a build would stop and ask about rewritten history (supervision.history_rewrite)"
    rules = "; the recipe's rules about rows are not applied here" if recipe.row_rules.is_set else ""
    return f"a build keeps {num_kept:,} of the {plural(num_rows, 'row')} examined{rules}"


def _count(found: FirstRows, stages: Stages, batch: RowBatch) -> None:
    done = stages.run(batch)
    documents = done.documents
    for rejection in done.rejections:
        found.rejected[rejection.code] = found.rejected.get(rejection.code, 0) + 1
        found.first.setdefault(rejection.code, f"{found.path}:{rejection.row}: {rejection.reason}")
    found.num_kept += len(set(documents.sample.tolist()))
    found.num_turns += len(documents.run_start)
    found.num_tokens += len(documents.input_ids)
    found.num_last_tokens += last_tokens(documents) if documents.num_documents else 0


def _rejected(read: Sequence[tuple[InputFile, FirstRows]], recipe: Recipe, model: Model) -> CodedFinding:
    """Report how many rows are rejected, with the hint for the most frequent code; it covers every kind of loss seen.

    If all rows of an input are rejected, the code is that input's.
    """
    files = [found for _, found in read]
    rejected = sum((Counter(each.rejected) for each in files), Counter[str]())
    num_rows, whole = sum(each.num_rows for each in files), wholly_rejected(files)
    entry, found = max(read, key=lambda pair: (pair[1] in whole, sum(pair[1].rejected.values())))
    code = max(found.rejected, key=lambda each: found.rejected[each])
    lost = [each.removeprefix("dropped_") for each in rejected if each.startswith("dropped_")]
    message = f"{rejected.total():,} of {plural(num_rows, 'row')} examined are rejected"
    if len(whole) == len(files):
        message = f"all {plural(num_rows, 'row')} examined are rejected"
    elif whole:
        message += f", among them all {plural(found.num_rows, 'row')} of {found.path}"
    return finding(
        "rows_rejected",
        message + (f": {code}" if whole else ""),
        examples=tuple(
            Example(label=f"{count:,} {code}", text=each.first[code])
            for each in files
            for code, count in Counter(each.rejected).most_common()
        ),
        hint=remedy(code, found.first[code], entry, recipe, model, lost=lost),
        level="error" if len(whole) == len(files) else "warning",
    )


def _rewrite_cost(files: Sequence[FirstRows]) -> float:
    return rewrite_cost(sum(each.num_tokens for each in files), sum(each.num_last_tokens for each in files))


_REFUSED = {"no_template", "template_refused"}
"""Errors that stop a build before its first row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport(Findings):
    """The result of :func:`packer.audit.lint`."""

    tokenizer: Path
    template: Path | None
    """The template's file; None if it is the tokenizer's own, or if there is none."""

    findings: tuple[CodedFinding, ...]
    rows: tuple[FirstRows, ...]
    verdict: str
    """The predicted result of a build of the recipe, in one line."""

    @property
    def facts(self) -> list[tuple[str, str]]:
        """(label, text) of what was examined, followed by the verdict."""
        is_none = any(each.code == "no_template" for each in self.findings)
        own = str(self.template or ("none" if is_none else "the tokenizer's own"))
        rows = [("rows", entry.summary) for entry in self.rows]
        return [("tokenizer", str(self.tokenizer)), ("template", own), *rows, ("verdict", self.verdict)]


def lint(recipe: Recipe, *, num_rows: int = 200) -> LintReport:
    """Report what a recipe's template does under its tokenizer, and the results of the first rows of its sources.

    All findings are based on renderings and ids from the stages of a build. Nothing is written. If a plain chat cannot
    be built, the report ends there, with the reason and the key that helps; with that key set, lint reports the rest.

    Args:
        recipe: names the tokenizer; its sources are read if it has any.
        num_rows: maximum number of rows read of each input; 0 reads none.

    Raises:
        RecipeError: no tokenizer.
        InputError: the tokenizer or a source cannot be read.
        TemplateOverrunError: the template exceeds its limits.
    """
    recipe = pin_recipe(recipe, Silent().note)
    with overruns_at(lambda _: named_template(recipe)):
        return _lint(recipe, num_rows)


def _lint(recipe: Recipe, num_rows: int) -> LintReport:
    findings, probed, model = prepare_probes(recipe)
    files, settled_keys = list[FirstRows](), tuple[str, ...]()
    if recipe.sources and num_rows and model is not None:
        questions = Questions(recipe, model)
        opened = [*open_inputs(resolve_sources(recipe), recipe, Silent().note, questions=questions)]
        recipe, settled_keys = settled(recipe, model, [(file.source, entry) for file, entry in opened])
        if settled_keys:  # the report is about the recipe that a build would have
            findings, probed, model = prepare_probes(recipe)
        assert model is not None
        read = read_first_rows([entry for _, entry in opened], recipe, model, num_rows=num_rows)
        files = [found for _, found in read]
        findings += find_in_rows(read, questions, recipe, model)
    if probed is not None:
        findings += _checks(probed, files)
    schemas = {each.schema for each in files}
    if schemas and not any(SCHEMAS[schema].is_templated for schema in schemas):
        findings = [replace(each, level="note") if each.code == "no_template" else each for each in findings]
    if any(each.code == "no_template" and each.level == "error" for each in findings):
        findings = [each for each in findings if each.code != "rows_rejected"]  # no_template is the reason
    if schemas == {"tokens"}:  # pretokenized rows do not use a template
        findings = [each for each in findings if each.code in {"rows_rejected", "rows_unread"}]
    first = {"rows_rejected"} if wholly_rejected(files) else set()
    findings.sort(key=lambda each: in_order(CODES, each.code, each.level))
    findings.sort(key=lambda each: (LEVELS.index(each.level), each.code not in first))
    errors = {each.code for each in findings if each.level == "error"}
    assert recipe.tokenizer is not None
    verdict = verdict_on(files, recipe, ok=not errors, begins=not errors & _REFUSED)
    if "no_template" in errors:
        verdict = "a build of messages would end before its first row"
    return LintReport(
        tokenizer=Path(recipe.tokenizer),
        template=Path(shown) if (shown := recipe.template.name or recipe.template.file) else None,
        findings=tuple(findings),
        rows=tuple(files),
        verdict="; ".join((verdict, *settled_keys)),
    )


def _checks(probed: ProbedTemplate, files: Sequence[FirstRows]) -> Iterator[CodedFinding]:
    """Check the template; of how it rewrites history only what the rows at hand have, if there are any."""
    yield from find_openings(probed)
    cost = _rewrite_cost(files)
    if not files or cost > 1:
        yield from find_rewriting(probed, cost if files else None)
    yield from find_tokenizer_difference(probed)
