"""Checks of a cache's rows: what to find out before training from it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from packer.audit.check import record_checks, row_checks
from packer.audit.check.check_report import Check, CheckReport, RowPair, RowText
from packer.audit.check.row_checks import BENCHMARK, NEAR_BETWEEN, CheckResult
from packer.audit.check.row_facts import (
    RowFacts,
    Rows,
    facts_of,
    read_parts,
    read_rows_at,
    splits_of,
    trained_on,
)
from packer.audit.input_parts import InputPart, cut_input, map_inputs
from packer.batches import Sample
from packer.curate.contamination import Questions
from packer.curate.texts import utterances
from packer.errors import PackerError
from packer.pipeline.plan.benchmarks import BenchmarkQuestions
from packer.pipeline.plan.source_roots import SourceRoots
from packer.pipeline.workers.executor import Workers
from packer.pipeline.workers.ray_workers import workers_on
from packer.progress import Progress, Silent
from packer.recipe.recipe import make_recipe
from packer.source.files import STANDARD_INPUT
from packer.store.cache import Cache
from packer.store.manifest import Input

_PIPE = "it was standard input, and its rows are not piped in"
_ROW_CHECKS = ("copies", "prompts", "near copies", "benchmarks")


def check(
    folder: Path | str,
    *,
    sources: str | Path | Iterable[str | Path] = (),
    near: bool = False,
    against: Sequence[BenchmarkQuestions] = (),
    jobs: int | None = None,
    on: str | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Check which rows a cache has, and in which splits.

    Rows are compared by reading the inputs again, where `sources` says that they may be read. Checks that need an input
    that is not there, is missing or has changed are skipped, and the report says so. Nothing is written.

    Args:
        folder: the cache.
        sources: what the names of its inputs are below; see :mod:`packer.pipeline.plan.source_roots`. By default no
            input is read.
        near: also look for near duplicates, by word shingles.
        against: benchmarks whose questions must not be among the rows.
        jobs: processes that read rows; by default as many as are worthwhile.
        on: a Ray cluster to read inputs on, as for :func:`packer.build`; the facts of their rows are returned to this
            process.
        progress: receives progress; counts bytes of inputs, then rows.

    Raises:
        InputError: not a cache; or an input changed while it was read.
        CheckError: the manifest or a document shard is damaged.
        RecipeError: the manifest's recipe is invalid.
        StorageError: a file cannot be read.
        WorkerDiedError: a process was killed.
    """
    progress = progress or Silent()
    with Cache.open(folder) as cache, workers_on(on, jobs, progress.note) as workers:
        manifest, splits = cache.manifest, cache.splits("documents")
        recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
        trained = trained_on({name: len(cache.documents(name)) for name in splits})
        roots = SourceRoots.of(sources)
        parts, missing = _find_inputs(manifest.inputs, recipe.partition_bytes, roots, workers, progress)
        checks: list[Check | None] = [_check_inputs(parts, missing, len(manifest.inputs), roots)]
        if parts:
            search = _Search(parts, recipe.rows.max_bytes, near=near, against=against)
            progress.stage("rows", sum(part.partition.num_rows for part in parts), "rows")
            rows = search.read(workers, progress)
            files = [entry.path for entry in manifest.inputs]
            checks += search.checks(facts_of(rows, splits_of(cache, rows), files=files, splits=splits, trained=trained))
        checks += [
            record_checks.check_sizes(cache, recipe, trained),
            record_checks.check_lengths(cache, trained),
            record_checks.check_groups(cache, recipe),
        ]
        return CheckReport(
            folder=cache.folder,
            fingerprint=cache.fingerprint,
            checks=tuple(each for each in checks if each is not None),
        )


def _find_inputs(
    inputs: Sequence[Input], partition_bytes: int, roots: SourceRoots, workers: Workers, progress: Progress
) -> tuple[list[InputPart], list[tuple[str, str]]]:
    """Return the partitions of the unchanged inputs; for each other input its path, and why it cannot be used."""
    if not roots:
        return [], [(entry.path, "") for entry in inputs]
    found = map_inputs(partial(_parts_of, partition_bytes, roots), inputs, workers, progress)
    parts = [part for own in found if not isinstance(own, str) for part in own]
    return parts, [(entry.path, own) for entry, own in zip(inputs, found, strict=True) if isinstance(own, str)]


