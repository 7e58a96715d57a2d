"""Rows that another tool prepared as text: one as runs, or an excerpt around some of its tokens."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from packer.audit.findings import Example
from packer.audit.foreign.row_parts import Range, TokenRow, find_parts
from packer.audit.foreign.tables import open_foreign
from packer.audit.foreign.tokenizer_facts import load_facts
from packer.audit.text_runs import Run
from packer.batches import Int64
from packer.errors import UsageError

_BEFORE, _AFTER, _MOST = 16, 8, 24
"""Tokens shown before a mark, after it, and of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRowView:
    """A row of a part."""

    part: str
    row: int
    num_rows: int
    length: int
    num_trained: int
    runs: tuple[Run, ...]


def view_foreign_row(
    path: Path | str,
    number: int,
    *,
    part: str | None = None,
    tokenizer: Path | str | None = None,
    template: Path | None = None,
) -> ForeignRowView:
    """Read a row for people; a run ends where training begins or ends, and where a sequence begins.

    Args:
        path: as :func:`audit_foreign` takes it.
        number: of the row in its part, from 0.
        part: the first where none is named.
        tokenizer: spells the ids, as :func:`audit_foreign` takes it.
        template: chat template the rows were made with; where it begins conversations with a BOS, runs begin there.

    Raises:
        UsageError: no such part or row, or a template without a tokenizer.
        InputError: it cannot be read.

    """
    facts = load_facts(tokenizer, template)
    _, parts = open_foreign(Path(path))
    found = parts[0] if part is None else next((each for each in parts if each.name == part), None)
    if found is None:
        there = ", ".join(each.name for each in parts if each.name) or "none, it is one part"
        raise UsageError(f"{path} has no part '{part}'", hint=f"parts: {there}")
    if not 0 <= number < len(found):
        raise UsageError(f"no row {number} in {path}", hint=f"rows are numbered 0 to {len(found) - 1}")
    (row,) = found.read([number])
    if row.columns_differ:
        raise UsageError(
            f"row {number} of {path}: its columns differ in length", hint="packer verify --foreign reports it"
        )
    row_parts, trained = find_parts(row, facts), row.trained
    kinds = np.where(row_parts.padding & ~trained, 2, trained)
    begins = row_parts.starts | row_parts.openings
    bounds = np.flatnonzero((np.diff(kinds, prepend=-1) != 0) | begins).tolist()
    runs = tuple(
        Run(
            kind=("masked", "trained", "padding")[int(kinds[start])],
            start=start,
            num_tokens=end - start,
            text=spelled(row.input_ids[start:end], facts.backend),
            message=None,
            weight=None,
            input_ids=tuple(row.input_ids[start:end].tolist()),
        )
        for start, end in pairwise([*bounds, len(kinds)])
    )
    num_trained = int(trained.sum())
    return ForeignRowView(
        part=found.name, row=number, num_rows=len(found), length=len(kinds), num_trained=num_trained, runs=runs
    )


def excerpt(row: TokenRow, marked: Range | None, backend: Tokenizer | None, part: str) -> Example:
    """Some tokens of a row and what stands around them; without a tokenizer their ids."""
    where = f"{part} row {row.number:,}".strip()
    if marked is None:
        return Example(label=where, text="")
    start, end = marked
    shown = min(end, start + _MOST)
    pieces = [(max(0, start - _BEFORE), start), (start, shown), (end, end + _AFTER)]
    before, text, after = (spelled(row.input_ids[a:b], backend) for a, b in pieces)
    text += "…" if end > shown else ""
    note = f"token {start:,}" if end - start == 1 else f"tokens {start:,} to {end - 1:,}"
    return Example(label=where, text=before + text + after, mark=(len(before), len(before) + len(text)), note=note)


def spelled(ids: Int64, backend: Tokenizer | None) -> str:
    """Text of some ids, special tokens written out; an id that is in no vocabulary is written as a number."""
    if backend is None:
        return "".join(f"{i} " for i in ids.tolist())
    size = backend.get_vocab_size(with_added_tokens=True)
    text, known = "", []
    for token in ids.tolist():
        if 0 <= token < size:
            known.append(token)
            continue
        text += f"{backend.decode(known, skip_special_tokens=False)}[{token}]"
        known = []
    text += backend.decode(known, skip_special_tokens=False)
    return text
