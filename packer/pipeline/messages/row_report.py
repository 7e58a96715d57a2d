"""Report on a selection: rows of each split, rows that each rule leaves out, and rules that look wrong."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer.batches import Int32, SelectedRows
from packer.display import aligned, number, percent, plural
from packer.pipeline.selecting import sources_of_rows
from packer.recipe.recipe import make_recipe
from packer.recipe.row_rules import RowRules, named_rule
from packer.rejections import CODES, ROW_REASONS
from packer.store.manifest import Manifest
from packer.store.row_tables import read_selection

GREEDY = 0.3
"""Share of a source's rows; a filter that leaves out more is worth a warning."""

OFTEN_FOUND = 0.97
"""Probability with which near copies of the lowest similarity that counts are found; less is worth a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRows:
    """Number of rows that one rule leaves out."""

    code: str
    rule: str | None
    """The filter, or the condition of a source; None for codes with a single rule."""

    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport:
    """Number of rows in each split, rows that rules leave out, and warnings about the rules."""

    splits: Mapping[str, int]
    left_out: tuple[RuleRows, ...]
    """In the order in which rules are applied, including filters that leave out no row."""

    warnings: tuple[str, ...]

    @property
    def num_left_out(self) -> int:
        """Number of rows that rules leave out."""
        return sum(each.rows for each in self.left_out)

    def warning_lines(self) -> Iterator[str]:
        yield from (f"warning: {warning}" for warning in self.warnings)

    def split_lines(self) -> Iterator[str]:
        """Yield the number of rows in each split."""
        yield "rows of each split"
        whole = max(1, sum(self.splits.values()))
        yield from aligned("<>>", [(name, number(rows), percent(rows / whole)) for name, rows in self.splits.items()])

    def rule_lines(self, num_rows: int, *, listed: str) -> Iterator[str]:
        """Yield how many of the inputs' rows each rule leaves out."""
        if self.left_out:
            yield f"left out by rules: {number(self.num_left_out)} of {plural(num_rows, 'row')}; {listed}"
            shares = [(each, percent(each.rows / max(num_rows, 1))) for each in self.left_out]
            yield from aligned(
                ">><<", [(number(each.rows), share, each.code, each.rule or "") for each, share in shares]
            )


def row_report(folder: Path, manifest: Manifest) -> RowReport | None:
    """Count the rows of a cache by split and by rule; None if its recipe has no rules about rows."""
    if manifest.selection is None:
        return None
    rows, rules = read_selection(folder, manifest.selection), make_recipe(manifest.recipe).row_rules
    counts = np.bincount(rows.split[rows.split >= 0], minlength=len(rows.splits))
    return RowReport(
        splits=dict(zip(rows.splits, counts.tolist(), strict=True)),
        left_out=tuple(_left_out(rows, rules.names)),
        warnings=(
            *_of_filters(rows, rules, sources_of_rows(manifest.inputs, manifest.document_shards)),
            *_of_splits(rows, rules, manifest),
            *_of_near_copies(rows, rules),
        ),
    )


def _left_out(rows: SelectedRows, names: Sequence[str]) -> Iterator[RuleRows]:
    by_rule = np.bincount(rows.detail[rows.detail >= 0], minlength=len(names)).tolist()
    by_code = np.bincount(rows.reason, minlength=len(ROW_REASONS) + 1)[1:].tolist()
    for rule, count in zip(names, by_rule, strict=True):
        yield RuleRows(code="filtered", rule=rule, rows=count)
    for code, count in zip(ROW_REASONS, by_code, strict=True):
        if count and code != "filtered":
            yield RuleRows(code=code, rule=None, rows=count)


def _of_filters(rows: SelectedRows, rules: RowRules, source: Int32) -> list[str]:
    """Warn about rules that leave out no row, or much of a source, which suggests a wrong field or pattern."""
    names, known = rules.names, (rows.split >= 0) | (rows.reason > 0)
    of_source = np.bincount(source[known], minlength=len(rules.where))
    warnings = []
    for rule, name in enumerate(names):
        counts = np.bincount(source[rows.detail == rule], minlength=len(of_source))
        if not counts.any():
            warnings.append(f"{named_rule(name)} leaves out no row")
        warnings += [
            f"{named_rule(name)} leaves out {count / whole:.0%} of sources[{i}], {count:,} of {whole:,} rows"
            for i, (count, whole) in enumerate(zip(counts.tolist(), of_source.tolist(), strict=True))
            if count > GREEDY * whole
        ]
    return warnings


def _of_splits(rows: SelectedRows, rules: RowRules, manifest: Manifest) -> Iterator[str]:
    """Warn about requested splits without rows, and about a group or time field that many rows lack."""
    split = rules.split
    if split is None:
        return
    asked = [name for name in ("validation", "test") if getattr(split.shares, name) or getattr(split.cutoffs, name)]
    has_train = any(shard.split == "train" for shard in manifest.document_shards)
    for name in (*["train"] * has_train, *asked):
        if name not in rows.splits:
            yield f"split '{name}' has no row"
    if split.leakage is not None and "train" not in {shard.split for shard in manifest.shards}:
        yield (
            "split.leakage leaves out rows of the split 'train' alone, and no source has it: sources.split: train "
            "names what is trained on"
        )
    known = int(((rows.split >= 0) | (rows.reason > 0)).sum())
    for code in ("no_group", "no_time"):
        count = int((rows.reason == 1 + ROW_REASONS.index(code)).sum())
        if count > GREEDY * known:
            yield f"{count:,} of {known:,} rows are left out as {code}: {CODES[code]}"


def _of_near_copies(rows: SelectedRows, rules: RowRules) -> Iterator[str]:
    """Warn about near copies that may have stayed: below a low threshold, or among many rows of one template."""
    from packer.curate.signatures import chance_of_comparison  # noqa: PLC0415 - not loaded by builds without rules

    limits = {}
    if rules.deduplicate is not None and rules.deduplicate.near is not None:
        limits["deduplicate.near.jaccard"] = rules.deduplicate.near.jaccard
    if rules.split is not None and rules.split.leakage is not None:
        limits["split.leakage.near"] = rules.split.leakage.near
    for key, limit in limits.items():
        if (chance := chance_of_comparison(limit)) < OFTEN_FOUND:
            yield (
                f"{key} {limit:g}: of rows that are just so much alike {chance:.0%} are found, from 0.8 on nearly all; "
                "some below that may have stayed"
            )
    if rows.num_capped:
        yield (
            "near copies: rows that share a template with more than 64 others were compared with the first 64 of them "
            "alone; some that are nearly the same may have stayed"
        )
