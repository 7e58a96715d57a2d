"""Each check over flat arrays: what it finds, as ranges of tokens or as rows."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np

from packer.audit.foreign.foreign_rows import ForeignRows
from packer.audit.foreign.token_kinds import ANSWER, BEHIND, HEADER, LEFT, PROMPT, Places, any_in, next_true
from packer.audit.foreign.tokenizer_facts import Known
from packer.batches import Bool, Int64
from packer.layout import MASKED

MUCH = 0.1
"""A share of padding from which it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """What a check found."""

    code: str
    count: int
    """In the unit of the code."""

    rows: Int64
    """Numbers of the rows, ascending, each once."""

    ranges: Int64  # [H, 2]
    """Tokens, flat, of the first few findings; empty where there is nothing to point at."""


SHOWN = 3
"""Ranges that are kept of a finding."""


def check(rows: ForeignRows, places: Places, known: Known) -> Iterator[Hits]:
    """All findings in some rows."""
    trained = rows.trained
    if len(rows.unequal):
        nothing = np.zeros((0, 2), np.int64)
        yield Hits(code="columns_differ", count=len(rows.unequal), rows=rows.unequal, ranges=nothing)
    yield from _ids(rows, known)
    shifted = yield from _labels(rows, places)
    # Of labels that are no copy of the ids nothing can be said about what they train.
    learned = trained & ~shifted[places.row_of] if len(shifted) else trained
    yield from _empty_rows(rows, trained)
    yield from _tokens(rows, "padding_trained", learned & places.padding)
    learned = learned & ~places.padding
    if len(known.header):
        yield from _chat(rows, places, learned, shifted)
    if len(known.stop_ids):
        yield from _terminators(rows, places, known, learned, shifted)
    yield from _beginnings(rows, places, known)
    yield from _borders(rows, places, trained)
    share = places.padding.mean() if len(places.padding) else 0.0
    if share > MUCH:
        yield from _tokens(rows, "much_padding", places.padding)


def _ids(rows: ForeignRows, known: Known) -> Iterator[Hits]:
    outside = rows.input_ids < 0
    if known.model is not None:
        outside |= rows.input_ids >= known.model.vocab_size
    yield from _tokens(rows, "ids_outside", outside)


def _labels(rows: ForeignRows, places: Places) -> Generator[Hits, None, Bool]:
    """Labels that are not their token's id; returns which rows are shifted.

    A row is shifted where a label differs from its id and every label but the row's last is the id that follows.
    """
    shifted = np.zeros(len(rows.numbers), np.bool_)
    labels = rows.labels
    if labels is None:
        return shifted
    ids = rows.input_ids
    wrong = (labels != MASKED) & (labels != ids)
    if not wrong.any():
        return shifted
    follows = np.append(ids[1:], MASKED)
    is_last = np.zeros(len(ids), np.bool_)
    is_last[rows.offsets[1:][np.diff(rows.offsets) > 0] - 1] = True
    other = wrong & (labels != follows) & ~is_last
    not_followed = (labels != MASKED) & (labels != follows) & ~is_last
    has_wrong = _has(rows, places, wrong & ~is_last)
    shifted = has_wrong & ~_has(rows, places, other) & ~_has(rows, places, not_followed)
    if shifted.any():
        first = _first_in_rows(rows, wrong, shifted)
        yield Hits(code="labels_shifted", count=int(shifted.sum()), rows=rows.numbers[shifted], ranges=first)
    yield from _tokens(rows, "labels_foreign", wrong & ~shifted[places.row_of])
    return shifted


def _empty_rows(rows: ForeignRows, trained: Bool) -> Iterator[Hits]:
    """Rows without a target; the label of a row's first token is none."""
    targets = trained.copy()
    targets[rows.offsets[:-1][np.diff(rows.offsets) > 0]] = False
    counts = np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(targets)])[rows.offsets])
    empty = counts == 0
    if empty.any():
        starts, ends = rows.offsets[:-1][empty], rows.offsets[1:][empty]
        ranges = np.stack([starts, np.minimum(starts + 12, ends)], axis=1)[starts < ends][:SHOWN]
        yield Hits(code="nothing_trained", count=int(empty.sum()), rows=rows.numbers[empty], ranges=ranges)


