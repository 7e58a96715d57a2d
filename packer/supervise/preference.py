"""Preference data: each side of a pair is processed like a chat, and then both are joined or dropped together.

A pair is two answers to one request. Both sides go through rendering, tokenizing and their proofs as separate rows,
so that what is trained of an answer is defined only once. The ids must confirm that they are a pair: up to the first
trained token, both sides are identical.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np

from packer.batches import (
    CHOSEN,
    DESIRABLE,
    REJECTED,
    SIDES,
    UNDESIRABLE,
    DocumentBatch,
    Int32,
    Int64,
    Rejection,
    RowBatch,
    TurnBatch,
    num_common_messages,
)
from packer.layout import select_documents

Sides = TypeVar("Sides", int, Int32)

_SIDES_PER_ROW = 2
"""The sides of row r are the rows 2r and 2r + 1; a rated answer is 2r alone."""


def split_sides(rows: RowBatch) -> RowBatch:
    """Return the sides of rows that have some as separate rows, the chosen side of a pair before the rejected one."""
    samples = [
        msgspec.structs.replace(side, row=_SIDES_PER_ROW * sample.row + number, preference=None)
        for sample in rows.samples
        for number, side in enumerate(sample.sides)
    ]
    return RowBatch(samples=tuple(samples), rejections=(), num_rows=len(samples), folder=rows.folder)


def row_of_side(side: Sides) -> Sides:
    """Return the row, or rows, that a side belongs to; -1 stays -1."""
    return side // _SIDES_PER_ROW


def join_sides(
    rows: RowBatch,
    turns: TurnBatch,
    documents: DocumentBatch,
    rejections: Sequence[Rejection],
) -> tuple[DocumentBatch, tuple[Rejection, ...]]:
    """Join the sides of each row again; all but the rows are of the sides, from :func:`split_sides`.

    Returns:
        The documents of the rows all of whose sides have one, each chosen one right before its rejected one; and why
        the other rows have none: the reason of their first side, `pair_rewritten`, `pair_modes_differ`,
        `pair_prompt_differs` or `pair_identical`.
    """
    rejection_by_side: dict[int, Rejection] = {}
    for rejection in rejections:
        rejection_by_side.setdefault(rejection.row, rejection)
    rows_of_sides, first, count = np.unique(documents.sample, return_index=True, return_counts=True)
    first_document = dict(zip(rows_of_sides.tolist(), first.tolist(), strict=True))
    num_documents = dict(zip(rows_of_sides.tolist(), count.tolist(), strict=True))
    prompts = _prompts(turns)
    kept: list[int] = []
    side: list[int] = []
    rejected: list[Rejection] = []
    for sample in rows.samples:
        preference = sample.preference
        assert preference is not None, "a partition has one schema"
        rating = DESIRABLE if preference.is_desirable else UNDESIRABLE
        names = (rating,) if preference.rejected is None else (CHOSEN, REJECTED)
        sides = {_SIDES_PER_ROW * sample.row + number: name for number, name in enumerate(names)}
        reason = _refused_side(sample.row, sides, rejection_by_side, num_documents)
        if reason is None and preference.rejected is not None:
            num_common = num_common_messages(sample.messages, preference.rejected.messages)
            numbers = [first_document[each] for each in sides]
            reason = _mismatch(sample.row, num_common, documents, numbers, [prompts[each] for each in sides])
        if reason is not None:
            rejected.append(reason)
            continue
        kept += [first_document[each] for each in sides]
        side += names
    chosen = select_documents(documents, np.array(kept, np.int64))
    return (
        replace(
            chosen,
            sample=(chosen.sample // _SIDES_PER_ROW).astype(np.int32),
            side=np.array(side, np.int8),
        ),
        tuple(rejected),
    )


def _refused_side(
    row: int, sides: Mapping[int, int], rejection_by_side: Mapping[int, Rejection], num_documents: Mapping[int, int]
) -> Rejection | None:
    """Return why a row is rejected for one of its sides, if it is; `sides`: what each is, by its row."""
    for each, name in sides.items():
        if (rejection := rejection_by_side.get(each)) is not None:
            reason = rejection.reason if len(sides) == 1 else f"{SIDES[name]}: {rejection.reason}"
            return msgspec.structs.replace(rejection, row=row, reason=reason)
    for each, name in sides.items():
        if (count := num_documents[each]) > 1:
            reason = f"the {SIDES[name]} answer needs {count} documents, as its later turns rewrite its earlier ones"
            return Rejection(row=row, code="pair_rewritten", reason=reason)
    return None


def _mismatch(
    row: int, num_common: int, documents: DocumentBatch, numbers: Sequence[int], prompts: Sequence[tuple[int, bytes]]
) -> Rejection | None:
    """Return why two sides are not a pair: their prompts differ, or nothing does."""
    starts = [int(documents.run_start[documents.run_offsets[number]]) for number in numbers]
    ends = [int(documents.run_end[documents.run_offsets[number + 1] - 1]) for number in numbers]
    places = zip(documents.offsets[numbers].tolist(), ends, strict=True)
    ids = [documents.input_ids[at : at + end] for at, end in places]  # up to the last that is trained
    same_prompt = np.array_equal(ids[0][: starts[0]], ids[1][: starts[1]])
    if same_prompt and not np.array_equal(ids[0], ids[1]):
        return None
    messages, texts = zip(*prompts, strict=True)
    if texts[0] != texts[1]:
        if max(messages) > num_common:
            reason = "the trained text follows untrained turns of the answers, and these turns differ"
            return Rejection(row=row, code="pair_prompt_differs", reason=reason)
        # Where two prompts for one conversation differ, the text is the template's, not the row's.
        shared = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
        chosen, other = (text[shared:].decode(errors="replace").replace("\n", "\\n") for text in texts)
        reason = f"the prompt of the chosen answer ends in '{chosen}', that of the rejected one in '{other}'"
        return Rejection(row=row, code="pair_modes_differ", reason=reason)
    if not same_prompt:
        differ = np.flatnonzero(ids[0][: min(starts)] != ids[1][: min(starts)])
        at = int(differ[0]) if len(differ) else min(starts)
        reason = (
            f"the prompts differ at token {at}: {ids[0][at]} before the chosen answer, "
            f"{ids[1][at]} before the rejected one"
        )
        return Rejection(row=row, code="pair_prompt_differs", reason=reason)
    return Rejection(
        row=row, code="pair_identical", reason="both sides are the same tokens, as far as they are trained"
    )


def _prompts(turns: TurnBatch) -> dict[int, tuple[int, bytes]]:
    """Return, for each side, the message index of its first turn and that turn's prompt."""
    row = turns.sample[turns.turn_text]
    order = np.lexsort((turns.turn_message, row))
    sides, firsts = np.unique(row[order], return_index=True)
    starts: Int64 = turns.text_offsets[turns.turn_text]
    return {
        side: (int(turns.turn_message[turn]), turns.text[starts[turn] : starts[turn] + turns.prompt_end[turn]])
        for side, turn in zip(sides.tolist(), order[firsts].tolist(), strict=True)
    }
