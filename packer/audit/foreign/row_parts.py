"""One row that another tool prepared, and its parts: prompts, headers, answers, sequences and padding."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from packer.audit.foreign.tokenizer_facts import TokenizerFacts
from packer.batches import Bool, Int64
from packer.layout import MASKED

MASKS = ("completion_mask", "assistant_masks", "loss_mask")
TOKEN_COLUMNS = ("labels", *MASKS, "position_ids", "attention_mask")
"""Supported columns that have one value for each token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One row. n tokens."""

    number: int
    """Index in its part, from 0."""

    input_ids: Int64  # [n]
    columns: dict[str, Int64]  # TOKEN_COLUMNS by name; [n] each, unless the tool that prepared them made a mistake
    seq_lengths: Int64 | None = None

    @property
    def columns_differ(self) -> bool:
        """Whether a column has more or fewer values than there are ids, or `seq_lengths` are of a longer row.

        They may leave out the padding.
        """
        num_ids, lengths = len(self.input_ids), self.seq_lengths
        if any(len(values) != num_ids for values in self.columns.values()):
            return True
        # Each length is bounded first: the sum of arbitrary lengths might overflow.
        return lengths is not None and bool(((lengths < 1) | (lengths > num_ids)).any() or lengths.sum() > num_ids)

    @property
    def labels(self) -> Int64 | None:
        return self.columns.get("labels")

    @property
    def trained(self) -> Bool:
        """Tokens that a trainer would train: by labels; else by all masks present; else every token.  # bool[n]"""
        if self.labels is not None:
            found: Bool = self.labels != MASKED
            return found
        trained = np.ones(len(self.input_ids), np.bool_)
        for name in MASKS:
            if name in self.columns:
                trained &= self.columns[name] != 0
        return trained


PROMPT, HEADER, ANSWER, AFTER, LEFT = 0, 1, 2, 3, 4
"""Kinds of tokens: prompt; header of an answer; answer, including its stop token; white space after it; and the rest of
a message that began in another row or sequence, which may be prompt or answer."""

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowParts:
    """The parts of a row. n tokens."""

    kinds: Int64  # [n] as above; all PROMPT if headers are unknown
    has_headers: bool
    """Whether an answer's header was found."""

    trained: Bool  # [n]
    is_stop: Bool  # [n]
    is_space: Bool  # [n]
    padding: Bool  # [n]
    content: int
    """Index of the first token that is not padding; n if there is none."""

    starts: Bool  # [n] where sequences begin according to the columns, including the first token
    openings: Bool  # [n] where, by the ids, a conversation begins after the beginning of the row


def find_parts(row: TokenRow, facts: TokenizerFacts) -> RowParts:
    """Identify the parts of a row, from its columns and the facts about its tokenizer and template."""
    ids = row.input_ids
    padding = _padding(row, facts)
    content = len(ids) if padding.all() else int(padding.argmin())
    is_stop, is_space = facts.stops.mask(ids), facts.spaces.mask(ids)
    solid, stops = next_true(~is_space), next_true(is_stop)
    starts = sequence_starts(row)
    headers, kinds = _answers(ids, facts, starts, solid, stops)
    begins = facts.openings.mask(ids)
    parts = [content, *(content + 1 + np.flatnonzero(starts[content + 1 :])).tolist()] if content < len(ids) else []
    cut = [place for place in parts if facts.openings and not begins[place] and not padding[place]]
    begins[headers] = True
    next_begin, next_start = next_true(begins), next_true(starts)
    for place in cut:
        kinds[slice(*_left(place, next_begin, next_start, solid, stops))] = LEFT
    openings = np.zeros(len(ids), np.bool_)
    if facts.bos_opens:  # a BOS directly after another is a duplicate, and does not begin a conversation
        openings[content + 1 :] = (ids[content + 1 :] == facts.bos_id) & (ids[content:-1] != facts.bos_id)
    return RowParts(
        kinds=kinds,
        has_headers=bool(headers),
        trained=row.trained,
        is_stop=is_stop,
        is_space=is_space,
        padding=padding,
        content=content,
        starts=starts,
        openings=openings,
    )


