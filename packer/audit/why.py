"""Why rows are not in a cache: the rule, and the row or the question they lost to, with both texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from packer.audit.check.check_report import RowPair, RowText
from packer.audit.stats import meaning_of
from packer.audit.view import find_inputs
from packer.curate.texts import said
from packer.errors import PackerError, UsageError
from packer.pipeline.benchmarks import read_rule
from packer.pipeline.input_resolution import input_place
from packer.pipeline.selecting import RowPlaces
from packer.recipe import make_recipe
from packer.rejections import CODES, ROW_REASONS, rejection_hint
from packer.source import InputFile, RawRow
from packer.source.file_bytes import file_sha256
from packer.source.partition import FileStatus, Format
from packer.store.cache import Cache
from packer.store.manifest import Input
from packer.store.rejected import Rejected, read_rejected
from packer.store.selected import read_selection

_EXAMPLES = 2
"""Of each reason."""

_FARTHEST = 50_000
"""Rows of an input that are read over to find an example; those after are without their text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyView:
    """What was decided of one row.

    Texts are what user and assistant say; of a row that lost to nothing else, the row as its file has it. They are
    empty where the input is not there any more, or is not what was built from.
    """

    row: RowText
    """Its split is empty where it is in none."""

    code: str | None
    """None where the row is in the cache."""

    reason: str | None
    lost_to: RowPair | None
    """The row beside the one it lost to, or beside the question of a benchmark that it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonView:
    """One code of rejected.jsonl."""

    code: str
    meaning: str
    hint: str
    count: int
    """Lines: whole rows, or parts of documents."""

    of: str
    """What is counted: rows or parts."""

    examples: tuple[WhyView, ...]


def why(cache: Cache, source: str, row: int) -> WhyView:
    """Find out why a row is not in a cache, or in which split it is.

    Args:
        cache: an open cache.
        source: the input as the manifest names it, or the end of that path.
        row: from 0.

    Raises:
        UsageError: no such input or row, or several inputs end so.
        CheckError: something is damaged.

    """
    inputs = cache.manifest.inputs
    number = find_inputs([entry.path for entry in inputs], source, missing=f"{cache.folder} has no '{source}'")[0]
    entry = inputs[number]
    if not 0 <= row < entry.num_rows:
        raise UsageError(f"no row {row} in {entry.path}", hint=f"rows are numbered 0 to {entry.num_rows - 1}")
    line = next(
        (each for each in read_rejected(cache.folder, cache.manifest) if (each.source, each.row) == (entry.path, row)),
        None,
    )
    rows = _Rows(cache, thorough=True)
    return rows.view(number, row, None if rows.split(number, row) else line)


def reasons(cache: Cache) -> list[ReasonView]:
    """Every code of rejected.jsonl with its count and first rows; the most frequent first.

    An input counts as what was built from where it has the same size. None is fetched, and standard input is not read.
    """
    counts: dict[tuple[str, str], int] = {}
    first: dict[tuple[str, str], list[Rejected]] = {}
    for line in read_rejected(cache.folder, cache.manifest):
        key = line.code, "rows" if line.document is None or line.code in ROW_REASONS else "parts"
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _EXAMPLES:
            first.setdefault(key, []).append(line)
    rows = _Rows(cache, thorough=False)
    numbers = {entry.path: number for number, entry in reversed([*enumerate(cache.manifest.inputs)])}
    return [
        ReasonView(
            code=code,
            meaning=meaning_of(code),
            hint=rejection_hint(code) if code in CODES else "",
            count=count,
            of=of,
            examples=tuple(rows.view(numbers[line.source], line.row, line) for line in first[code, of]),
        )
        for (code, of), count in sorted(counts.items(), key=lambda entry: -entry[1])
    ]


class _Rows:
    """The rows of a cache's inputs, with what its selection says of them."""

    def __init__(self, cache: Cache, *, thorough: bool) -> None:
        """`thorough`: compare the digest of an input, however large, and fetch it where it is elsewhere."""
        manifest = cache.manifest
        self._cache = cache
        self._thorough = thorough
        self._recipe = make_recipe(manifest.recipe, where="the manifest's recipe")
        self._selected = None if manifest.selection is None else read_selection(cache.folder, manifest.selection)
        self._places = RowPlaces(manifest.inputs, [shard for shard in manifest.shards if shard.kind == "documents"])
        self._files: dict[int, InputFile | None] = {}

    def view(self, source: int, row: int, line: Rejected | None) -> WhyView:
        """A row of an input, by its number, with a line of rejected.jsonl about it."""
        if line is None:
            return WhyView(row=self._row(source, row), code=None, reason=None, lost_to=None)
        lost_to = self._lost_to(source, row, line.code)
        own = self._row(source, row, as_in_file=True) if lost_to is None else lost_to.first
        return WhyView(row=own, code=line.code, reason=line.reason, lost_to=lost_to)

    def split(self, source: int, row: int) -> str:
        """The split of a row; empty where it is in none."""
        for name in self._cache.splits("documents"):
            sources, rows = self._cache.documents(name).origins()
            if np.any((sources == source) & (rows == row)):
                return name
        return ""

    def _lost_to(self, source: int, row: int, code: str) -> RowPair | None:
        """The row beside the row or the question it lost to; None where there is none."""
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
            text = "\n".join(text for sample in raw.batch.samples for _, text in said(sample))
        return RowText(input=path, row=row, split=self.split(source, row), text=text)

    def _read(self, source: int, row: int) -> RawRow | None:
        """A row as its file has it; None where it cannot be had."""
        try:
            if source not in self._files:
                self._files[source] = self._open(self._cache.manifest.inputs[source])
            file = self._files[source]
            return None if file is None or (row >= _FARTHEST and not self._thorough) else next(file.rows(row), None)
        except (PackerError, OSError):
            return None

    def _open(self, entry: Input) -> InputFile | None:
        """An input, where it is what was built from."""
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
        """A question of the benchmarks, numbered through; None where its file cannot be read."""
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
