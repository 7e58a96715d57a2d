"""Codes of an audit of prepared rows, and the checks of one row: the count of each finding, and its first location."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from packer.audit.findings import Code
from packer.audit.foreign.row_parts import ANSWER, HEADER, PROMPT, Range, RowParts, TokenRow, next_true
from packer.audit.foreign.tokenizer_facts import TokenizerFacts
from packer.batches import Bool

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
"""Codes that do not depend on the tokenizer, and the code for ids outside its vocabulary."""

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
    ids, labels, trained = row.input_ids, row.labels, parts.trained
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
