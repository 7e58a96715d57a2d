"""One row that another tool prepared: its parts (prompts, answers, sequences, padding), and checks with their codes."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from packer.audit import Code
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
    def trained(self) -> Bool:
        """Tokens that a trainer would train: by labels; else by all masks present; else every token.  # bool[n]"""
        if "labels" in self.columns:
            found: Bool = self.columns["labels"] != MASKED
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


PROMPT, HEADER, ANSWER, AFTER, REST = 0, 1, 2, 3, 4
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
    """Identify the parts of a row, from its columns and the facts about its tokenizer and template.

    An answer begins with the first token after a header that is not white space, as white space of both may have merged
    into one token. It ends with the first stop token, or before the next header, or at the end of its sequence if that
    comes first.
    """
    ids, starts, padding = row.input_ids, row.starts, _padding(row, facts)
    number = len(ids)
    content = number if padding.all() else int(padding.argmin())
    is_stop, begins = _one_of(ids, facts.stops), _one_of(ids, facts.openings)
    is_space = np.take(facts.spaces, ids + 1, mode="clip")
    solid, stops, next_start = next_true(~is_space), next_true(is_stop), next_true(starts)
    headers, length = _matches(ids, facts.header), len(facts.header)
    kinds = np.zeros(number, np.int64)
    for begin, next_header in pairwise([*headers, number]):
        limit = min(next_header, int(next_start[begin + length]))
        first = min(int(solid[begin + length]), limit)
        stop = int(stops[first])
        end = min(stop + 1, limit)
        kinds[begin:first], kinds[first:end] = HEADER, ANSWER
        if stop < limit:
            kinds[end : int(solid[end])] = AFTER
    first_of_all = (
        [content, *(content + 1 + np.flatnonzero(starts[content + 1 :])).tolist()] if content < number else []
    )
    left = [place for place in first_of_all if not begins[place] and not padding[place]]
    begins[headers] = True
    next_begin = next_true(begins)
    for place in left if facts.openings else ():
        # The rest of a message ends after a stop token and the white space after it, or before what begins next.
        closed = int(solid[min(int(stops[place]) + 1, number)])
        kinds[place : min(closed, int(next_begin[place]), int(next_start[place + 1]))] = REST
    openings = np.zeros(number, np.bool_)
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


def _one_of(ids: Int64, wanted: tuple[int, ...]) -> Bool:
    found = np.zeros(len(ids), np.bool_)  # for a handful of ids, several times faster than isin
    for each in wanted:
        found |= ids == each
    return found


def _matches(ids: Int64, sequence: Int64) -> list[int]:
    """Return the positions at which a sequence of ids occurs."""
    places = np.flatnonzero(ids[: max(len(ids) - len(sequence) + 1, 0)] == sequence[0]) if len(sequence) else ids[:0]
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


CODES: dict[str, Code] = {
    "columns_differ": Code(
        "error",
        "columns of a row differ in length, or seq_lengths exceed it, so labels or borders cannot be matched to ids",
        "row",
        "prepare these rows again",
    ),
    "ids_outside": Code(
        "error",
        "ids are not in the vocabulary of this tokenizer",
        "token",
        "the rows were made with another tokenizer, or --tokenizer names another one",
    ),
    "labels_shifted": Code(
        "error",
        "labels are shifted: each is the id that follows; a Hugging Face model shifts once more and learns to skip",
        "row",
        "labels[t] must be input_ids[t] or -100",
    ),
    "labels_foreign": Code(
        "error", "labels are neither -100 nor the id at their place", "token", "labels[t] must be input_ids[t] or -100"
    ),
    "nothing_trained": Code(
        "error",
        "rows train nothing; a micro-batch of such rows has a loss of 0 / 0",
        "row",
        "leave these rows out",
    ),
    "prompt_trained": Code(
        "error",
        "the prompt is trained: labels on what users, the system or tools say",
        "token",
        "TRL: assistant_only_loss=True, or rows of prompt and completion; "
        "axolotl: train_on_inputs: false, train_on_eos: turn",
    ),
    "terminator_masked": Code(
        "error",
        "answers are trained up to their stop token but not on it, so the model does not learn to stop",
        "answer",
        "often a collator that masks the pad token, which is the EOS too; axolotl: train_on_eos: turn",
    ),
    "borders_missing": Code(
        "error",
        "rows contain several conversations and nothing says where they begin, so they attend to each other",
        "border",
        "keep seq_lengths, or position_ids that begin again at 0",
    ),
    "padding_trained": Code("error", "padding is trained", "token", "set the labels of padding to -100"),
    "no_terminator": Code(
        "warning",
        "trained text ends without a stop token: it was cut, or the template writes none",
        "answer",
        "leave out rows that were cut at a length, or allow longer ones",
    ),
    "no_header": Code(
        "warning",
        "rows contain no answer header as this template writes it, so their prompts were not checked",
        "row",
        "they were cut before an answer, or made with another template: --template names it",
    ),
    "not_checked": Code("note", "a question that nothing here answers, and why"),
}
"""Code → level, meaning, unit and hint, in the order of a report."""

