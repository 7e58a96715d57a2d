"""Audit of training rows that another tool prepared (ids with labels or masks): what a model would learn from them.

Rows are read from datasets with a column ``input_ids`` in Arrow and Parquet files, those of ``save_to_disk`` and single
files; a sample of them is checked.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from packer.audit import CodedFinding, Example, Findings
from packer.audit.foreign.rows import (
    CODES,
    MASKS,
    OF_ANY_TOKENIZER,
    TOKEN_COLUMNS,
    Hit,
    Range,
    TokenRow,
    check,
    find_parts,
)
from packer.audit.foreign.tokenizer_facts import TokenizerFacts, load_facts
from packer.batches import Int64
from packer.display import Progress, Silent, in_shell, number, percent, plural
from packer.errors import InputError, did_you_mean, near_paths
from packer.host.files import out_of, path_within
from packer.layout import offsets_of
from packer.source.file_bytes import Format
from packer.source.files import data_set_splits, is_data_set
from packer.source.table_files import read_group, row_groups, table_schema
from packer.store.manifest import MANIFEST_NAME

_BEFORE, _AFTER, _MOST = 16, 8, 24
"""Maximum numbers of tokens shown before a marked range, after it, and of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignReport(Findings):
    """The result of :func:`audit_foreign`."""

    path: Path
    form: str
    columns: tuple[str, ...]
    labels_from: str
    header: str | None
    """The header of an answer, as text; None if it is unknown."""

    num_rows: int
    rows_looked_at: int
    tokens_looked_at: int
    trained: int
    padding: int
    findings: tuple[CodedFinding, ...]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """(label, text) of what was checked."""
        looked = f"all {number(self.num_rows)}"
        if self.rows_looked_at != self.num_rows:
            looked = f"{number(self.rows_looked_at)} of {number(self.num_rows)}"
        share = percent(self.trained / max(self.tokens_looked_at, 1))
        padding = f", {number(self.padding)} padding" if self.padding else ""
        return [
            ("data", str(self.path)),
            ("rows", f"{looked}, {self.form}: {', '.join(self.columns)}"),
            ("tokens", f"{number(self.tokens_looked_at)}, {number(self.trained)} trained ({share}){padding}"),
            ("trained", f"by {self.labels_from}"),
            ("answers", "not known" if self.header is None else f"after {self.header!r}"),
        ]


def audit_foreign(
    path: Path | str,
    *,
    tokenizer: Path | str,
    template: Path | str | None = None,
    sample: int | None = 1000,
    progress: Progress | None = None,
) -> ForeignReport:
    """Check rows that another tool prepared.

    Args:
        path: a folder written by save_to_disk, a Parquet or Arrow file, or a folder of such files.
        tokenizer: folder of the model's tokenizer, its tokenizer.json, or its name on the Hub.
        template: chat template that the rows were made with, instead of the tokenizer's own.
        sample: number of rows checked, spread evenly over each part, the same ones every time; None checks all.
        progress: receives progress; counts rows.

    Raises:
        InputError: nothing at the path can be audited, or it cannot be read.
        TemplateError: the template is not valid Jinja.
    """
    path, progress = Path(path), progress or Silent()
    facts = load_facts(tokenizer, None if template is None else Path(template), progress.note)
    form, parts = open_foreign(path)
    num_rows = sum(map(len, parts))
    wanted = [_spread(len(part), sample, num_rows) for part in parts]
    progress.stage("looking", sum(map(len, wanted)), "rows")
    tally = _Tally(facts)
    for part, numbers in zip(parts, wanted, strict=True):
        for row in part.read(numbers):
            tally.add(row, part.name)
            progress.advance(1)
    columns = tuple(dict.fromkeys(name for part in parts for name in part.columns))
    return ForeignReport(
        path=path,
        form=form,
        columns=columns,
        labels_from=_labels_from(columns),
        header=facts.text(facts.header) if len(facts.header) else None,
        num_rows=num_rows,
        rows_looked_at=tally.num_rows,
        tokens_looked_at=tally.tokens,
        trained=tally.trained,
        padding=tally.padding,
        findings=tuple(tally.findings(columns)),
    )


