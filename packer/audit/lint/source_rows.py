"""The first rows of the sources under the template: what is rejected and what it costs, and what a build would make."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from packer.audit.lint.lint_report import Example, LintFinding, LookedAt
from packer.batches import RowBatch
from packer.model import Model
from packer.pipeline.inputs import open_inputs
from packer.pipeline.plan import resolve_sources
from packer.pipeline.progress import Silent
from packer.pipeline.rewrite_choices import choices_hint
from packer.pipeline.rewrite_cost import LIMIT, last_tokens
from packer.pipeline.stages import Stages, overruns_at
from packer.pipeline.suggestions import way_out
from packer.recipe import Recipe
from packer.source import InputFile


def read_first_rows(recipe: Recipe, model: Model, *, num_rows: int) -> list[tuple[InputFile, LookedAt]]:
    """Take the first rows of each input of the recipe through the stages, and say what became of them.

    Args:
        recipe: names the inputs.
        model: with the role markers of its template.
        num_rows: rows of each input at most.

    Raises:
        InputError: an input cannot be read.

    """
    stages = Stages(recipe, model)
    files = []
    for _, entry in open_inputs(resolve_sources(recipe), recipe, Silent().note):
        rows = list(islice(entry.rows(), num_rows + 1))
        found = LookedAt(
            path=entry.name, schema=entry.schema, num_rows=len(rows[:num_rows]), is_whole=len(rows) <= num_rows
        )
        for row in rows[:num_rows]:
            place = f"{entry.name} (row {row.number})"
            with overruns_at(lambda _: place):  # noqa: B023 - called within this iteration
                _count(found, stages, row.batch)
        files.append((entry, found))
    return files


def find_in_rows(read: Sequence[tuple[InputFile, LookedAt]], recipe: Recipe, model: Model) -> Iterator[LintFinding]:
    """Findings on the first rows of all inputs."""
    files = [found for _, found in read]
    if any(each.rejected for each in files):
        yield _rejected(read, recipe)
    cost = _rewrite_cost(files)
    if cost > 1:
        asks = recipe.supervision.history_rewrite is None and cost > LIMIT
        yield LintFinding(
            code="rows_price",
            message=f"rewritten history: the rows looked at take {cost:.2f} times the tokens of their last documents"
            + (f"; above {LIMIT:g} a build stops and asks" if asks else ""),
            examples=tuple(
                Example(label=each.path, text=f"{_rewrite_cost([each]):.2f} times") for each in files if len(files) > 1
            ),
            hint=choices_hint(model, recipe) if asks else None,
            level="warning" if asks else "note",
        )


def wholly_rejected(files: Sequence[LookedAt]) -> list[LookedAt]:
    """Inputs none of whose first rows is kept."""
    return [each for each in files if each.rejected and not each.num_kept]


def verdict(files: Sequence[LookedAt], recipe: Recipe, *, ok: bool, begins: bool) -> str:
    """What a build of the recipe would give.

    Args:
        files: the first rows of its inputs; none where none were looked at.
        recipe: of the build.
        ok: there is no error.
        begins: a build gets as far as its first row.

    """
    if not begins:
        return "a build would refuse this template before its first row"
    if not files:
        return "plain chats can be built" if ok else "no plain chat can be built as the recipe is"
    num_kept, num_rows = sum(each.num_kept for each in files), sum(each.num_rows for each in files)
    if not num_kept:
        return f"a build would keep nothing of the {_rows(num_rows)} looked at"
    if recipe.supervision.history_rewrite is None and _rewrite_cost(files) > LIMIT:
        return "a build would stop and ask about rewritten history (supervision.history_rewrite)"
    return f"a build keeps {num_kept:,} of the {_rows(num_rows)} looked at"


def _count(found: LookedAt, stages: Stages, batch: RowBatch) -> None:
    done = stages.run(batch)
    documents = done.documents
    for rejection in done.rejections:
        found.rejected[rejection.code] = found.rejected.get(rejection.code, 0) + 1
        found.first.setdefault(rejection.code, f"{found.path}:{rejection.row}: {rejection.reason}")
    found.num_kept += len(set(documents.sample.tolist()))
    found.num_turns += len(documents.run_start)
    found.num_tokens += len(documents.input_ids)
    found.num_last_tokens += last_tokens(documents) if documents.num_documents else 0


def _rejected(read: Sequence[tuple[InputFile, LookedAt]], recipe: Recipe) -> LintFinding:
    """How many rows are rejected, and what a build says of the most frequent code.

    Of an input that is rejected as a whole, it is that input's. Of losses, all kinds that were seen are allowed.
    """
    files = [found for _, found in read]
    rejected = sum((Counter(each.rejected) for each in files), Counter[str]())
    num_rows, whole = sum(each.num_rows for each in files), wholly_rejected(files)
    entry, found = max(read, key=lambda pair: (pair[1] in whole, sum(pair[1].rejected.values())))
    code = max(found.rejected, key=lambda each: found.rejected[each])
    lost = [each.removeprefix("dropped_") for each in rejected if each.startswith("dropped_")]
    message = f"{rejected.total():,} of {_rows(num_rows)} looked at are rejected"
    if len(whole) == len(files):
        message = f"all {_rows(num_rows)} looked at are rejected"
    elif whole:
        message += f", among them all {_rows(found.num_rows)} of {found.path}"
    return LintFinding(
        code="rows_rejected",
        message=message + (f": {code}" if whole else ""),
        examples=tuple(
            Example(label=f"{count:,} {code}", text=each.first[code])
            for each in files
            for code, count in Counter(each.rejected).most_common()
        ),
        hint=way_out(code, found.first[code], entry, recipe, lost=lost),
        level="error" if len(whole) == len(files) else "warning",
    )


def _rewrite_cost(files: Sequence[LookedAt]) -> float:
    """Tokens of all documents over those of each row's last."""
    last = sum(each.num_last_tokens for each in files)
    return sum(each.num_tokens for each in files) / last if last else 1.0


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
