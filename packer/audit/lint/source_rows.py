"""The first rows of the sources under the template: what is rejected and what it costs, and what a build would make."""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from packer.audit.excerpts import texts_in
from packer.audit.lint.history import AS_RENDERED, EXACT, LAST, ending_stop
from packer.audit.lint.lint_report import Example, LintFinding, LookedAt
from packer.audit.lint.subject import Subject
from packer.batches import RowBatch, Sample
from packer.errors import TemplateError
from packer.model import Model
from packer.pipeline.inputs import open_inputs
from packer.pipeline.plan import load_recipe_model, resolve_sources
from packer.pipeline.progress import Silent
from packer.pipeline.rewrite_cost import LIMIT, last_tokens
from packer.pipeline.stages import Stages, overruns_at
from packer.recipe import Recipe
from packer.rejections import rejection_hint
from packer.render.control import control_pattern, typed_fields

_BATCH_ROWS = 100


@dataclass(slots=True, kw_only=True)
class FileRows:
    """The first rows of one file, and their results."""

    path: str
    name: str
    """Names the file in the report: the last part of its path, where no other input has the same."""

    schema: str
    batches: list[RowBatch]
    num_rows: int
    is_whole: bool
    rejected: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """Place and reason of the first rejection of each code."""

    control: Counter[str] = field(default_factory=Counter)
    num_kept: int = 0
    num_turns: int = 0
    num_tokens: int = 0
    num_last_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """The first rows of every input, through the stages under one recipe."""

    files: tuple[FileRows, ...]
    num_kept_given: tuple[int, ...] | None
    """Of each file, rows kept under the recipe as given; None where a build of it would not begin."""

    def total(self, name: str) -> int:
        return sum(int(getattr(each, name)) for each in self.files)

    def counted(self, name: str) -> Counter[Any]:
        return sum((getattr(each, name) for each in self.files), Counter())

    @property
    def price(self) -> float:
        """Tokens of all documents over those of each row's last."""
        return _ratio(self.total("num_tokens"), self.total("num_last_tokens"))

    def looked_at(self, *, assumed: bool) -> tuple[LookedAt, ...]:
        given = self.num_kept_given or (None,) * len(self.files)
        return tuple(
            LookedAt(
                path=each.path,
                schema=each.schema,
                num_rows=each.num_rows,
                is_whole=each.is_whole,
                num_kept=kept,
                num_kept_assumed=each.num_kept if assumed else None,
                num_turns=each.num_turns,
            )
            for each, kept in zip(self.files, given, strict=True)
        )


def look_at_rows(recipe: Recipe, model: Model, given: Recipe, *, num_rows: int) -> SourceRows:
    """Take the first rows of each input of the recipe through the stages.

    Args:
        recipe: names the inputs; with what is assumed.
        model: with the role markers of its template.
        given: the recipe without what is assumed.
        num_rows: rows of each input at most.

    Raises:
        InputError: an input cannot be read.

    """
    stages = Stages(recipe, model)
    pattern = control_pattern(model.control)
    files = _read(recipe, num_rows)
    for each in files:
        for batch in each.batches:
            if pattern is not None:
                for sample in batch.samples:
                    each.control.update(_typed(sample, pattern))
            with overruns_at(functools.partial(_named, each.path)):
                _count(each, stages, batch)
    return SourceRows(
        files=tuple(files),
        num_kept_given=tuple(each.num_kept for each in files) if given == recipe else _kept(given, files),
    )


def find_in_rows(rows: SourceRows, recipe: Recipe, subject: Subject | None, *, assumed: bool) -> Iterator[LintFinding]:
    """Findings on rows that went through the stages under `recipe`; `assumed`: it has keys the user did not give."""
    under = ", with the keys assumed" if assumed else ""
    rejected, num_rows = rows.counted("rejected"), rows.total("num_rows")
    if rejected:
        some = bool(rows.total("num_kept"))
        yield LintFinding(
            code="rows_rejected",
            message=f"{f'{rejected.total():,} of' if some else 'all'} {_rows(num_rows)} looked at are rejected{under}",
            examples=tuple(
                Example(label=f"{count:,} {code}", text=each.first[code])
                for each in rows.files
                for code, count in each.rejected.most_common()
            ),
            hint=_rejected_hint(rejected, recipe),
            level="warning" if some else "error",
        )
    if rows.price > 1:
        asks = recipe.supervision.history_rewrite is None and rows.price > LIMIT
        yield LintFinding(
            code="rows_price",
            message=f"rewritten history: the rows looked at take {rows.price:.2f} times the tokens of their last "
            f"documents{under}" + (f"; above {LIMIT:g} a build stops and asks" if asks else ""),
            examples=tuple(
                Example(label=each.name, text=f"{_ratio(each.num_tokens, each.num_last_tokens):.2f} times")
                for each in rows.files
                if len(rows.files) > 1
            ),
            hint=_cheaper(subject) if asks else None,
            level="warning" if asks else "note",
        )
    control = rows.counted("control")
    if control:
        counts = ", ".join(f"'{token}' in {count:,}" for token, count in control.most_common())
        yield LintFinding(
            code="rows_control_tokens",
            message=f"rows hold the text of control tokens: {counts}; outside answers it is encoded as ordinary text, "
            "in an answer it rejects the row",
            hint="supervision.control_tokens says so: reject rejects all such rows, allow keeps them all as text",
        )


