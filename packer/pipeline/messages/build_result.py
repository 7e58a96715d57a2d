"""The result of a build, and its report as lines of text, for the terminal and for Python callers.

Lines that begin with two spaces continue the line before them; a warning begins with `warning:`.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from packer.batches import SelectedRows
from packer.display import aligned, duration, number, one_line, percent, plural, rate
from packer.names import shown
from packer.pipeline.messages.changes import Changes
from packer.pipeline.messages.left_out import RejectedInput, TokenLosses, token_losses
from packer.recipe.recipe import make_recipe
from packer.recipe.row_rules import RowRules, named_rule
from packer.rejections import CODES, ROW_REASONS
from packer.store.cache import Cache, fingerprint
from packer.store.entries import InNoBlock, Totals
from packer.store.files import damage
from packer.store.manifest import Manifest
from packer.store.row_tables import read_selection


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


_CAPPED = (
    "near copies: rows that share a template with more than 64 others were compared with the first 64 of them alone; "
    "some that are nearly the same may have stayed"
)


def row_report(folder: Path, manifest: Manifest) -> RowReport | None:
    """Count the rows of a cache by split and by rule; None if its recipe has no rules about rows."""
    if manifest.selection is None:
        return None
    rows, rules = read_selection(folder, manifest.selection), make_recipe(manifest.recipe).row_rules
    if rows.detail.max(initial=-1) >= len(rules.names):
        raise damage(folder, manifest.selection.table.path, "names a rule that the recipe does not have")
    left_out = tuple(_left_out(rows, rules.names))
    counts = np.bincount(rows.split[rows.split >= 0], minlength=len(rows.splits))
    return RowReport(
        splits=dict(zip(rows.splits, counts.tolist(), strict=True)),
        left_out=left_out,
        warnings=(
            *(f"{named_rule(each.rule)} leaves out no row" for each in left_out if each.rule and not each.rows),
            *_of_splits(rows, rules, manifest),
            *[_CAPPED] * bool(rows.num_capped),
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


def _of_splits(rows: SelectedRows, rules: RowRules, manifest: Manifest) -> Iterator[str]:
    """Warn about requested splits without rows."""
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


WORTH_A_WARNING = 0.01
"""Share of tokens in no block above which a build warns."""

_WORTH_A_LINE = 1.01
"""Least ratio at which the cost of rewritten history gets a line of its own; a smaller one would print as 1.00 times.
"""

_SKIPPED = "answers not trained: they are empty, or the template has no prompt for them"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """The result of a build."""

    folder: Path
    """The cache; for a cache in a bucket, its local folder."""

    manifest: Manifest | None
    """Manifest of the cache; None after a dry run that found work to do."""

    built: bool = False
    """False if the cache was up to date already, and after a dry run."""

    num_partitions_built: int
    num_partitions_reused: int
    left_out: TokenLosses | None = None
    """Tokens that are in no block, or None if they are not worth a warning; None after a dry run that found work to
    do."""

    rejected_inputs: tuple[RejectedInput, ...] = ()
    """Inputs of which all rows, or many, were rejected although others were kept; only after a build."""

    replaced: Changes | None = None
    """What would change about the existing cache; only after a dry run."""

    rows: RowReport | None = None
    """Results of the rules about rows, or None if the recipe has none."""

    settled_keys: tuple[str, ...] = ()
    """A sentence about each key that the recipe left open, the rows of a source need, and the cache's recipe has.
    Empty if nothing had to be planned."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """Time of the consecutive parts: ``plan``, ``documents``, ``rows`` (if there are rules about rows), ``blocks``,
    ``commit``; empty if nothing was built."""

    @classmethod
    def of_cache(cls, folder: Path, manifest: Manifest, *, num_built: int = 0, **more: Any) -> "BuildResult":
        """Describe a finished cache, of whose partitions so many were built."""
        return cls(
            folder=folder,
            manifest=manifest,
            num_partitions_built=num_built,
            num_partitions_reused=len(manifest.document_shards) - num_built,
            left_out=None if InNoBlock.of(manifest.totals).share <= WORTH_A_WARNING else token_losses(folder, manifest),
            rows=row_report(folder, manifest),
            **more,
        )

    @property
    def fingerprint(self) -> str | None:
        """Of the cache; None after a dry run that found work to do."""
        return None if self.manifest is None else fingerprint(self.manifest)

    @property
    def cache(self) -> Cache:
        """The cache, opened."""
        return Cache.open(self.folder)

    def lines(self, seconds: float) -> Iterator[str]:
        """Yield the report of a build that took so long, as lines of text."""
        manifest = self.manifest
        if manifest is None:
            todo = plural(self.num_partitions_built, "partition")
            yield f"would build {todo}, reuse {number(self.num_partitions_reused)}; nothing was written"
            replaced = self.replaced.sentences() if self.replaced else ()
            yield from (*(f"{shown(self.folder)} {each}" for each in replaced), *self.settled_keys)
            return
        rows, listed = self.rows, f"listed in {shown(self.folder)}/rejected.jsonl"
        sections: list[Iterable[str]] = [
            [self._headline(manifest, seconds)],
            *([each] for each in self.settled_keys),
            *(each.lines() for each in self.rejected_inputs),
            self.warning_lines(),
            self.totals_lines(manifest),
            rows.split_lines() if rows is not None else (),
            rows.rule_lines(manifest.totals.rows, listed=listed) if rows is not None else (),
            [f"fingerprint  {self.fingerprint}"],
        ]
        if self.built:
            row = "" if manifest.totals.blocks else f" --row {shlex.quote(f'{manifest.inputs[0].path}:0')}"
            sections.append([f"next: packer inspect {shlex.quote(shown(self.folder))}{row}"])
        yield from in_sections(sections)

    def warning_lines(self) -> Iterator[str]:
        """Yield warnings about whole conversations that are trained, about rules, and about what is in no block."""
        supervision = {} if self.manifest is None else self.manifest.recipe.get("supervision")
        whole = isinstance(supervision, dict) and supervision.get("turns") == "conversation"
        sections: list[Iterable[str]] = [
            ["warning: supervision.turns=conversation trains whole documents, what users and tools say, too"] * whole,
            self.rows.warning_lines() if self.rows is not None else (),
            self.left_out.lines() if self.left_out is not None else (),
        ]
        yield from in_sections(sections)

    def totals_lines(self, manifest: Manifest) -> Iterator[str]:
        """Yield the numbers of rows, documents and blocks, the rejected rows, and what is in no block."""
        listed = f"listed in {shown(self.folder)}/rejected.jsonl"
        totals = manifest.totals
        sections = [self._facts(manifest), self._rejected_rows(manifest, listed), _in_no_block(totals, listed)]
        yield from in_sections(sections)

    def __repr__(self) -> str:
        """The lines as one text, for notebooks."""
        return "\n".join(map(one_line, self.lines(sum(self.seconds.values()))))

    def _headline(self, manifest: Manifest, seconds: float) -> str:
        name, reused = shown(self.folder), self.num_partitions_reused
        if not self.built:
            return f"{name} is up to date"
        how = f"{plural(reused, 'partition')} reused" if reused else f"{rate(manifest.totals.tokens, seconds)} tokens/s"
        engine = f", engine {manifest.engine}" if self.num_partitions_built else ""
        return f"built {name} in {duration(seconds)}, {how}{engine}"

    def _facts(self, manifest: Manifest) -> Iterator[str]:
        """Yield the numbers of rows, documents and blocks."""
        totals, pack, last = manifest.totals, manifest.recipe["pack"], sum(s.num_last_tokens for s in manifest.shards)
        num_tokens = InNoBlock.of(totals).of_tokens
        ruled_out = [cut for code, cut in totals.cut.items() if code in ROW_REASONS]
        documents = totals.documents - sum(cut.documents for cut in ruled_out)
        trained = (totals.trained - sum(cut.trained for cut in ruled_out)) / max(num_tokens, 1)
        facts = [
            ("rows", number(totals.rows), kept_rows(totals.rows, totals.kept, self.rows)),
            ("documents", number(documents), f"{number(num_tokens)} tokens, {percent(trained)} trained"),
        ]
        if totals.tokens > _WORTH_A_LINE * last:
            ratio = f"{totals.tokens / last:.2f}"
            facts.append(("rewritten", ratio, "times the tokens: the template rewrites earlier turns"))
        if totals.skipped:
            facts.append(("skipped", number(totals.skipped), _SKIPPED))
        if pack["mode"] != "none":
            full = percent((totals.slots - totals.padding) / max(totals.slots, 1))
            facts.append(("blocks", number(totals.blocks), f"of {number(pack['block_len'])} tokens, {full} full"))
        yield from aligned("<><", facts)

    def _rejected_rows(self, manifest: Manifest, listed: str) -> Iterator[str]:
        rejected = sorted(manifest.totals.rejected.items(), key=lambda entry: -entry[1])
        if rejected:
            yield f"rows rejected; {listed}; packer explain CODE says what to do"
            yield from aligned("><<", [(number(n), code, CODES.get(code, "")) for code, n in rejected])


def in_sections(sections: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of all sections that have any."""
    for section, lines in enumerate(filter(None, map(list, sections))):
        yield from ["", *lines] if section else lines


def _in_no_block(totals: Totals, listed: str) -> Iterator[str]:
    lost = InNoBlock.of(totals)
    if lost.cuts:
        tokens = f"{number(lost.tokens)} of {number(lost.of_tokens)} tokens"
        yield f"in no block: {tokens}, {number(sum(cut.trained for cut in lost.cuts.values()))} of them trained;"
        yield f"{listed}; packer explain CODE says what to do"
        largest = sorted(lost.cuts.items(), key=lambda entry: -entry[1].tokens)
        yield from aligned("><<", [(plural(cut.tokens, "token"), code, CODES.get(code, "")) for code, cut in largest])


def kept_rows(num_rows: int, num_kept: int, rows: RowReport | None) -> str:
    """Summarize what happened to the rows: kept, left out by rules, rejected. `num_kept` are not rejected."""
    left_out = 0 if rows is None else rows.num_left_out
    by_rules = "" if rows is None else f"{number(left_out)} left out by rules, "
    return f"{number(num_kept - left_out)} kept, {by_rules}{number(num_rows - num_kept)} rejected"
