"""What a selection comes to: rows of each split, what each rule leaves out, and which rules look wrong."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer.batches import Int32, SelectedRows
from packer.recipe import make_recipe
from packer.rejections import CODES, ROW_REASONS
from packer.row_rules import RowRules, Shares, named_rule
from packer.store.manifest import Manifest
from packer.store.selected import read_selection

GREEDY = 0.3
"""A filter that leaves out more of a source than this is worth a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRows:
    """A split."""

    split: str
    rows: int
    share: float
    """Share of the rows of all splits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRows:
    """What one rule leaves out."""

    code: str
    rule: str | None
    """The filter, or the condition of a source; None where the code has one rule."""

    rows: int
    share: float
    """Share of the rows that have documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport:
    """Which rows a cache has."""

    splits: tuple[SplitRows, ...]
    left_out: tuple[RuleRows, ...]
    """In the order in which rules are asked; filters that leave out none too."""

    warnings: tuple[str, ...]

    @property
    def num_left_out(self) -> int:
        """Rows that rules leave out."""
        return sum(each.rows for each in self.left_out)


def row_report(folder: Path, manifest: Manifest) -> RowReport | None:
    """Count the rows of a cache by split and by rule; None where its recipe has no rules about rows.

    Raises:
        CheckError: the selection is damaged.
        RecipeError: the manifest's recipe is none.

    """
    if manifest.selection is None:
        return None
    rows, rules = read_selection(folder, manifest.selection), make_recipe(manifest.recipe).row_rules
    source = sources_of_rows(manifest)
    counts, used = (
        np.bincount(rows.split[rows.split >= 0], minlength=len(rows.splits)),
        max(1, int((rows.split >= 0).sum())),
    )
    return RowReport(
        splits=tuple(
            SplitRows(split=name, rows=count, share=count / used)
            for name, count in zip(rows.splits, counts.tolist(), strict=True)
        ),
        left_out=tuple(_left_out(rows, rules.names)),
        warnings=(*_of_filters(rows, rules, source), *_of_splits(rows, rules), *_of_near_copies(rows)),
    )


def sources_of_rows(manifest: Manifest) -> Int32:
    """The recipe's source of each row, numbered as in a selection; 0 where there is none.  # int32[N]"""
    shards = [shard for shard in manifest.shards if shard.kind == "documents"]
    parts = [0 if shard.source is None else manifest.inputs[shard.source].part or 0 for shard in shards]
    return np.repeat(np.array(parts, np.int32), [shard.num_input_rows for shard in shards])


def _left_out(rows: SelectedRows, names: Sequence[str]) -> list[RuleRows]:
    known = max(1, int(((rows.split >= 0) | (rows.reason > 0)).sum()))
    by_rule = [int((rows.detail == number).sum()) for number in range(len(names))]
    by_code = np.bincount(rows.reason, minlength=len(ROW_REASONS) + 1)[1:].tolist()
    found: list[tuple[str, str | None, int]] = [
        ("filtered", name, count) for name, count in zip(names, by_rule, strict=True)
    ]
    found += [
        (code, None, count) for code, count in zip(ROW_REASONS, by_code, strict=True) if count and code != "filtered"
    ]
    return [RuleRows(code=code, rule=rule, rows=count, share=count / known) for code, rule, count in found]


def _of_filters(rows: SelectedRows, rules: RowRules, source: Int32) -> list[str]:
    """Rules that leave out nothing, or much of a source: a wrong field or pattern looks like this."""
    names, known = rules.names, (rows.split >= 0) | (rows.reason > 0)
    of_source = np.bincount(source[known], minlength=len(rules.where))
    warnings = []
    for number, name in enumerate(names):
        counts = np.bincount(source[rows.detail == number], minlength=len(of_source))
        if not counts.any():
            warnings.append(f"{named_rule(name)} leaves out no row")
        warnings += [
            f"{named_rule(name)} leaves out {count / whole:.0%} of sources[{i}], {count:,} of {whole:,} rows"
            for i, (count, whole) in enumerate(zip(counts.tolist(), of_source.tolist(), strict=True))
            if count > GREEDY * whole
        ]
    return warnings


def _of_splits(rows: SelectedRows, rules: RowRules) -> Iterator[str]:
    """Splits that were asked for and have no row, and fields in which many rows have nothing."""
    split = rules.split
    if split is None:
        return
    asked = split.cutoffs if split.shares == Shares() else split.shares
    yield from (
        f"split '{name}' has no row"
        for name in ("validation", "test")
        if getattr(asked, name) and name not in rows.splits
    )
    known = int(((rows.split >= 0) | (rows.reason > 0)).sum())
    for code in ("no_group", "no_time"):
        count = int((rows.reason == 1 + ROW_REASONS.index(code)).sum())
        if count > GREEDY * known:
            yield f"{count:,} of {known:,} rows are left out as {code}: {CODES[code]}"


def _of_near_copies(rows: SelectedRows) -> Iterator[str]:
    """Rows of one template, of which each is compared with the first ones alone."""
    if rows.num_capped:
        yield (
            "near copies: rows that share a template with more than 64 others were compared with the first 64 of them "
            "alone; some that are nearly the same may have stayed"
        )