def verdict(rows: SourceRows, recipe: Recipe, *, ok: bool, begins: bool) -> str:
    """What a build of the recipe as given would give.

    Args:
        rows: of its inputs; none where none were looked at.
        recipe: as given.
        ok: there is no error.
        begins: a build gets as far as its first row.

    """
    if not begins or (rows.files and rows.num_kept_given is None):
        return "a build would refuse this template before its first row"
    if not rows.files:
        return "plain chats can be built" if ok else "no plain chat can be built as the recipe is"
    num_kept, num_rows = sum(rows.num_kept_given or ()), rows.total("num_rows")
    if not num_kept:
        return f"a build would keep nothing of the {_rows(num_rows)} looked at"
    if recipe.supervision.history_rewrite is None and rows.price > LIMIT:
        return "a build would stop and ask about rewritten history (supervision.history_rewrite)"
    return f"a build keeps {num_kept:,} of the {_rows(num_rows)} looked at"


def _read(recipe: Recipe, num_rows: int) -> list[FileRows]:
    inputs = [entry for _, entry in open_inputs(resolve_sources(recipe), recipe, Silent().note)]
    names = Counter(PurePosixPath(entry.name).name for entry in inputs)
    files = []
    for entry in inputs:
        rows = list(islice(entry.rows(), num_rows + 1))
        batches = [row.batch for row in rows[:num_rows]]
        files.append(
            FileRows(
                path=entry.name,
                name=_name(entry.name, names),
                schema=entry.schema,
                batches=[_joined(batches[i : i + _BATCH_ROWS]) for i in range(0, len(batches), _BATCH_ROWS)],
                num_rows=len(batches),
                is_whole=len(rows) <= num_rows,
            )
        )
    return files


def _joined(batches: Sequence[RowBatch]) -> RowBatch:
    return RowBatch(
        samples=tuple(sample for batch in batches for sample in batch.samples),
        rejections=tuple(rejection for batch in batches for rejection in batch.rejections),
        num_rows=sum(batch.num_rows for batch in batches),
    )


def _named(path: str, row: int) -> str:
    return path if row < 0 else f"{path} (row {row})"


def _name(path: str, names: Mapping[str, int]) -> str:
    name = PurePosixPath(path).name
    return name if names[name] == 1 else path


def _count(each: FileRows, stages: Stages, batch: RowBatch) -> None:
    done = stages.run(batch)
    documents = done.documents
    for rejection in done.rejections:
        each.rejected[rejection.code] += 1
        each.first.setdefault(rejection.code, f"{each.name}:{rejection.row}: {rejection.reason}")
    each.num_kept += len(set(documents.sample.tolist()))
    each.num_turns += len(documents.run_start)
    each.num_tokens += len(documents.input_ids)
    each.num_last_tokens += last_tokens(documents) if documents.num_documents else 0


def _kept(given: Recipe, files: Sequence[FileRows]) -> tuple[int, ...] | None:
    """Rows of each file that the recipe as given keeps; None where its template is refused."""
    try:
        stages = Stages(given, load_recipe_model(given))
    except TemplateError:
        return None
    return tuple(sum(len(set(stages.run(batch).documents.sample.tolist())) for batch in each.batches) for each in files)


def _rejected_hint(rejected: Mapping[str, int], recipe: Recipe) -> str:
    """What a build says of the most frequent code; of losses all kinds that were seen are allowed."""
    lost = [code.removeprefix("dropped_") for code in rejected if code.startswith("dropped_")]
    code = max(rejected, key=lambda each: rejected[each])
    return rejection_hint(code, allowed=(*recipe.supervision.allow_dropped, *lost))


def _cheaper(subject: Subject | None) -> str:
    """The values of supervision.history_rewrite, and a stop token that makes them needless."""
    ways = []
    if subject is not None and (stop := ending_stop(subject)) is not None:
        ways.append(f"{stop} makes the token that ends a turn a stop token, and nothing is rewritten")
    ways += [
        f"{AS_RENDERED} learns earlier answers as history shows them, where only an empty reasoning block is gone",
        f"{EXACT} takes it as it is",
        f"{LAST} learns only the last document of each conversation",
    ]
    return "; or ".join(ways)


def _ratio(tokens: int, last: int) -> float:
    return tokens / last if last else 1.0


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _typed(sample: Sample, pattern: re.Pattern[str]) -> set[str]:
    """Control tokens whose text a row holds."""
    fields = [typed_fields(message.fields) for message in sample.messages]
    texts = texts_in([fields, sample.tools, sample.template_kwargs, sample.prompt, sample.text])
    return {found for text in texts for found in pattern.findall(text)}
