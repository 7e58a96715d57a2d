"""Checks of a cache's rows: what to find out before training from it."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from packer.audit import CodedFinding, Example, Findings
from packer.audit.check.row_checks import CheckResult, RowFacts, checked, compare_rows, read_facts
from packer.audit.input_parts import InputPart, SourceRoots, read_inputs
from packer.batches import Sample
from packer.curate.texts import utterances
from packer.display import Progress, Silent
from packer.literals import common_length
from packer.pipeline.workers.executor import Processes, Workers
from packer.pipeline.workers.ray_workers import ray_workers
from packer.recipe.recipe import Recipe, make_recipe
from packer.store.cache import Cache
from packer.store.manifest import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(Findings):
    """The result of :func:`packer.audit.check`; docs/how-to/check.md explains each code."""

    folder: Path
    fingerprint: str
    findings: tuple[CodedFinding, ...]
    """One for each check, in their order, also of those that found nothing."""


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
        sources: what the names of its inputs are below; see :mod:`packer.audit.input_parts`. By default no
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
    on_workers = nullcontext(Processes(jobs)) if on is None else ray_workers(on, jobs, progress.note)
    with Cache.open(folder) as cache, on_workers as workers:
        inputs = cache.manifest.inputs
        recipe = make_recipe(cache.manifest.recipe, where="the manifest's recipe")
        trained = _trained_on({name: len(cache.documents(name)) for name in cache.splits("documents")})
        roots = SourceRoots.of(sources)
        parts, missing = _find_inputs(inputs, recipe.partition_bytes, roots, workers, progress)
        checks = [_check_inputs(parts, missing, len(inputs), roots)]
        if parts:
            most = recipe.rows.max_bytes
            facts = read_facts(cache, parts, workers, progress, near=near, trained=trained, max_row_bytes=most)
            checks += _with_texts(compare_rows(facts), facts, parts, most)
        checks.append(_check_mask(recipe, inputs))
        return CheckReport(folder=cache.folder, fingerprint=cache.fingerprint, findings=tuple(checks))


def _find_inputs(
    inputs: Sequence[Input], partition_bytes: int, roots: SourceRoots, workers: Workers, progress: Progress
) -> tuple[list[InputPart], list[tuple[str, str]]]:
    """Return the partitions of the unchanged inputs; for each other input its path, and why it cannot be used."""
    if not roots:
        return [], [(entry.path, "") for entry in inputs]
    found = read_inputs(inputs, partition_bytes, roots, workers, progress)
    parts = [part for own in found if not isinstance(own, str) for part in own]
    return parts, [(entry.path, own) for entry, own in zip(inputs, found, strict=True) if isinstance(own, str)]


def _check_inputs(
    parts: Sequence[InputPart], missing: Sequence[tuple[str, str]], number: int, roots: SourceRoots
) -> CodedFinding:
    if not roots:
        return CodedFinding(
            code="inputs",
            level="skipped",
            message="no row was compared with another: --sources . reads the inputs again that are below this folder",
        )
    if not missing:
        return CodedFinding(code="inputs", level="ok", message="every input is unchanged since the build")
    named = "; ".join(f"{path}: {why}" for path, why in missing[:3])
    more = f"; and {len(missing) - 3} more" if len(missing) > 3 else ""
    left_out = "" if parts else "; not checked without them: copies, prompts, near copies"
    return CodedFinding(
        code="inputs",
        level="warning" if parts else "skipped",
        message=f"{len(missing)} of {number} inputs cannot be compared: {named}{more}{left_out}",
        hint="names are looked up from the current folder and below --sources; rows of these inputs were compared with "
        "no other",
    )


def _with_texts(
    results: Sequence[CheckResult], facts: RowFacts, parts: Sequence[InputPart], max_row_bytes: int
) -> list[CodedFinding]:
    """Return the checks with pairs of rows as examples, one below the other, whose texts are read again.

    Differences are marked if they are a small part.
    """
    wanted = {facts.place(row) for _, pairs in results for pair in pairs for row in pair[:2]}
    samples = {
        (part.source, row): sample
        for part in parts
        for row, sample in part.samples({row for source, row in wanted if source == part.source}, max_row_bytes)
    }

    def shown(first: int, second: int, similarity: float) -> tuple[Example, ...]:
        places = facts.place(first), facts.place(second)
        texts = [_text(samples[place]) if place in samples else "" for place in places]
        start = common_length(*texts)
        end = common_length(*(text[start:][::-1] for text in texts))
        is_small = 2 * (start + end) >= max(map(len, texts)) and texts[0] != texts[1]
        alike = ("", "" if similarity == 1 else f", {similarity:.2f} alike")
        return tuple(
            Example(
                label=f"{facts.splits[int(facts.split[row])]} {facts.files[source]}:{number}{more}",
                text=text,
                mark=(start, len(text) - end) if is_small else None,
            )
            for row, (source, number), text, more in zip((first, second), places, texts, alike, strict=True)
        )

    return [
        replace(found, examples=tuple(example for pair in pairs for example in shown(*pair)))
        for found, pairs in results
    ]


def _text(sample: Sample) -> str:
    """Return the texts of a row's messages; for a pretokenized row, its ids as numbers."""
    if sample.pretokenized is None:
        return "\n".join(text for _, text in utterances(sample))
    return " ".join(map(str, sample.pretokenized.input_ids.tolist()))


def _trained_on(sizes: dict[str, int]) -> tuple[str, ...]:
    """Return the splits whose names begin with `train`; if there are none, the largest split."""
    named = tuple(name for name in sizes if name.startswith("train"))
    return named or tuple(sorted(sizes, key=lambda name: -sizes[name])[:1])


def _check_mask(recipe: Recipe, inputs: Sequence[Input]) -> CodedFinding:
    """Say by which rule tokens are trained."""
    own, usual = (each.documents_half()["supervision"] for each in (recipe, Recipe()))
    rule = {key: own[key] for key in own if key == "turns" or own[key] != usual.get(key)}
    named = (
        f"supervision.{key}: {each if isinstance(each, str) else ' and '.join(each)}" for key, each in rule.items()
    )
    said = {"text": "of texts, every token", "tokens": "of rows of ids, as they say", "": ", ".join(named)}
    schemas = {entry.schema if entry.schema in said else "" for entry in inputs}
    return checked("loss_mask", "; ".join(said[each] for each in sorted(schemas)), None)