def _chat(rows: ForeignRows, places: Places, trained: Bool, shifted: Bool) -> Iterator[Hits]:
    """What is trained of prompts, headers and answers, in the rows where a header was found."""
    has_header = _has_header(rows, places)
    is_left = places.left[:, 0] < places.left[:, 1]
    lost = ~has_header & (np.diff(rows.offsets) > 0)
    if has_header.any():
        lost &= ~is_left  # the template is the right one, and the header is in another row
    else:
        is_left[:] = False  # the rows may have been made with another one, which begins conversations otherwise
    if lost.any():
        starts, ends = rows.offsets[:-1][lost], rows.offsets[1:][lost]
        ranges = np.stack([starts, np.minimum(starts + 12, ends)], axis=1)[:SHOWN]
        yield Hits(code="no_header", count=int(lost.sum()), rows=rows.numbers[lost], ranges=ranges)
    # The first token of a row is nobody's target, whatever its label says.
    targets = trained.copy()
    targets[rows.offsets[:-1][np.diff(rows.offsets) > 0]] = False
    known = targets & has_header[places.row_of]
    begun = places.left[is_left]
    yield from _ranges(rows, places, "beginning_cut", begun[any_in(targets, begun)])
    yield from _tokens(rows, "prompt_trained", known & (places.kinds == PROMPT))
    yield from _ranges(rows, places, "header_trained", places.headers[any_in(known, places.headers)])
    yield from _tokens(rows, "after_terminator", known & (places.kinds == BEHIND))
    spoken = places.answers[places.answers[:, 0] < places.answers[:, 1]]
    spoken = spoken[~shifted[places.row_of[spoken[:, 0]]]]
    yield from _ranges(rows, places, "answers_masked", spoken[~any_in(trained, spoken)])
    assert set(np.unique(places.kinds)) <= {PROMPT, HEADER, ANSWER, BEHIND, LEFT}


def _terminators(rows: ForeignRows, places: Places, known: Known, trained: Bool, shifted: Bool) -> Iterator[Hits]:
    """How runs of trained tokens end: in a stop token, white space behind it left aside, or before one, or openly."""
    ids = rows.input_ids
    if not len(ids):
        return
    border = places.starts | places.openings
    before = np.concatenate([np.zeros(1, np.bool_), trained[:-1]])
    begins = np.flatnonzero(trained & (~before | border))
    after = np.concatenate([trained[1:] & ~border[1:], np.zeros(1, np.bool_)])
    ends = np.flatnonzero(trained & ~after) + 1
    solid = ~np.isin(ids, known.space_ids)
    last = len(ids) - 1 - next_true(solid[::-1])[::-1]  # the last token at or before each that is not white space
    closing = np.maximum(last[ends - 1], begins)
    is_stop = np.isin(ids, known.stop_ids)
    is_open = ~is_stop[closing] & ~shifted[places.row_of[begins]]
    # A prompt that is trained ends in no stop token by right; where headers are known, answers alone are meant.
    # (White space right behind a header may be the beginning of an answer that was cut there.)
    of_answer = (places.kinds[closing] == ANSWER) | ((places.kinds[closing] == HEADER) & ~solid[closing])
    is_open &= of_answer | ~_has_header(rows, places)[places.row_of[begins]]
    inside = (ends < places.row_end[begins]) & ~np.append(border, True)[ends]
    stops_next = np.zeros(len(ends), np.bool_)
    stops_next[inside] = is_stop[ends[inside]] & ~places.padding[ends[inside]]
    runs = np.stack([begins, ends], axis=1)
    masked = is_open & stops_next
    shown = np.stack([ends, ends + 1], axis=1)
    yield from _ranges(rows, places, "terminator_masked", shown[masked])
    cut = runs[is_open & ~stops_next]
    tails = np.stack([np.maximum(cut[:, 0], cut[:, 1] - 8), cut[:, 1]], axis=1)
    yield from _ranges(rows, places, "no_terminator", tails)


