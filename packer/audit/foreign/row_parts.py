"""One row that another tool prepared, and its parts: prompts, headers, answers, sequences and padding."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

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
            trained &= self.columns.get(name, trained) != 0
        return trained

    @property
    def starts(self) -> Bool:
        """Where sequences begin: by seq_lengths, else by position_ids, else by numbers in attention_mask.  # bool[n]

        The columns of the row must not differ.
        """
        starts = np.zeros(len(self.input_ids), np.bool_)
        starts[:1] = True
        mask, positions = self.columns.get("attention_mask"), self.columns.get("position_ids")
        if self.seq_lengths is not None:
            starts[np.cumsum(self.seq_lengths)[:-1]] = True
        elif positions is not None:
            starts |= (positions == 0) & (mask is None or mask != 0)  # positions of padding are meaningless
        elif mask is not None and (mask > 1).any():
            starts |= np.diff(mask, prepend=-1) != 0
        return starts


PROMPT, HEADER, ANSWER, AFTER, LEFT = 0, 1, 2, 3, 4
"""Kinds of tokens: prompt; header of an answer; answer, including its stop token; white space after it; and the rest of
a message that began in another row or sequence, which may be prompt or answer."""

Range = tuple[int, int]


class RowParts(NamedTuple):
    """The parts of a row. n tokens."""

    kinds: Int64  # [n] as above; all PROMPT if headers are unknown
    has_headers: bool  # whether an answer's header was found
    trained: Bool  # [n]
    is_stop: Bool  # [n]
    is_space: Bool  # [n]
    padding: Bool  # [n]
    starts: Bool  # [n] where sequences begin according to the columns, including the first token
    openings: Bool  # [n] where, by the ids, a conversation begins after the beginning of the row


def find_parts(row: TokenRow, facts: TokenizerFacts) -> RowParts:
    """Identify the parts of a row, from its columns and the facts about its tokenizer and template."""
    ids, starts, padding = row.input_ids, row.starts, _padding(row, facts)
    content = len(ids) if padding.all() else int(padding.argmin())
    is_stop, begins = _one_of(ids, facts.stops), _one_of(ids, facts.openings)
    is_space = np.take(facts.spaces, ids + 1, mode="clip")
    solid, stops, next_start = next_true(~is_space), next_true(is_stop), next_true(starts)
    headers = _matches(ids, facts.header)
    kinds = _kinds(headers, len(facts.header), next_start, solid, stops)
    cut: list[int] = []
    if content < len(ids) and facts.openings:
        first = [content, *(content + 1 + np.flatnonzero(starts[content + 1 :])).tolist()]
        cut = [place for place in first if not begins[place] and not padding[place]]
    begins[headers] = True
    next_begin = next_true(begins)
    for place in cut:
        # The rest of a message ends after a stop token and the white space after it, or before what begins next.
        closed = int(solid[min(int(stops[place]) + 1, len(ids))])
        kinds[place : min(closed, int(next_begin[place]), int(next_start[place + 1]))] = LEFT
    openings = np.zeros(len(ids), np.bool_)
    if facts.bos_opens:  # a BOS directly after another is a duplicate, and does not begin a conversation
        openings[content + 1 :] = (ids[content + 1 :] == facts.bos_id) & (ids[content:-1] != facts.bos_id)
    return RowParts(kinds, bool(headers), row.trained, is_stop, is_space, padding, starts, openings)


def next_true(mask: Bool) -> Int64:
    """Return, for each position, the first True at or after it; n if there is none.  # int64[n + 1]

    Worked example: . x . x . gives 1 1 3 3 5 5.
    """
    places = np.append(np.where(mask, np.arange(len(mask)), len(mask)), len(mask))
    found: Int64 = np.minimum.accumulate(places[::-1])[::-1]
    return found


def _kinds(headers: list[int], length: int, next_start: Int64, solid: Int64, stops: Int64) -> Int64:
    """Return the kind of each token, given where headers of some length begin.  # int64[n]

    The other arguments are results of :func:`next_true`. An answer begins with the first token after the header that is
    not white space, as white space of both may have merged into one token. It ends with the first stop token, or before
    the next header, or at the end of its sequence if that comes first.
    """
    number = len(solid) - 1
    kinds = np.zeros(number, np.int64)
    for begin, next_header in pairwise([*headers, number]):
        limit = min(next_header, int(next_start[begin + length]))
        first = min(int(solid[begin + length]), limit)
        stop = int(stops[first])
        end = min(stop + 1, limit)
        kinds[begin:first], kinds[first:end] = HEADER, ANSWER
        if stop < limit:
            kinds[end : int(solid[end])] = AFTER
    return kinds


def _one_of(ids: Int64, wanted: tuple[int, ...]) -> Bool:
    found = np.zeros(len(ids), np.bool_)  # for a handful of ids, several times faster than isin
    for each in wanted:
        found |= ids == each
    return found


def _matches(ids: Int64, sequence: Int64) -> list[int]:
    """Return the positions at which a sequence of ids occurs."""
    if not len(sequence) or len(ids) < len(sequence):
        return []
    places = np.flatnonzero(ids[: len(ids) - len(sequence) + 1] == sequence[0])
    for offset, token in enumerate(sequence[1:].tolist(), 1):
        places = places[ids[places + offset] == token]
    found: list[int] = places.tolist()
    return found


def _padding(row: TokenRow, facts: TokenizerFacts) -> Bool:
    """Return the tokens whose attention_mask is 0; without a mask, pad ids at both ends of the row.

    If the pad token is also a stop token, the first one of the padding at the end may end an answer and is not counted.
    """
    mask = row.columns.get("attention_mask")
    padding = np.zeros(len(row.input_ids), np.bool_)
    if mask is not None and (mask == 0).any():
        padding = mask == 0
    else:
        other = np.flatnonzero(row.input_ids != facts.model.pad_id)
        is_stop = facts.model.pad_id in facts.model.stop_ids
        if len(other):  # a row of pad ids only is not treated as padding
            padding[other[-1] + 1 + is_stop :] = True
            padding[: other[0] if other[0] > is_stop else 0] = True
    return padding