def _spread(num_rows: int, sample: int | None, total: int) -> range | list[int]:
    """Return the rows of a part to check, evenly spread: of 10 rows with a sample of 4, rows 0, 2, 5 and 7."""
    if sample is None or total <= sample:
        return range(num_rows)
    wanted = min(num_rows, max(1, round(num_rows * sample / total)))
    return [place * num_rows // wanted for place in range(wanted)]


@dataclass(slots=True)
class _Tally:
    """Accumulates counts and findings over the rows."""

    facts: TokenizerFacts
    num_rows: int = 0
    tokens: int = 0
    trained: int = 0
    padding: int = 0
    sequences: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    first: dict[str, Example] = field(default_factory=dict)

    def add(self, row: TokenRow, part: str) -> None:
        self.num_rows += 1
        self.tokens += len(row.input_ids)
        hits = [Hit("columns_differ", 1, None)]
        if not row.columns_differ:
            parts = find_parts(row, self.facts)
            self.trained += int(parts.trained.sum())
            self.padding += int(parts.padding.sum())
            self.sequences += int(parts.starts.sum())
            hits = [*check(row, parts, self.facts)]
        for hit in hits:
            self.counts[hit.code] += hit.times
            self.rows[hit.code] += 1
            if hit.code not in self.first:
                self.first[hit.code] = self._excerpt(row, hit.shown, f"{part} row {row.number:,}".strip())

    def _excerpt(self, row: TokenRow, shown: Range | None, label: str) -> Example:
        """Show some tokens of a row in their context."""
        if shown is None:
            return Example(label=label, text="")
        start, end = shown
        cut = min(end, start + _MOST)
        pieces = [(max(0, start - _BEFORE), start), (start, cut), (end, end + _AFTER)]
        before, text, after = (self.facts.text(row.input_ids[a:b]) for a, b in pieces)
        text += "…" * (end > cut)
        note = f"token {start:,}" if end - start == 1 else f"tokens {start:,} to {end - 1:,}"
        return Example(label=label, text=before + text + after, mark=(len(before), len(before) + len(text)), note=note)

    @property
    def has_foreign_ids(self) -> bool:
        """Whether most rows contain ids unknown to the tokenizer, so that checks based on it are meaningless."""
        return 2 * self.rows["ids_outside"] > self.num_rows

    def findings(self, columns: tuple[str, ...]) -> Iterator[CodedFinding]:
        """Yield the findings in the order of the codes, then a note for each question that nothing here answers."""
        for code, kind in CODES.items():
            count, num_rows = self.counts[code], self.rows[code]
            if not num_rows or (self.has_foreign_ids and code not in OF_ANY_TOKENIZER):
                continue
            detail = ""
            if code in {"prompt_trained", "padding_trained"} and self.trained:
                every = " (every token is)" * (code == "prompt_trained" and self.trained == self.tokens)
                detail = f"; {100 * count / self.trained:.1f} % of what is trained{every}"
            times = f"{number(num_rows)} of {plural(self.num_rows, 'row')}"
            times = times if kind.unit == "row" else f"{plural(count, kind.unit)} in {times}"
            yield CodedFinding(
                code=code,
                level=kind.level,
                message=f"{kind.meaning}: {times}{detail}",
                count=count,
                num_rows=num_rows,
                examples=(self.first[code],),
                hint=kind.hint,
            )
        for told in self._unchecked(columns):
            yield CodedFinding(code="not_checked", level="note", message=told)

    def _unchecked(self, columns: tuple[str, ...]) -> Iterator[str]:
        if self.has_foreign_ids:
            why = "most rows contain ids that this tokenizer does not have: they were made with another tokenizer"
            yield f"prompts, stop tokens, padding, BOS and borders: {why}"
            return
        if not len(self.facts.header):
            yield f"whether prompts are trained: {self.facts.why_no_header}"
        if not self.facts.stops:
            yield "whether stop tokens are trained: the tokenizer names no stop token"
        are_marked = self.sequences > self.num_rows or {"seq_lengths", "position_ids"}.intersection(columns)
        if not self.facts.bos_opens and not are_marked:
            has_template = self.facts.model.template is not None
            more = ", and no token of this template marks only beginnings" if has_template else ""
            yield f"whether rows contain several conversations: no column says where sequences begin{more}"


def _labels_from(columns: tuple[str, ...]) -> str:
    if "labels" in columns:
        return "the column labels"
    if masks := [name for name in MASKS if name in columns]:
        return f"{' and '.join(masks)}; there are no labels"
    return "nothing: there are neither labels nor a mask, and trainers then train every token"


_READ = ("input_ids", "seq_lengths", *TOKEN_COLUMNS)
_PATTERNS = ("*.parquet", "*/*.parquet", "*.arrow")
_BATCH_ROWS = 256
_MAX_BATCH_VALUES = 2**28
"""A million for each row. Bits of a mask become whole numbers, and repeated ones take hardly any bytes in a file."""


class ForeignPart:
    """The rows of one split, or of one file, numbered from 0."""

    def __init__(self, place: Path, name: str, files: Sequence[Path]) -> None:
        """Open the files with the rows, in order; unsupported columns are neither read nor checked."""
        self.name, self._place = name, place
        self._groups: list[tuple[int, Callable[[], pa.Table]]] = []
        """Row groups of Parquet or record batches of Arrow: the number of rows of each, and what reads it."""

        names = set[tuple[str, ...]]()
        for file in files:
            kind: Format = "parquet" if file.suffix == ".parquet" else "arrow"
            self.columns = tuple(dict.fromkeys(table_schema(file, kind).names))
            read = [name for name in _READ if name in self.columns]
            names.add(tuple(read))
            for group in row_groups(file, kind):
                self._groups.append((group.num_rows, partial(read_group, file, kind, group, read)))
        if len(names) > 1:
            raise InputError(f"{place}: its files differ in their columns")
        (self._names,) = names
        if "input_ids" not in self._names:
            raise InputError(
                f"{place} has no column input_ids (found: {', '.join(self.columns) or 'none'})",
                hint="an audit needs rows that are already tokenized",
            )

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(num_rows for num_rows, _ in self._groups)

    def read(self, numbers: Sequence[int]) -> Iterator[TokenRow]:
        """Yield the rows with these numbers, which must be ascending."""
        wanted, first = np.array(numbers, np.int64), 0
        for num_rows, read in self._groups:
            own = wanted[slice(*np.searchsorted(wanted, (first, first + num_rows)).tolist())] - first
            if len(own):
                try:
                    yield from self._rows(read(), own, first)
                except (pa.ArrowException, KeyError, ValueError, TypeError, OSError) as error:
                    message = f"{self._place}: its rows cannot be read as lists of numbers: {error}"
                    raise out_of(error) or InputError(message) from error
            first += num_rows

    def _rows(self, table: pa.Table, numbers: Int64, first: int) -> Iterator[TokenRow]:
        for start in range(0, len(numbers), _BATCH_ROWS):
            own = numbers[start : start + _BATCH_ROWS]
            is_slice = own[-1] - own[0] + 1 == len(own)  # a slice is a view, several times faster than take
            batch = table.slice(own[0], len(own)) if is_slice else table.take(pa.array(own))
            found = {name: _lists(batch.column(name), as_mask=name in MASKS) for name in self._names}
            for place, row in enumerate(own.tolist()):
                columns = {name: lists[place] for name, lists in found.items()}
                ids, lengths = columns.pop("input_ids"), columns.pop("seq_lengths", None)
                yield TokenRow(number=first + row, input_ids=ids, columns=columns, seq_lengths=lengths)


def open_foreign(path: Path) -> tuple[str, tuple[ForeignPart, ...]]:
    """Return the format of the data at a path, and its parts."""
    if "\0" in str(path):
        raise InputError(f"{str(path)!r}: a path cannot contain a NUL character")
    if is_data_set(path):
        splits = [(split or "", files) for split, files in data_set_splits(path) if files]
        if not splits:
            raise InputError(f"{path} has no rows: it names no files")
        return "datasets", tuple(ForeignPart(path / split, split, files) for split, files in splits)
    if (path / MANIFEST_NAME).is_file():
        raise InputError(f"{path} is a cache, not the output of another tool", hint=f"packer verify {in_shell(path)}")
    if path.is_file() and path.suffix in {".parquet", ".arrow"}:
        return path.suffix[1:], (ForeignPart(path, "", [path]),)
    for pattern in _PATTERNS:
        if names := [file.relative_to(path).as_posix() for file in sorted(path.glob(pattern))]:
            files = [(path_within(path, name), name if len(names) > 1 else "") for name in names]
            return files[0][0].suffix[1:], tuple(ForeignPart(file, name, [file]) for file, name in files)
    if not path.exists():
        raise InputError(
            f"{path}: no such file or folder",
            hint=did_you_mean(near_paths(path), f"looked in {path.parent.absolute()}"),
        )
    inside = ", ".join(str(folder) for folder in sorted(path.glob("*")) if is_data_set(folder))
    raise InputError(
        f"{path} is not something that an audit reads",
        hint=f"it contains data sets; name one of them: {inside}"
        if inside
        else "it reads what save_to_disk writes, Parquet and Arrow with input_ids; docs/how-to/audit.md shows how "
        "to save JSON lines, MDS and token arrays that way",
    )


def _lists(column: pa.ChunkedArray, *, as_mask: bool) -> list[Int64]:
    """Return the rows of a list column, as 0 and 1 if `as_mask`; ValueError for nulls and what are no integers."""
    offsets = offsets_of(pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64))
    if offsets[-1] > _MAX_BATCH_VALUES:
        raise ValueError(f"{len(column)} rows have {offsets[-1]:,} values")
    flat = pc.list_flatten(column)
    kind = flat.type
    if nulls := column.null_count + flat.null_count:
        raise ValueError(f"{nulls} rows or values are null")
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or (as_mask and pa.types.is_floating(kind))):
        raise ValueError(f"expected whole numbers, found {kind}")
    values = (flat.to_numpy() != 0).astype(np.int64) if as_mask else flat.cast(pa.int64()).to_numpy()
    return [values[start:end] for start, end in pairwise(offsets.tolist())]
