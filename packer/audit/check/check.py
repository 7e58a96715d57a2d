"""Checks of a cache's rows: what to find out before training from it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from packer.arrow_arrays import numbers_of
from packer.audit.check.check_report import Check, CheckReport, RowPair, RowText
from packer.audit.check.row_checks import NEAR_BETWEEN, CheckResult, compare_rows
from packer.audit.check.row_facts import RowFacts, read_facts
from packer.audit.input_parts import InputPart, cut_input, map_inputs
from packer.batches import Sample
from packer.curate.texts import utterances
from packer.errors import PackerError
from packer.pipeline.plan.source_roots import SourceRoots
from packer.pipeline.selecting import read_traits
from packer.pipeline.workers.executor import Workers
from packer.pipeline.workers.ray_workers import workers_on
from packer.progress import Progress, Silent
from packer.recipe.recipe import Recipe, make_recipe
from packer.store.cache import Cache
from packer.store.manifest import Input
from packer.store.selected import read_selection


def check(
    folder: Path | str,
    *,
    sources: str | Path | Iterable[str | Path] = (),
    near: bool = False,
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
        inputs = cache.manifest.inputs
        recipe = make_recipe(cache.manifest.recipe, where="the manifest's recipe")
        trained = _trained_on({name: len(cache.documents(name)) for name in cache.splits("documents")})
        roots = SourceRoots.of(sources)
        parts, missing = _find_inputs(inputs, recipe.partition_bytes, roots, workers, progress)
        checks: list[Check | None] = [_check_inputs(parts, missing, len(inputs), roots)]
        if parts:
            most = recipe.rows.max_bytes
            facts = read_facts(cache, parts, workers, progress, trained=trained, max_row_bytes=most, near=near)
            checks += _with_texts(compare_rows(facts), facts, parts, most)
        checks.append(_check_groups(cache, recipe))
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
        return error.message.removeprefix(f"{entry.path}: ")


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
    left_out = "" if parts else "; not checked without them: copies, prompts, near copies"
    return Check(
        code="inputs",
        level="warning" if parts else "skipped",
        message=f"{len(missing)} of {number} inputs cannot be compared: {named}{more}{left_out}",
        hint="names are looked up from the current folder and below --sources; rows of these inputs were compared with "
        "no other",
    )


def _with_texts(
    results: Sequence[CheckResult], facts: RowFacts, parts: Sequence[InputPart], max_row_bytes: int
) -> list[Check]:
    """Return the checks with the texts of their examples, which are read again."""
    wanted = {facts.place(row) for _, pairs in results for pair in pairs for row in pair[:2]}
    samples = {
        (part.source, row): sample
        for part in parts
        for row, sample in part.samples({row for source, row in wanted if source == part.source}, max_row_bytes)
    }

    def shown(row: int, code: str) -> RowText:
        source, number = place = facts.place(row)
        texts = _texts(samples[place]) if place in samples else []
        prompt = [text for role, text in texts if role == "user"][:1] if code == NEAR_BETWEEN else []
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
                RowPair(first=shown(first, check.code), second=shown(second, check.code), similarity=similarity)
                for first, second, similarity in pairs
            ),
        )
        for check, pairs in results
    ]


def _texts(sample: Sample) -> list[tuple[str, str]]:
    """Return role and text of each message of a row; for a pretokenized row, its ids as numbers."""
    if sample.pretokenized is None:
        return list(utterances(sample))
    return [("", " ".join(map(str, sample.pretokenized.input_ids.tolist())))]


def _trained_on(sizes: dict[str, int]) -> tuple[str, ...]:
    """Return the splits whose names begin with `train`; if there are none, the largest split."""
    named = tuple(name for name in sizes if name.startswith("train"))
    return named or tuple(sorted(sizes, key=lambda name: -sizes[name])[:1])


def _check_groups(cache: Cache, recipe: Recipe) -> Check | None:
    """Count groups of `split.group` that are in more than one split; None if the recipe has no such rule."""
    selection = cache.manifest.selection
    if selection is None or recipe.split is None or recipe.split.group is None:
        return None
    traits = read_traits(cache.folder, selection.traits, recipe.row_rules)
    split, group = read_selection(cache.folder, selection).split, numbers_of(traits.column("group_text"))
    known = (split >= 0) & (group != 0)  # rows of other sources need no group
    own = np.unique(np.stack([group[known].view(np.int64), split[known]], axis=1), axis=0)
    values, counts = np.unique(own[:, 0], return_counts=True)
    number = int((counts > 1).sum())
    field = recipe.split.group
    found = f"{number:,} of {len(values):,} values of {field} are in more than one split"
    return Check.of(
        "groups",
        found if number else f"each of {len(values):,} values of {field} is in one split",
        "failure" if number else None,
        count=number,
        hint='sources with a split of their own have rows of these groups, or the field has both 7 and "7"',
    )
