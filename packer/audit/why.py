"""Why rows are not in a cache: the rule, and the row or benchmark question that they matched, with both texts."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from packer.audit.check.check_report import RowPair, RowText
from packer.audit.stats import meaning_of
from packer.audit.view import find_inputs, refuse_row
from packer.curate.texts import utterances
from packer.errors import PackerError
from packer.pipeline.benchmarks import read_rule
from packer.pipeline.input_resolution import input_place
from packer.pipeline.selecting import RowPlaces
from packer.recipe import make_recipe
from packer.rejections import CODES, ROW_REASONS, rejection_hint
from packer.source.file_bytes import file_sha256
from packer.source.partition import FileStatus, Format
from packer.source.rows import InputFile, RawRow
from packer.store.cache import Cache
from packer.store.manifest import Input
from packer.store.rejected import Rejected, read_rejected
from packer.store.selected import read_selection

_EXAMPLES = 2
"""Examples for each reason."""

_FARTHEST = 50_000
"""Example rows beyond this row number are listed without their text: reaching them means reading every row before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyView:
    """The decision about one row.

    The texts are what user and assistant say; if the row did not lose to another row or a question, its text is the row
    as its file has it. They are empty if the input no longer exists or has changed since the build.
    """

    row: RowText
    """`split` is empty if the row is in no split."""

    code: str | None
    """None if the row is in the cache."""

    reason: str | None
    lost_to: RowPair | None
    """The row paired with the row it lost to, or with the benchmark question that it contains. That row may itself have
    lost to a later rule; then it is in no split."""

    cut: tuple[Rejected, ...] = ()
    """The parts of the row's documents that are in no block, if the row is in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonView:
    """A code in rejected.jsonl, with its count and examples."""

    code: str
    meaning: str
    hint: str
    count: int
    """Lines of rejected.jsonl: whole rows, or parts of documents."""

    of: str
    """The unit of `count`: rows or parts."""

    examples: tuple[WhyView, ...]


def why(cache: Cache, source: str, row: int) -> WhyView:
    """Find out why a row is not in a cache, or which split it is in; `source` and `row` as for :func:`view_row`.

    Raises:
        UsageError: no such input or row, or several inputs match.
        CheckError: the cache is damaged.
    """
    inputs = cache.manifest.inputs
    numbers = find_inputs([entry.path for entry in inputs], source, missing=f"{cache.folder} has no '{source}'")
    entry = inputs[numbers[0]]
    refuse_row(entry.path, row, [inputs[number].num_rows for number in numbers])
    lines = [
        line for line in read_rejected(cache.folder, cache.manifest) if (line.source, line.row) == (entry.path, row)
    ]
    rows = _Rows(cache, thorough=True)
    kept = next((number for number in numbers if rows.split(number, row)), None)  # several sources may name the file
    if kept is None:
        return rows.view(rows.source_of(lines[0]), row, lines[0]) if lines else rows.view(numbers[0], row, None)
    cut = tuple(line for line in lines if line.document is not None and line.code not in ROW_REASONS)
    return replace(rows.view(kept, row, None), cut=cut)


def reasons(cache: Cache) -> list[ReasonView]:
    """Return every code of rejected.jsonl with its count and first rows, most frequent first.

    An input counts as unchanged if its size is the same. Remote inputs are not fetched, and standard input is not read.
    """
    counts: dict[tuple[str, str], int] = {}
    first: dict[tuple[str, str], list[Rejected]] = {}
    for line in read_rejected(cache.folder, cache.manifest):
        key = line.code, "rows" if line.document is None or line.code in ROW_REASONS else "parts"
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _EXAMPLES:
            first.setdefault(key, []).append(line)
    rows = _Rows(cache, thorough=False)
    return [
        ReasonView(
            code=code,
            meaning=meaning_of(code),
            hint=rejection_hint(code) if code in CODES else "",
            count=count,
            of=of,
            examples=tuple(rows.view(rows.source_of(line), line.row, line) for line in first[code, of]),
        )
        for (code, of), count in sorted(counts.items(), key=lambda entry: -entry[1])
    ]


class _Rows:
    """The rows of a cache's inputs, with the selection's decisions about them."""

    def __init__(self, cache: Cache, *, thorough: bool) -> None:
        """`thorough`: compare the digest of an input, however large, and fetch the input if it is remote."""
        manifest = cache.manifest
        self._cache = cache
        self._thorough = thorough
        self._recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
        self._selected = None if manifest.selection is None else read_selection(cache.folder, manifest.selection)
        self._places = RowPlaces(manifest.inputs, [shard for shard in manifest.shards if shard.kind == "documents"])
        self._files: dict[int, InputFile | None] = {}

    def source_of(self, line: Rejected) -> int:
        """Return the input that a line is about: of sources that name the same file, one with this outcome."""
        inputs = self._cache.manifest.inputs
        found = [n for n, entry in enumerate(inputs) if entry.path == line.source and line.row < entry.num_rows]
        if self._selected is None or line.code not in ROW_REASONS:
            return found[0]
        reason = 1 + ROW_REASONS.index(line.code)
        places = {number: self._places.number(number, line.row) for number in found}
        return next((number for number in found if self._selected.reason[places[number]] == reason), found[0])

    def view(self, source: int, row: int, line: Rejected | None) -> WhyView:
        """Describe a row of an input, given its line in rejected.jsonl if it has one."""
        if line is None:
            return WhyView(row=self._row(source, row), code=None, reason=None, lost_to=None)
        lost_to = self._lost_to(source, row, line.code)
        own = self._row(source, row, as_in_file=True) if lost_to is None else lost_to.first
        return WhyView(row=own, code=line.code, reason=line.reason, lost_to=lost_to)

    def split(self, source: int, row: int) -> str:
        """Return the split of a row; empty if it is in none."""
        for name in self._cache.splits("documents"):
            sources, rows = self._cache.documents(name).origins()
            if np.any((sources == source) & (rows == row)):
                return name
        return ""

    def _lost_to(self, source: int, row: int, code: str) -> RowPair | None:
        """Pair the row with the row or question it lost to; None if there is none."""
        if self._selected is None or code not in ROW_REASONS:
            return None
        place = self._places.number(source, row)
        kept = int(self._selected.kept[place])
        other = None
        if kept >= 0:
            other = self._question(kept) if code == "contaminated" else self._row(*self._places.of(kept))
        if other is None:
            return None
        return RowPair(first=self._row(source, row), second=other, similarity=float(self._selected.similarity[place]))

    def _row(self, source: int, row: int, *, as_in_file: bool = False) -> RowText:
        path, raw = self._cache.manifest.inputs[source].path, self._read(source, row)
        if raw is None:
            text = ""
        elif as_in_file:
            text = (raw.content or b"").decode("utf-8", "backslashreplace")
        else:
            text = "\n".join(text for sample in raw.batch.samples for _, text in utterances(sample))
        return RowText(input=path, row=row, split=self.split(source, row), text=text)

    def _read(self, source: int, row: int) -> RawRow | None:
        """Read a row as its file has it; None if it cannot be read."""
        try:
            if source not in self._files:
                self._files[source] = self._open(self._cache.manifest.inputs[source])
            file = self._files[source]
            return None if file is None or (row >= _FARTHEST and not self._thorough) else next(file.rows(row), None)
        except (PackerError, OSError):
            return None

    def _open(self, entry: Input) -> InputFile | None:
        """Return an input, or None if it has changed since the build."""
        path = input_place(entry.path) if self._thorough else Path(entry.path)
        if FileStatus.of(path).num_bytes != entry.num_bytes:
            return None
        if self._thorough and file_sha256(path) != entry.sha256:
            return None
        return InputFile(
            name=entry.path,
            path=path,
            split=entry.split,
            format=cast("Format", entry.format),
            schema=entry.schema,
            columns=entry.columns,
            limit=None,
            max_row_bytes=self._recipe.rows.max_bytes,
            roles=entry.roles,
        )

    def _question(self, number: int) -> RowText | None:
        """Return a benchmark question by its number, counted over all benchmarks; None if its file cannot be read."""
        assert self._recipe.decontaminate is not None, "a question was found"
        for rule in self._recipe.decontaminate.against:
            if number < (rule.questions or 0):
                try:
                    found = read_rule(rule)
                except PackerError:
                    return None
                return RowText(input=found.path, row=number, split=found.name, text=found.questions[number])
            number -= rule.questions or 0
        raise IndexError(number)
