"""Which tokens of some rows are prompt, header or answer, where sequences begin, and what is padding: flat arrays."""

from dataclasses import dataclass

import numpy as np

from packer.audit.foreign.foreign_rows import LABELLING, ForeignRows
from packer.audit.foreign.tokenizer_facts import Known
from packer.batches import Bool, Int64

PROMPT, HEADER, ANSWER, BEHIND, LEFT = 0, 1, 2, 3, 4
"""What a token is: of the prompt; of an answer's header; of the answer, its stop token included; white space behind;
or left of a message that began in another row, which nobody can know to be prompt or answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """K tokens, R rows."""

    row_of: Int64  # [K]
    row_end: Int64  # [K] where the token's row ends
    kinds: Int64  # [K] as above; all PROMPT where headers are not known
    left: Int64  # [R, 2] of each row what is left of a message that began in another: empty where it begins with one
    answers: Int64  # [A, 2] of each header that was found: where its answer begins and ends
    headers: Int64  # [A, 2] where each header begins, and where its control tokens end
    padding: Bool  # [K]
    content: Int64  # [R] first token of each row that is no padding; where a row is all padding, its end
    starts: Bool  # [K] where sequences begin by what the columns say, first tokens of rows among them
    openings: Bool  # [K] where the ids show that a conversation begins, behind the beginning of a row
    disagree: Bool  # [R] rows whose columns contradict each other on borders


def find_places(rows: ForeignRows, known: Known) -> Places:
    """Work all of it out."""
    ids = rows.input_ids
    row_of, lengths = rows.row_of, np.diff(rows.offsets)
    row_end = np.repeat(rows.offsets[1:], lengths)
    padding = _padding(rows, known)
    content = _first_content(rows, padding)
    starts, disagree = _starts(rows, row_of, padding, known)
    is_space = np.isin(ids, known.space_ids)
    headers = _matches(ids, known.header, row_of)
    answers, kinds = _answers(rows, headers, is_space, known, row_end)
    left = _left(rows, headers, is_space, known, content)
    kinds[_between(left, len(ids))] = LEFT
    return Places(
        row_of=row_of,
        row_end=row_end,
        kinds=kinds,
        left=left,
        answers=answers,
        headers=np.stack([headers, headers + len(known.header)], axis=1),
        padding=padding,
        content=content,
        starts=starts,
        openings=_openings(ids, known, content),
        disagree=disagree,
    )


def next_true(mask: Bool) -> Int64:
    """The first place at or after each that is True; the number of places where there is none.  # int64[K]

    Worked example: . x . x . gives 1 1 3 3 5.
    """
    places = np.where(mask, np.arange(len(mask)), len(mask))
    found: Int64 = np.minimum.accumulate(places[::-1])[::-1]
    return found


def _matches(ids: Int64, sequence: Int64, row_of: Int64) -> Int64:
    """Where a sequence of ids begins, whole within a row."""
    last = len(ids) - len(sequence)
    if not len(sequence) or last < 0:
        return np.zeros(0, np.int64)
    found = row_of[: last + 1] == row_of[len(sequence) - 1 :]
    for shift, token in enumerate(sequence.tolist()):
        found &= ids[shift : shift + last + 1] == token
    return np.flatnonzero(found)


def _answers(rows: ForeignRows, headers: Int64, is_space: Bool, known: Known, row_end: Int64) -> tuple[Int64, Int64]:
    """Of each header where its answer begins and ends, and what each token is.

    An answer begins with the first token behind the header that is not white space, as white space of the two may
    have merged; it ends with the first stop token, or where the next header or the end of the row comes before one.
    """
    total = len(rows.input_ids)
    kinds = np.zeros(total, np.int64)
    if not len(headers):
        return np.zeros((0, 2), np.int64), kinds
    solid = next_true(~is_space)
    stops = np.append(next_true(np.isin(rows.input_ids, known.stop_ids)), total)
    limits = np.minimum(row_end[headers], np.append(headers[1:], total))
    behind = headers + len(known.header)
    begins = np.minimum(np.append(solid, total)[behind], limits)
    ends = np.minimum(stops[begins] + 1, limits)
    closed = stops[begins] < limits
    after = np.where(closed, np.minimum(np.append(solid, total)[np.minimum(ends, total)], row_end[headers]), ends)
    for first, last, kind in ((headers, begins, HEADER), (begins, ends, ANSWER), (ends, after, BEHIND)):
        kinds[_between(np.stack([first, last], axis=1), total)] = kind
    return np.stack([begins, ends], axis=1), kinds


def _between(ranges: Int64, total: int) -> Bool:
    """Tokens within some ranges.  # bool[total]"""
    steps = np.zeros(total + 1, np.int64)
    np.add.at(steps, ranges[:, 0], 1)
    np.add.at(steps, ranges[:, 1], -1)
    found: Bool = np.cumsum(steps[:-1]) > 0
    return found


