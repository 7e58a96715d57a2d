"""Why a row is not in a cache: the rule, and the row or the question it lost to, with both texts."""

from dataclasses import dataclass

import numpy as np

from packer.audit.check.check_report import RowPair, RowText
from packer.audit.input_parts import cut_input, read_samples
from packer.audit.view import find_inputs
from packer.curate.row_words import said
from packer.errors import PackerError, UsageError
from packer.pipeline.benchmarks import read_rule
from packer.pipeline.selecting import RowPlaces
from packer.recipe import Recipe, make_recipe
from packer.rejections import ROW_REASONS
from packer.store.cache import Cache
from packer.store.rejected import read_rejected
from packer.store.selected import read_selection


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyView:
    """What was decided of one row."""

    row: RowText
    """Its split is empty where it is in none."""

    code: str | None
    """None where the row is in the cache."""

    reason: str | None
    lost_to: RowPair | None
    """The row beside the one it lost to, or beside the question of a benchmark that it holds."""


def why(cache: Cache, source: str, row: int) -> WhyView:
    """Find out why a row is not in a cache, or in which split it is.

    The texts come from the inputs, where they are still what was built from; else they are empty.

    Args:
        cache: an open cache.
        source: the input as the manifest names it, or the end of that path.
        row: from 0.

    Raises:
        UsageError: no such input or row, or several inputs end so.
        CheckError: something is damaged.

    """
    manifest = cache.manifest
    recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
    number = find_inputs(
        [entry.path for entry in manifest.inputs], source, missing=f"{cache.folder} has no '{source}'"
    )[0]
    entry = manifest.inputs[number]
    if not 0 <= row < entry.num_rows:
        raise UsageError(f"no row {row} in {entry.path}", hint=f"rows are numbered 0 to {entry.num_rows - 1}")
    line = next(
        (each for each in read_rejected(cache.folder, manifest) if (each.source, each.row) == (entry.path, row)), None
    )
    own = _text(cache, recipe, number, row)
    if line is None or own.split:
        return WhyView(row=own, code=None, reason=None, lost_to=None)
    by_rule = manifest.selection is not None and line.code in ROW_REASONS
    lost_to = _lost_to(cache, recipe, number, own, line.code) if by_rule else None
    return WhyView(row=own, code=line.code, reason=line.reason, lost_to=lost_to)


def _lost_to(cache: Cache, recipe: Recipe, source: int, own: RowText, code: str) -> RowPair | None:
    """A row that a rule leaves out beside the row or the question it lost to; None where there is none."""
    manifest = cache.manifest
    assert manifest.selection is not None, "a rule leaves the row out"
    places = RowPlaces(manifest.inputs, [shard for shard in manifest.shards if shard.kind == "documents"])
    rows, place = read_selection(cache.folder, manifest.selection), places.number(source, own.row)
    kept = int(rows.kept[place])
    if kept < 0:
        return None
    other = _question(recipe, kept) if code == "contaminated" else _text(cache, recipe, *places.of(kept))
    return RowPair(first=own, second=other, similarity=float(rows.similarity[place]))


def _text(cache: Cache, recipe: Recipe, source: int, row: int) -> RowText:
    """A row with the split it is in."""
    entry = cache.manifest.inputs[source]
    splits = [
        name
        for name in cache.splits("documents")
        for sources, rows in [cache.documents(name).origins()]
        if np.any((sources == source) & (rows == row))
    ]
    try:
        parts = cut_input(entry, source, recipe.partition_bytes)
    except PackerError:
        parts = ()
    samples = [sample for _, sample in read_samples(parts, [(source, row)], recipe.rows.max_bytes)]
    text = "\n".join(text for sample in samples for _, text in said(sample))
    return RowText(input=entry.path, row=row, split="".join(splits[:1]), text=text)


def _question(recipe: Recipe, number: int) -> RowText:
    assert recipe.decontaminate is not None, "a question was found"
    for rule in recipe.decontaminate.against:
        if number < (rule.questions or 0):
            found = read_rule(rule)
            return RowText(input=found.path, row=number, split=found.name, text=found.questions[number])
        number -= rule.questions or 0
    raise IndexError(number)
