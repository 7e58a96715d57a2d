"""The result of a build, and its report as lines of text, for the terminal and for Python callers.

Lines that begin with two spaces continue the line before them; a warning begins with `warning:`.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from packer.display import aligned, duration, number, one_line, percent, plural, rate
from packer.errors import PackerError
from packer.names import shown
from packer.pipeline.messages.changes import Changes
from packer.pipeline.messages.losses import InNoBlock, RejectedInput, TokenLosses
from packer.pipeline.messages.row_report import RowReport
from packer.rejections import CODES, ROW_REASONS
from packer.store.cache import Cache
from packer.store.entries import Totals
from packer.store.fingerprint import fingerprint
from packer.store.manifest import Manifest
from packer.store.rejected import read_rejected

_WORTH_A_LINE = 1.01
"""Least ratio at which the cost of rewritten history gets a line of its own; a smaller one would print as 1.00 times.
"""

_VAGUE = frozenset({"wrong_type"})
"""Codes that say little without the reason given for a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """The result of a build."""

    folder: Path
    """The cache; for a cache in a bucket, its local folder."""

    manifest: Manifest | None
    """Manifest of the cache; None after a dry run that found work to do."""

    built: bool
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

    @property
    def fingerprint(self) -> str | None:
        """Of the cache; None after a dry run that found work to do."""
        return None if self.manifest is None else fingerprint(self.manifest)

    @property
    def cache(self) -> Cache:
        """The cache, opened."""
        return Cache.open(self.folder)

    def lines(self, seconds: float, *, verbose: bool = False) -> Iterator[str]:
        """Yield the report as lines of text.

        Args:
            seconds: elapsed time of the build.
            verbose: include the content and recipe fingerprints.
        """
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
        if verbose:
            sections[-1] = [
                f"fingerprint  {self.fingerprint}",
                f"content      {manifest.content_fingerprint}",
                f"recipe       {manifest.recipe_fingerprint}",
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
            facts.append(("skipped", number(totals.skipped), skipped_answers(self.rows)))
        if pack["mode"] != "none":
            full = percent((totals.slots - totals.padding) / max(totals.slots, 1))
            facts.append(("blocks", number(totals.blocks), f"of {number(pack['block_len'])} tokens, {full} full"))
        yield from aligned("<><", facts)

    def _rejected_rows(self, manifest: Manifest, listed: str) -> Iterator[str]:
        rejected = sorted(manifest.totals.rejected.items(), key=lambda entry: -entry[1])
        if rejected:
            yield f"rows rejected; {listed}; packer explain CODE says what to do"
            yield from aligned("><<", [(number(n), code, self._meaning(code, manifest)) for code, n in rejected])

    def _meaning(self, code: str, manifest: Manifest) -> str:
        """Return the meaning of a code; of a vague one also the reason of its first row, if that can be read."""
        meaning = CODES.get(code, "")
        if code in _VAGUE:
            with suppress(PackerError):
                first = next((line for line in read_rejected(self.folder, manifest) if line.code == code), None)
                return meaning if first is None else f"{meaning.partition(';')[0]}; the first: {first.reason}"
        return meaning


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


def skipped_answers(rows: RowReport | None) -> str:
    """Say what is counted as skipped; the documents of rows that rules leave out are counted too."""
    also = " (also of rows left out)" if rows is not None and rows.num_left_out else ""
    return f"answers not trained{also}: they are empty, or the template has no prompt for them"