def next_true(mask: Bool) -> Int64:
    """Return, for each position, the first True at or after it; n if there is none.  # int64[n + 1]

    Worked example: . x . x . gives 1 1 3 3 5 5.
    """
    places = np.append(np.where(mask, np.arange(len(mask)), len(mask)), len(mask))
    found: Int64 = np.minimum.accumulate(places[::-1])[::-1]
    return found


def _answers(ids: Int64, facts: TokenizerFacts, starts: Bool, solid: Int64, stops: Int64) -> tuple[list[int], Int64]:
    """Return where headers begin, and the kind of each token.

    `solid` and `stops` are results of :func:`next_true`. An answer begins with the first token after the header that is
    not white space, as white space of both may have merged into one token. It ends with the first stop token, or before
    the next header, or at the end of its sequence if that comes first.
    """
    kinds = np.zeros(len(ids), np.int64)
    begins = _matches(ids, facts.header)
    next_sequence = next_true(starts)
    for begin, next_header in pairwise([*begins, len(ids)]):
        header_end = begin + len(facts.header)
        limit = min(next_header, int(next_sequence[min(header_end, len(ids))]))
        first = min(int(solid[header_end]), limit)
        stop = int(stops[first])
        end = min(stop + 1, limit)
        kinds[begin:first], kinds[first:end] = HEADER, ANSWER
        if stop < limit:
            kinds[end : int(solid[end])] = AFTER
    return begins, kinds


def _matches(ids: Int64, sequence: Int64) -> list[int]:
    """Return the positions at which a sequence of ids occurs."""
    if not len(sequence) or len(ids) < len(sequence):
        return []
    places = np.flatnonzero(ids[: len(ids) - len(sequence) + 1] == sequence[0])
    for offset, token in enumerate(sequence[1:].tolist(), 1):
        places = places[ids[places + offset] == token]
    found: list[int] = places.tolist()
    return found


def _left(start: int, next_begin: Int64, next_start: Int64, solid: Int64, stops: Int64) -> Range:
    """Return the range of a message's rest at the start of a row or sequence; empty if a header is there.

    It ends after a stop token and the white space after it, or where the next message or sequence begins. All arrays
    are results of :func:`next_true`.
    """
    closed = int(solid[min(int(stops[start]) + 1, len(solid) - 1)])
    return start, min(closed, int(next_begin[start]), int(next_start[start + 1]))


def _padding(row: TokenRow, facts: TokenizerFacts) -> Bool:
    """Return the tokens whose attention_mask is 0; without a mask, pad ids at both ends of the row.

    If the pad token is also a stop token, the first one of the padding at the end may end an answer and is not counted.
    """
    mask = row.columns.get("attention_mask")
    padding = np.zeros(len(row.input_ids), np.bool_)
    if mask is not None and (mask == 0).any():
        padding = mask == 0
    elif facts.model is not None:
        other = np.flatnonzero(row.input_ids != facts.model.pad_id)
        is_stop = facts.model.pad_id in facts.model.stop_ids
        if len(other):  # a row of pad ids only is not treated as padding
            padding[other[-1] + 1 + is_stop :] = True
            padding[: other[0] if other[0] > is_stop else 0] = True
    return padding


def sequence_starts(row: TokenRow) -> Bool:
    """Return where sequences begin: by seq_lengths, else by position_ids, else by numbers in attention_mask.  # bool[n]

    The columns of the row must not differ.
    """
    starts = np.zeros(len(row.input_ids), np.bool_)
    starts[:1] = True
    lengths, mask, positions = row.seq_lengths, row.columns.get("attention_mask"), row.columns.get("position_ids")
    if lengths is not None:
        starts[np.cumsum(lengths)[:-1]] = True
    elif positions is not None:
        starts |= (positions == 0) & (mask is None or mask != 0)  # positions of padding are meaningless
    elif mask is not None and (mask > 1).any():
        starts |= np.diff(mask, prepend=-1) != 0
    return starts
