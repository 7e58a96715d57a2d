"""Two documents, token by token."""

import difflib
from typing import Literal

import numpy as np
from tokenizers import Tokenizer

from packer.audit.diff.report import DocumentSide, LabelRun, TokenDiff
from packer.audit.runs import decode_runs
from packer.batches import Bool, Int32
from packer.layout import MASKED
from packer.store.document_shards import Document

BEFORE, _SHOWN, _BEHIND = 12, 24, 6
"""Tokens of which the text is given: before the first difference, of what differs, and behind that."""

_AGAIN = 4
"""Tokens in common that end a difference; fewer may be the same by chance."""

_WINDOW = 256
"""Tokens among which the end of a difference is looked for."""

_RUNS = 4
"""Runs of labels listed of each side."""


def compare_documents(old: Document, new: Document, tokenizers: tuple[Tokenizer, Tokenizer]) -> TokenDiff:
    """Where two documents part, and what is trained in one of them only.

    Worked example: ids 1 2 3 4 9 and 1 2 7 9 part at token 2; 3 4 became 7.
    """
    common = common_start(old.input_ids, new.input_ids)
    same_ids = common == old.length == new.length
    trained_old, trained_new = (document.labels[:common] != MASKED for document in (old, new))
    only_old, only_new = trained_old & ~trained_new, trained_new & ~trained_old
    what: Literal["ids", "labels", "weights"] = "weights"
    at = _first_weight(old, new) if same_ids else common
    num_old = num_new = 0
    if not same_ids:
        what = "ids"
        num_old, num_new = first_difference(old.input_ids[common:], new.input_ids[common:])
    elif (only_old | only_new).any():
        what, at = "labels", int(np.flatnonzero(only_old | only_new)[0])
    return TokenDiff(
        what=what,
        at=at,
        differs_again=not np.array_equal(old.input_ids[common + num_old :], new.input_ids[common + num_new :]),
        same_text=_whole(tokenizers[0], old) == _whole(tokenizers[1], new),
        old=_side(tokenizers[0], old, at, num_old),
        new=_side(tokenizers[1], new, at, num_new),
        trained_old=_label_runs(tokenizers[0], old.input_ids, only_old),
        trained_new=_label_runs(tokenizers[1], new.input_ids, only_new),
        num_trained_old=int(only_old.sum()),
        num_trained_new=int(only_new.sum()),
    )


def common_start(old: Int32, new: Int32) -> int:
    """Tokens that both begin with."""
    length = min(len(old), len(new))
    parted = np.flatnonzero(old[:length] != new[:length])
    return int(parted[0]) if len(parted) else length


def first_difference(old: Int32, new: Int32) -> tuple[int, int]:
    """How many ids at the start of each became how many of the other; their first ids differ, or one has none.

    Worked example: 1 2 3 4 5 6 and 7 3 4 5 6 8 give (2, 1): then 3 4 5 6 come in both.
    """
    end = common_start(old[::-1], new[::-1])
    ends = len(old) - end, len(new) - end
    windows = [ids[: min(length, _WINDOW)].tolist() for ids, length in zip((old, new), ends, strict=True)]
    blocks = difflib.SequenceMatcher(None, windows[0], windows[1], autojunk=False).get_matching_blocks()
    return next(((block.a, block.b) for block in blocks if block.size >= _AGAIN), ends)


def runs_of(mask: Bool) -> list[tuple[int, int]]:
    """Start and end of each run of True.

    Worked example: F T T F T gives (1, 3) and (4, 5).
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _first_weight(old: Document, new: Document) -> int:
    """First token whose weight differs; the documents differ in nothing else."""
    weights = [
        (document.labels != MASKED).astype(np.float32) if document.loss_weights is None else document.loss_weights
        for document in (old, new)
    ]
    parted = np.flatnonzero(weights[0] != weights[1])
    return int(parted[0]) if len(parted) else 0


def _side(tokenizer: Tokenizer, document: Document, at: int, num_differing: int) -> DocumentSide:
    first = max(0, at - BEFORE)
    shown = min(num_differing, _SHOWN)
    last = min(document.length, at + num_differing + _BEHIND) if shown == num_differing else at + shown
    borders = [0, at - first, at - first + shown, last - first]
    before, text, behind = decode_runs(tokenizer, document.input_ids[first:last], borders)
    return DocumentSide(
        doc_id=document.doc_id,
        length=document.length,
        num_trained=document.num_trained,
        before=before,
        num_differing=num_differing,
        text=text,
        input_ids=tuple(document.input_ids[at : at + shown].tolist()),
        behind=behind,
    )


def _label_runs(tokenizer: Tokenizer, input_ids: Int32, mask: Bool) -> tuple[LabelRun, ...]:
    return tuple(
        LabelRun(
            start=start,
            num_tokens=end - start,
            text=tokenizer.decode(input_ids[start : min(end, start + _SHOWN)].tolist(), skip_special_tokens=False),
            is_whole=end - start <= _SHOWN,
        )
        for start, end in runs_of(mask)[:_RUNS]
    )


def _whole(tokenizer: Tokenizer, document: Document) -> str:
    text: str = tokenizer.decode(document.input_ids.tolist(), skip_special_tokens=False)
    return text