OF_ANY_TOKENIZER = frozenset({"columns_differ", "ids_outside", "labels_shifted", "labels_foreign", "nothing_trained"})
"""Codes that count even if most rows have ids outside the vocabulary: the tokenizer is then another one."""

_SHOWN = 12
"""Tokens shown of a range without an end of its own."""


class Hit(NamedTuple):
    """The result of one check of a row."""

    code: str
    times: int
    shown: Range | None
    """Tokens of the first occurrence; None if there is nothing to point at."""


def check(row: TokenRow, parts: RowParts, facts: TokenizerFacts) -> Iterator[Hit]:
    """Yield all findings in a row whose columns have equal lengths."""
    ids, labels, trained = row.input_ids, row.columns.get("labels"), parts.trained
    begin = (0, min(_SHOWN, len(ids))) if len(ids) else None
    yield from _tokens("ids_outside", (ids < 0) | (ids >= facts.model.vocab_size))
    if not trained[1:].any():  # no position predicts a row's first token, so its label does not count
        yield Hit("nothing_trained", 1, begin)
    counted = trained & ~parts.padding
    differing = np.zeros(len(ids), np.bool_) if labels is None else trained & (labels != ids)
    # Shifted: some label differs from its id, and every label but the last is the id that follows.
    if labels is not None and differing[:-1].any() and not (trained[:-1] & (labels[:-1] != ids[1:])).any():
        first = int(differing.argmax())
        yield Hit("labels_shifted", 1, (first, first + 1))
        counted[:] = False  # where shifted labels train cannot be compared with the ids
    else:
        yield from _tokens("labels_foreign", differing)
        yield from _tokens("padding_trained", trained & parts.padding)
    if len(facts.header) and parts.has_headers:
        yield from _tokens("prompt_trained", counted & (parts.kinds == PROMPT) & (np.arange(len(ids)) > 0))
    elif len(facts.header) and begin is not None:
        yield Hit("no_header", 1, begin)
    if facts.stops:
        yield from _terminators(parts, counted)
    missing = np.flatnonzero(parts.openings & ~parts.starts).tolist()
    yield from _ranges("borders_missing", [(max(place - 4, 0), place + 1) for place in missing])


def _terminators(parts: RowParts, trained: Bool) -> Iterator[Hit]:
    """Check how runs of trained tokens end: in a stop token (ignoring white space after it), before one, or neither."""
    begins_sequence = np.append(parts.starts | parts.openings, True)
    edges = np.concatenate([[False], trained, [False]])
    begins = np.flatnonzero(trained & (~edges[:-2] | begins_sequence[:-1]))
    ends = np.flatnonzero(trained & (~edges[2:] | begins_sequence[1:])) + 1
    solid = ~parts.is_space
    places = np.append(np.flatnonzero(solid), -1)
    # The last token before each end that is not white space; -1, the last of `places`, if there is none.
    closing = np.maximum(places[np.searchsorted(places[:-1], ends) - 1], begins)
    is_stop = np.append(parts.is_stop & ~parts.padding, False)
    is_open = ~parts.is_stop[closing]
    if parts.has_headers:
        # A trained prompt rightly ends without a stop token. (White space directly after a header may be the
        # beginning of an answer that was cut off there.)
        kinds = parts.kinds[closing]
        is_open &= (kinds == ANSWER) | ((kinds == HEADER) & ~solid[closing])
    is_masked = is_stop[ends] & ~begins_sequence[ends]
    yield from _ranges("terminator_masked", [(end, end + 1) for end in ends[is_open & is_masked].tolist()])
    cut = zip(begins[is_open & ~is_masked].tolist(), ends[is_open & ~is_masked].tolist(), strict=True)
    yield from _ranges("no_terminator", [(max(begin, end - 8), end) for begin, end in cut])


def _tokens(code: str, mask: Bool) -> Iterator[Hit]:
    """Yield a finding about tokens: how many, and the first run of them."""
    if mask.any():
        start = int(mask.argmax())
        yield Hit(code, int(mask.sum()), (start, int(next_true(~mask)[start])))


def _ranges(code: str, ranges: list[Range]) -> Iterator[Hit]:
    """Yield a finding about ranges: how many, and the first one."""
    if ranges:
        yield Hit(code, len(ranges), ranges[0])
