"""Foreign rows as text: one as runs, trained and masked, or the few tokens a finding is about."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from packer.audit.foreign.foreign_rows import ForeignPart, ForeignRows
from packer.audit.foreign.formats import open_foreign
from packer.audit.foreign.token_kinds import find_places
from packer.audit.foreign.tokenizer_facts import find_known
from packer.audit.lint.lint_report import Example
from packer.audit.text_runs import Run
from packer.backend import load_backend
from packer.batches import Int64
from packer.errors import UsageError
from packer.model import TOKENIZER_FILE

_BEFORE, _AFTER, _MOST = 16, 8, 24
"""Tokens shown before a mark and behind it, and of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRow:
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
    with_ids: bool = False,
) -> ForeignRow:
    """Read a row for people; a run ends where training begins or ends, and where a sequence begins.

    Args:
        path: as :func:`look_at` takes it.
        number: of the row in its part, from 0.
        part: the first where none is named.
        tokenizer: spells the ids, as :func:`look_at` takes it.
        template: chat template the rows were made with; where it begins conversations with a BOS, runs begin there.
        with_ids: keep the ids of every run.

    Raises:
        UsageError: no such part or row, or a template without a tokenizer.
        InputError: it cannot be read.

    """
    known = find_known(tokenizer, template)
    _, parts = open_foreign(Path(path), known.model)
    found = _part(Path(path), parts, part)
    if not 0 <= number < len(found):
        raise UsageError(f"no row {number} in {path}", hint=f"rows are numbered 0 to {len(found) - 1}")
    rows = found.read(np.array([number], np.int64))
    if len(rows.unequal):
        raise UsageError(
            f"row {number} of {path}: its columns differ in length", hint="packer verify --foreign tells more"
        )
    backend = None if known.model is None else load_backend(known.model.files[TOKENIZER_FILE])
    places, trained = find_places(rows, known), rows.trained
    kinds = np.where(places.padding & ~trained, 2, trained)
    changes = np.flatnonzero((np.diff(kinds) != 0) | places.starts[1:] | places.openings[1:]) + 1
    borders = [0, *changes.tolist(), len(kinds)] if len(kinds) else [0]
    runs = tuple(
        Run(
            kind=("masked", "trained", "padding")[int(kinds[start])],
            start=start,
            num_tokens=end - start,
            text=spelled(rows.input_ids[start:end], backend),
            message=None,
            weight=None,
            input_ids=tuple(rows.input_ids[start:end].tolist()) if with_ids else (),
        )
        for start, end in pairwise(borders)
    )
    return ForeignRow(
        part=found.name, row=number, num_rows=len(found), length=len(kinds), num_trained=int(trained.sum()), runs=runs
    )


def _part(path: Path, parts: tuple[ForeignPart, ...], name: str | None) -> ForeignPart:
    if name is None:
        return parts[0]
    for part in parts:
        if part.name == name:
            return part
    there = ", ".join(part.name for part in parts if part.name) or "none, it is one part"
    raise UsageError(f"{path} has no part '{name}'", hint=f"parts: {there}")


def excerpt(rows: ForeignRows, start: int, end: int, backend: Tokenizer | None, part: str) -> Example:
    """Some tokens of a row; without a tokenizer their ids."""
    row = int(np.searchsorted(rows.offsets, start, side="right")) - 1
    first, last = int(rows.offsets[row]), int(rows.offsets[row + 1])
    end = min(end, last)
    pieces = [(max(first, start - _BEFORE), start), (start, min(end, start + _MOST)), (end, min(last, end + _AFTER))]
    before, marked, after = (spelled(rows.input_ids[a:b], backend) for a, b in pieces)
    if end - start > _MOST:
        marked += "…"
    where = f"{part} row {int(rows.numbers[row]):,}".strip()
    note = f"token {start - first:,}" if end - start == 1 else f"tokens {start - first:,} to {end - first - 1:,}"
    return Example(label=where, text=before + marked + after, mark=(len(before), len(before) + len(marked)), note=note)


def spelled(ids: Int64, backend: Tokenizer | None) -> str:
    """Text of some ids, special tokens written out; an id that is in no vocabulary is written as a number."""
    if backend is None:
        return "".join(f"{i} " for i in ids.tolist())
    known = backend.get_vocab_size(with_added_tokens=True)
    text, run = "", []
    for token in ids.tolist():
        if 0 <= token < known:
            run.append(token)
            continue
        text += (backend.decode(run, skip_special_tokens=False) if run else "") + f"[{token}]"
        run = []
    return text + (backend.decode(run, skip_special_tokens=False) if run else "")