def _left(rows: ForeignRows, headers: Int64, is_space: Bool, known: Known, content: Int64) -> Int64:
    """What rows begin with that do not begin as conversations do.

    It goes on to the first stop token and the white space behind it, or to where a message begins: with a token that
    opens conversations, or with a header.
    """
    ids, ends = rows.input_ids, rows.offsets[1:]
    begins = np.append(np.isin(ids, known.openings), True)
    whole = begins[content] | (content >= ends) | (not len(known.openings))
    begins[headers] = True
    solid = np.append(next_true(~is_space), len(ids))
    stops = np.append(next_true(np.isin(ids, known.stop_ids)), len(ids))
    closed = solid[np.minimum(stops[content] + 1, len(ids))]
    until = np.minimum(np.minimum(closed, next_true(begins)[content]), ends)
    return np.stack([content, np.where(whole, content, until)], axis=1)


def _padding(rows: ForeignRows, known: Known) -> Bool:
    """Where attention_mask is 0; without one, pad ids at the end of a row, and at its beginning.

    Where the pad token is a stop token too, the first of those at the end may end an answer, and is not counted.
    """
    mask = rows.columns.get("attention_mask")
    if mask is not None and (mask == 0).any():
        is_padding: Bool = mask == 0
        return is_padding
    padding = np.zeros(len(rows.input_ids), np.bool_)
    if known.model is None or not len(padding):
        return padding
    other = rows.input_ids != known.model.pad_id
    first = np.append(next_true(other), len(other))
    last = len(other) - np.append(next_true(other[::-1]), len(other))[::-1]  # one behind the last other, per place
    starts, ends = rows.offsets[:-1], rows.offsets[1:]
    tail = np.maximum(last[ends], starts)
    tail = np.where(tail == starts, ends, tail)  # a row of nothing but pads has ids like any other
    is_stop = known.model.pad_id in known.model.stop_ids
    tail = np.minimum(tail + is_stop, ends)
    lead = np.where(first[starts] < ends, first[starts], starts)
    if is_stop:
        lead = np.where(lead - starts >= 2, lead, starts)
    ranges = np.concatenate([np.stack([tail, ends], axis=1), np.stack([starts, lead], axis=1)])
    return _between(ranges, len(padding))


def _first_content(rows: ForeignRows, padding: Bool) -> Int64:
    first = np.append(next_true(~padding), len(padding))
    content: Int64 = np.minimum(first[rows.offsets[:-1]], rows.offsets[1:])
    return content