def _beginnings(rows: ForeignRows, places: Places, known: Known) -> Iterator[Hits]:
    """BOS at the beginning of rows and of sequences within them."""
    if known.bos_id is None or not len(rows.input_ids):
        return
    is_bos = rows.input_ids == known.bos_id
    begins = places.starts | places.openings
    begins[rows.offsets[:-1][np.diff(rows.offsets) > 0]] = False
    content = places.content[places.content < rows.offsets[1:]]
    begins[content] = True
    doubled = np.flatnonzero(is_bos[:-1] & is_bos[1:] & begins[:-1] & (places.row_of[:-1] == places.row_of[1:]))
    yield from _ranges(rows, places, "bos_doubled", np.stack([doubled, doubled + 2], axis=1))
    if known.writes_bos:
        without = content[~is_bos[content]]
        yield from _ranges(rows, places, "bos_missing", np.stack([without, without + 1], axis=1))


def _borders(rows: ForeignRows, places: Places, trained: Bool) -> Iterator[Hits]:
    """Several sequences in a row: whether anything says so, and says the same, and whether a target crosses."""
    if places.disagree.any():
        numbers = rows.numbers[places.disagree]
        nothing = np.zeros((0, 2), np.int64)
        yield Hits(code="borders_disagree", count=len(numbers), rows=numbers, ranges=nothing)
    unmarked = np.flatnonzero(places.openings & ~places.starts)
    yield from _ranges(rows, places, "borders_missing", np.stack([np.maximum(unmarked - 4, 0), unmarked + 1], axis=1))
    inner = places.starts | places.openings
    inner[rows.offsets[:-1][np.diff(rows.offsets) > 0]] = False
    crossing = np.flatnonzero(inner & trained & ~places.padding)
    yield from _ranges(rows, places, "border_trained", np.stack([crossing, crossing + 1], axis=1))


def _has_header(rows: ForeignRows, places: Places) -> Bool:
    """Rows in which the header of an answer was found.  # bool[R]"""
    found = np.zeros(len(rows.numbers), np.bool_)
    found[places.row_of[places.headers[:, 0]]] = True
    return found


def _has(rows: ForeignRows, places: Places, mask: Bool) -> Bool:
    """Rows with a token where the mask is True.  # bool[R]"""
    found = np.zeros(len(rows.numbers), np.bool_)
    found[places.row_of[mask]] = True
    return found


def _first_in_rows(rows: ForeignRows, mask: Bool, wanted: Bool) -> Int64:
    """The first token of some rows where a mask is True, as ranges of one."""
    first = np.append(next_true(mask), len(mask))[rows.offsets[:-1][wanted]][:SHOWN]
    return np.stack([first, first + 1], axis=1)


def _tokens(rows: ForeignRows, code: str, mask: Bool) -> Iterator[Hits]:
    """A finding of tokens: how many, in which rows, and the first runs of them in rows of their own."""
    if not mask.any():
        return
    row_of = rows.row_of
    found = np.unique(row_of[mask])
    starts = np.append(next_true(mask), len(mask))[rows.offsets[found[:SHOWN]]]
    limits = rows.offsets[found[:SHOWN] + 1]
    ends = np.minimum(np.append(next_true(~mask), len(mask))[starts], limits)
    yield Hits(code=code, count=int(mask.sum()), rows=rows.numbers[found], ranges=np.stack([starts, ends], axis=1))


def _ranges(rows: ForeignRows, places: Places, code: str, ranges: Int64) -> Iterator[Hits]:
    """A finding of ranges, counted one by one."""
    if len(ranges):
        found = np.unique(places.row_of[np.minimum(ranges[:, 1] - 1, len(places.row_of) - 1)])
        yield Hits(code=code, count=len(ranges), rows=rows.numbers[found], ranges=ranges[:SHOWN])
