"""The text a finding is about, with what stands around it."""

import numpy as np
from tokenizers import Tokenizer

from packer.audit.foreign.dataset import ForeignRows
from packer.audit.lint.lint_report import Example
from packer.batches import Int64

_BEFORE, _AFTER, _MOST = 16, 8, 24
"""Tokens shown before a mark and behind it, and of it."""


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