def _starts(rows: ForeignRows, row_of: Int64, padding: Bool, known: Known) -> tuple[Bool, Bool]:
    """Where sequences begin by seq_lengths, else by position_ids, else by numbers in attention_mask."""
    total, num_rows = len(rows.input_ids), len(rows.numbers)
    of_row = np.zeros(total, np.bool_)
    of_row[rows.offsets[:-1][np.diff(rows.offsets) > 0]] = True
    disagree = np.zeros(num_rows, np.bool_)
    stated: list[Bool] = []
    mask = rows.columns.get("attention_mask")
    seen = np.ones(total, np.bool_) if mask is None else mask != 0  # positions of padding say nothing
    if rows.seq_lengths is not None:
        found, wrong, left_out = _of_lengths(rows, of_row, padding, known)
        stated.append(found)
        disagree |= wrong
        seen &= ~left_out
    positions = rows.columns.get("position_ids")
    if positions is not None:
        found = of_row | ((positions == 0) & seen)
        step = np.diff(positions, prepend=-1)
        disagree[row_of[(positions != 0) & (of_row | (step != 1)) & seen]] = True
        stated.append(found)
    if mask is not None and (mask > 1).any():
        stated.append(of_row | (np.diff(mask, prepend=-1) != 0))
    for other in stated[1:]:
        disagree[row_of[(other != stated[0]) & seen]] = True
    return (stated[0] if stated else of_row), disagree


def _of_lengths(rows: ForeignRows, of_row: Bool, padding: Bool, known: Known) -> tuple[Bool, Bool, Bool]:
    """Where sequences begin, which rows the lengths do not fit, and the padding at their ends that no length is of."""
    assert rows.seq_lengths is not None
    values, offsets = rows.seq_lengths
    counts, lengths = np.diff(offsets), np.diff(rows.offsets)
    of_run = np.repeat(np.arange(len(counts)), counts)
    wrong = np.zeros(len(counts), np.bool_)
    wrong[of_run[(values <= 0) | (values > lengths[of_run])]] = True
    values = np.where(wrong[of_run], 0, values)  # a sum of any numbers might wrap round to one that fits
    sums = np.zeros(len(counts), np.int64)
    np.add.at(sums, of_run, values)
    short = ~wrong & (sums < lengths)
    tails = np.stack([rows.offsets[:-1] + np.where(short, sums, lengths), rows.offsets[1:]], axis=1)
    is_padding = _are_padding(rows, tails, padding, known)
    wrong |= (sums != lengths) & ~(short & is_padding)
    ends = np.cumsum(np.where(wrong[of_run], 0, values))
    before = np.repeat(np.concatenate([np.zeros(1, np.int64), ends])[offsets[:-1]], counts)
    places = rows.offsets[:-1][of_run] + ends - values - before
    starts = of_row.copy()
    starts[places[~wrong[of_run]]] = True
    return starts, wrong, _between(tails[short & is_padding], len(of_row))


def _are_padding(rows: ForeignRows, tails: Int64, padding: Bool, known: Known) -> Bool:
    """Whether each end of a row is padding.  # bool[R]

    It is where all of it is known to be; or where it is not trained, repeats one id, and that is the pad id, a stop id,
    or of a tokenizer that nobody named.
    """
    starts, ends = tails[:, 0], tails[:, 1]
    ids = np.append(rows.input_ids, 0)
    pads = ids[starts]
    other = np.append(rows.input_ids != np.repeat(pads, np.diff(rows.offsets)), True)
    of_one = np.append(next_true(other), len(other))[starts] >= ends
    if known.model is not None:
        of_one &= np.isin(pads, [known.model.pad_id, *known.model.stop_ids])
    masked = ~rows.trained if {*rows.columns}.intersection(LABELLING) else np.ones(len(padding), np.bool_)
    return ~any_in(~padding, tails) | (of_one & ~any_in(~masked, tails))


def any_in(mask: Bool, ranges: Int64) -> Bool:
    """Ranges with a True in them.  # bool[H]"""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(mask)])
    found: Bool = sums[ranges[:, 1]] > sums[ranges[:, 0]]
    return found


def _openings(ids: Int64, known: Known, content: Int64) -> Bool:
    """Where a BOS stands that is not its row's first; one right behind another is doubled, and opens nothing."""
    found = np.zeros(len(ids), np.bool_)
    if not known.bos_opens:
        return found
    found[:] = ids == known.bos_id
    found[1:] &= ids[:-1] != known.bos_id
    found[content[content < len(ids)]] = False
    return found