def _parts_of(partition_bytes: int, roots: SourceRoots, task: tuple[int, Input]) -> tuple[InputPart, ...] | str:
    """Partition an input, or return the reason why it cannot be."""
    source, entry = task
    try:
        return cut_input(entry, source, partition_bytes, roots)
    except PackerError as error:
        return _PIPE if entry.path == STANDARD_INPUT else error.message.removeprefix(f"{entry.path}: ")


def _check_inputs(
    parts: Sequence[InputPart], missing: Sequence[tuple[str, str]], number: int, roots: SourceRoots
) -> Check:
    if not roots:
        return Check(
            code="inputs",
            level="skipped",
            message="no row was compared with another: --sources . reads the inputs again that are below this folder",
        )
    if not missing:
        return Check(code="inputs", level="ok", message="every input is unchanged since the build")
    named = "; ".join(f"{path}: {why}" for path, why in missing[:3])
    more = f"; and {len(missing) - 3} more" if len(missing) > 3 else ""
    left_out = "" if parts else f"; not checked without them: {', '.join(_ROW_CHECKS)}"
    return Check(
        code="inputs",
        level="warning" if parts else "skipped",
        message=f"{len(missing)} of {number} inputs cannot be compared: {named}{more}{left_out}",
        hint="names are looked up from the current folder and below --sources; rows of these inputs were compared with "
        "no other",
    )


class _Search:
    """Reads rows from parts of files, and compares them with each other and with the questions of benchmarks."""

    def __init__(
        self, parts: Sequence[InputPart], max_row_bytes: int, *, near: bool, against: Sequence[BenchmarkQuestions]
    ) -> None:
        self._parts, self._max_row_bytes, self._near, self._against = parts, max_row_bytes, near, against
        self._questions = Questions([each.questions for each in against]) if against else None

    def read(self, workers: Workers, progress: Progress) -> Rows:
        """Read all rows."""
        return read_parts(self._parts, self._max_row_bytes, self._questions, workers, progress, near=self._near)

    def checks(self, facts: RowFacts) -> list[Check]:
        """Compare the rows that are in a split; the results include the texts of example rows."""
        found = [each for each in (*self._compare(facts), *self._benchmarks(facts)) if each is not None]
        rows = {first for _, pairs in found for first, _, _ in pairs}
        rows |= {second for check, pairs in found for _, second, _ in pairs if check.code != BENCHMARK}
        samples = read_rows_at(self._parts, {facts.place(row) for row in rows}, self._max_row_bytes)
        questions = [
            RowText(input=each.path, row=row, split=each.name, text=question)
            for each in self._against
            for row, question in enumerate(each.questions)
        ]

        def shown(row: int, check: Check) -> RowText:
            source, number = place = facts.place(row)
            texts = _texts(samples[place]) if place in samples else []
            prompt = [text for role, text in texts if role == "user"][:1] if check.code == NEAR_BETWEEN else []
            return RowText(
                input=facts.files[source],
                row=number,
                split=facts.splits[int(facts.split[row])],
                text="\n".join(prompt or [text for _, text in texts]),
            )

        return [
            replace(
                check,
                pairs=tuple(
                    RowPair(
                        first=shown(first, check),
                        second=questions[second] if check.code == BENCHMARK else shown(second, check),
                        similarity=similarity,
                    )
                    for first, second, similarity in pairs
                ),
            )
            for check, pairs in found
        ]

    def _compare(self, facts: RowFacts) -> Iterator[CheckResult | None]:
        near = self._near
        if near and facts.conversations is not None and not len(facts.conversations.shingles):
            message, near = "rows that bring their ids have no words to compare", False
            yield Check(code="near_copies", level="skipped", message=message), ()
        if len(facts.splits) > 1:
            yield from row_checks.between_splits(facts, near=near)
        yield row_checks.copies_within(facts)
        if near:
            yield row_checks.near_within(facts)

    def _benchmarks(self, facts: RowFacts) -> Iterator[CheckResult]:
        if self._questions is None:
            return
        first = 0
        for asked, counted in zip(self._against, self._questions.counted, strict=True):
            yield row_checks.benchmark(facts, asked, counted, first, self._questions.num_alike)
            first += len(asked.questions)


def _texts(sample: Sample) -> list[tuple[str, str]]:
    """Return role and text of each message of a row; for a pretokenized row, its ids as numbers."""
    if sample.pretokenized is None:
        return list(utterances(sample))
    return [("", " ".join(map(str, sample.pretokenized.input_ids.tolist())))]
