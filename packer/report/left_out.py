"""Rows that are not in the cache: counted by reason, with examples as they stand in their files."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from packer.errors import PackerError
from packer.pipeline.selecting import RowPlaces
from packer.recipe import make_recipe
from packer.rejections import CODES, ROW_REASONS, rejection_hint
from packer.source import InputFile
from packer.source.partition import Format
from packer.store.cache import Cache
from packer.store.rejected import Rejected, read_rejected
from packer.store.selected import read_selection

_EXAMPLES = 2
"""Of each reason."""

_CHARACTERS = 1500
_FARTHEST = 50_000
"""Rows of an input that are read over to find an example; those behind are named without their text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """A row as its file has it."""

    source: str
    row: int
    text: str | None
    """Cut to :data:`_CHARACTERS`; None where there is no such file, it was changed, or the row lies far into it."""

    num_more: int = 0
    """Characters behind the cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutRow:
    """A row that is not in the cache, or a part of its document that is in no block."""

    row: ShownRow
    reason: str
    lost_to: ShownRow | None
    """The row for whose sake it is left out, where it is a copy or leaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonFacts:
    """One code of rejected.jsonl."""

    code: str
    meaning: str
    hint: str
    count: int
    """Lines: whole rows, or parts of documents."""

    of: str
    """What is counted: rows or parts."""

    examples: tuple[LeftOutRow, ...]


class LeftOut:
    """What rejected.jsonl says, read with the inputs at hand."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._recipe = make_recipe(cache.manifest.recipe, where="the manifest's recipe")
        self._numbers = {entry.path: number for number, entry in reversed([*enumerate(cache.manifest.inputs)])}
        selection = cache.manifest.selection
        self._selected = None if selection is None else read_selection(cache.folder, selection)
        shards = [shard for shard in cache.manifest.shards if shard.kind == "documents"]
        self._places = RowPlaces(cache.manifest.inputs, shards)

    def reasons(self) -> list[ReasonFacts]:
        """Every code with its count and first rows; the most frequent first.

        Raises:
            CheckError: rejected.jsonl or the selection is damaged.

        """
        counts: dict[tuple[str, str], int] = {}
        first: dict[tuple[str, str], list[Rejected]] = {}
        for line in read_rejected(self._cache.folder, self._cache.manifest):
            key = line.code, "rows" if line.document is None or line.code in ROW_REASONS else "parts"
            counts[key] = counts.get(key, 0) + 1
            if counts[key] <= _EXAMPLES:
                first.setdefault(key, []).append(line)
        return [
            ReasonFacts(
                code=code,
                meaning=CODES.get(code, "a reason this version of packer does not know"),
                hint=rejection_hint(code) if code in CODES else "",
                count=count,
                of=of,
                examples=self.examples(first[code, of]),
            )
            for (code, of), count in sorted(counts.items(), key=lambda entry: -entry[1])
        ]

    def examples(self, lines: Iterable[Rejected]) -> tuple[LeftOutRow, ...]:
        """The rows of some lines of rejected.jsonl."""
        return tuple(
            LeftOutRow(row=self._row(line.source, line.row), reason=line.reason, lost_to=self._lost_to(line))
            for line in lines
        )

    def _lost_to(self, line: Rejected) -> ShownRow | None:
        if self._selected is None or line.code not in ROW_REASONS or line.code == "contaminated":
            return None
        kept = int(self._selected.kept[self._places.number(self._numbers[line.source], line.row)])
        if kept < 0:
            return None
        source, row = self._places.of(kept)
        return self._row(self._cache.manifest.inputs[source].path, row)

    def _row(self, source: str, row: int) -> ShownRow:
        text = self._text(self._numbers[source], row) if row < _FARTHEST else None
        if text is None:
            return ShownRow(source=source, row=row, text=None)
        return ShownRow(source=source, row=row, text=text[:_CHARACTERS], num_more=max(0, len(text) - _CHARACTERS))

    def _text(self, number: int, row: int) -> str | None:
        entry = self._cache.manifest.inputs[number]
        path = Path(entry.path)  # as a file alone: looking at a cache reads no standard input and fetches nothing
        try:
            if path.stat().st_size != entry.num_bytes:
                return None
            file = InputFile(
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
            found = next(file.rows(row), None)
        except (PackerError, OSError):
            return None
        return None if found is None or found.content is None else found.content.decode("utf-8", "backslashreplace")
