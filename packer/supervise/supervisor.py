"""Rows become documents with trained runs: turns once their ids are proved, and tokens that a row brings as they are.

A document is a sequence cut after its last trained terminator; its runs are the completions of the turns placed in it.
Each turn is proved before it is written: its trained ids decode to exactly the completion's bytes of the rendered
text, and the last of them is a stop id. The latter holds for every turn of a chat, and for a completion or a text if a
stop token closes it. The first token of a document is never trained, whatever its row says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from packer.batches import (
    Bool,
    DocumentBatch,
    Int32,
    Int64,
    PretokenizedTokens,
    Rejection,
    Sample,
    TokenBatch,
    TurnBatch,
)
from packer.layout import distinct, offsets_of, select_documents, taken_ranges
from packer.model.backend import definition_of, vocabulary_of
from packer.model.model import TOKENIZER_FILE, Model
from packer.model.token_bytes import TokenBytes
from packer.supervise.round_trip import RoundTrip, Runs, runs_of_masked_turns

_FIRST_ONLY = "the only token to train on is the first of a document"
_ALL_MASKED = "no token belongs to the parts, pieces or spans that are trained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """Documents of a batch of rows, and the rows whose proof failed or that have nothing to train on."""

    documents: DocumentBatch
    texts: Int32  # [D] index of the text that each document was made from
    rejections: tuple[Rejection, ...]
    merged: Int32  # row of each trained turn whose boundary merged
    skipped: Int32  # row of each answer without content, which is not trained


class Supervisor:
    """The supervise stage for one model."""

    def __init__(self, model: Model, *, whole: bool = False) -> None:
        """`whole`: whether chats are trained from their second token on, so that their prompts are proved, too."""
        self._model = model
        self._token_bytes = TokenBytes(model)
        self._whole = whole
        self._is_stop: Bool = np.zeros(model.vocab_size, np.bool_)
        self._is_stop[list(model.stop_ids)] = True
        self._stop_texts = tuple(filter(None, map(self._token_bytes.content, model.stop_ids)))

    @cached_property
    def _round_trip(self) -> RoundTrip:
        return RoundTrip(self._model, self._token_bytes)

    def supervise(self, turns: TurnBatch, tokens: TokenBatch, sample_ids: Mapping[int, str | None]) -> Supervised:
        """Make documents; `sample_ids` maps a row to its sample's id."""
        sample_of_turn = turns.sample[turns.turn_text]
        unencodable = {int(turns.sample[text]): reason for text, reason in tokens.unencodable}
        proved = self._prove(turns, tokens) & ~np.isin(sample_of_turn, list(unencodable))
        masked = runs_of_masked_turns(turns, tokens, self._round_trip) if len(turns.masked) else {}
        proved[[turn for turn, runs in masked.items() if runs is None]] = False
        failed = distinct(sample_of_turn[~proved])
        # The first token of a document is never trained, so a run may be empty.
        trained = (np.maximum(tokens.prompt_tokens, 1) < tokens.completion_tokens) & ~np.isin(sample_of_turn, failed)
        trained[[turn for turn, runs in masked.items() if not runs]] = False
        has_outcome = np.isin(sample_of_turn, np.concatenate([failed, sample_of_turn[trained]]))
        empty = distinct(sample_of_turn[~has_outcome])
        rejections = [
            Rejection(row=int(row), code="not_encodable", reason=f"the tokenizer fails: {unencodable[int(row)]}")
            if int(row) in unencodable
            else Rejection(row=int(row), code="proof_failed", reason="the ids do not decode to the rendered completion")
            for row in failed
        ]
        of_pieces = np.isin(empty, sample_of_turn[list(masked)])
        rejections += [
            Rejection(row=int(row), code="nothing_trained", reason=_ALL_MASKED if is_masked else _FIRST_ONLY)
            for row, is_masked in zip(empty, of_pieces, strict=True)
        ]
        runs = {turn: of_turn for turn, of_turn in masked.items() if of_turn}
        documents, texts = _documents(turns, tokens, np.flatnonzero(trained), runs, sample_ids)
        return Supervised(
            documents=_trained_whole(documents) if self._whole and not turns.raw.any() else documents,
            texts=texts,
            rejections=tuple(rejections),
            merged=sample_of_turn[tokens.merged & trained],
            skipped=turns.skipped,
        )

    def _prove(self, turns: TurnBatch, tokens: TokenBatch) -> Bool:
        """Return, for each turn, whether its trained ids decode to its completion.

        In one pass it is found out whose ids spell it byte for byte; normalized texts and those with a ▁ of their own
        need the slower check of `RoundTrip.decodes_to`.
        """
        own = self._own_ids(turns, tokens)
        is_part = turns.raw[turns.turn_text] | (not self._whole)
        own[:, 0] = np.where(is_part, own[:, 0], tokens.offsets[tokens.turn_sequence])
        token_bytes, lengths = self._token_bytes, own[:, 1] - own[:, 0]
        is_start = own[:, 0] == tokens.offsets[tokens.turn_sequence]
        is_start |= token_bytes.is_added[_before(tokens.ids, own[:, 0])]
        ids = taken_ranges(tokens.ids, own[:, 0], lengths)
        spelling = token_bytes.spell(ids, offsets_of(lengths), is_start)
        text = turns.text_offsets[turns.turn_text]
        starts, stops = text + turns.prompt_end * is_part, text + turns.completion_end
        proved: Bool = spelling.begins(turns.text, starts, stops) & (np.diff(spelling.bounds) == stops - starts)
        for turn in np.flatnonzero(~proved).tolist():
            first, end = own[turn].tolist()
            after = int(tokens.ids[first - 1]) if first > tokens.offsets[tokens.turn_sequence[turn]] else None
            completion = turns.text[starts[turn] : stops[turn]]
            proved[turn] = self._round_trip.decodes_to(tokens.ids[first:end].tolist(), completion, after=after)
        proved &= self._are_terminated(turns, tokens, own)
        return proved

    def _own_ids(self, turns: TurnBatch, tokens: TokenBatch) -> Int64:
        """Return where the trained ids of turns stand, without a special token that closes a text which has none.

        Returns:
            int64[T, 2], in all ids
        """
        start = tokens.offsets[tokens.turn_sequence]
        first, end = start + tokens.prompt_tokens, start + tokens.completion_tokens
        last = _before(tokens.ids, end)
        may_be_appended = turns.raw[turns.turn_text] & (first < end) & self._token_bytes.is_added[last]
        for token_id in distinct(last[may_be_appended]).tolist():
            of_token = np.flatnonzero(may_be_appended & (last == token_id))
            end[of_token] -= ~_end_with(turns, of_token, self._token_bytes.content(token_id))
        return np.stack([first, end], axis=1)

    def _are_terminated(self, turns: TurnBatch, tokens: TokenBatch, own: Int64) -> Bool:
        """Whether only the last id of each chat turn is a stop id, and each raw turn is closed if its text is.

        A stop token that a person typed closes nothing.
        """
        first = tokens.offsets[tokens.turn_sequence]
        stops = np.flatnonzero(self._is_stop[tokens.ids])
        start, end = first + tokens.prompt_tokens, first + tokens.completion_tokens
        num_stops = np.searchsorted(stops, end) - np.searchsorted(stops, start)
        terminated: Bool = (num_stops == 1) & self._is_stop[_before(tokens.ids, end)]
        open_turns = np.flatnonzero(turns.raw[turns.turn_text] & ~terminated)
        text = turns.text_offsets[turns.turn_text[open_turns]]
        is_typed = np.isin(text + turns.completion_end[open_turns], turns.guarded[:, 1])
        is_closed = np.logical_or.reduce([_end_with(turns, open_turns, stop) for stop in self._stop_texts], axis=0)
        a, b = own[open_turns].T
        terminated[open_turns] = ~(is_closed & ~is_typed) | ((a < b) & self._is_stop[_before(tokens.ids, b)])
        return terminated


def _trained_whole(documents: DocumentBatch) -> DocumentBatch:
    """Return documents with one run each, from the second token to the last."""
    return replace(
        documents,
        run_offsets=np.arange(documents.num_documents + 1),
        run_start=np.ones(documents.num_documents, np.int32),
        run_end=np.diff(documents.offsets).astype(np.int32),
        run_message=documents.run_message[documents.run_offsets[1:] - 1],
    )


def _before(ids: Int32, places: Int64) -> Int32:
    """Return the id before each place; any at all where none is before it."""
    return ids[np.maximum(places, 1) - 1] if len(ids) else np.zeros(len(places), np.int32)


def _end_with(turns: TurnBatch, chosen: Int64, content: bytes) -> Bool:
    """Whether the completions of the chosen turns end with some bytes."""
    end = turns.text_offsets[turns.turn_text[chosen]] + turns.completion_end[chosen]
    found: Bool = turns.completion_end[chosen] - turns.prompt_end[chosen] >= len(content)
    text, expected = np.frombuffer(turns.text, np.uint8), np.frombuffer(content, np.uint8)
    found[found] = (text[end[found, None] + np.arange(-len(content), 0)] == expected).all(axis=1)
    return found


def _documents(
    turns: TurnBatch,
    tokens: TokenBatch,
    trained: Int64,
    masked: Mapping[int, Runs],
    sample_ids: Mapping[int, str | None],
) -> tuple[DocumentBatch, Int32]:
    """Cut each sequence that has trained turns after the last of them, in the order of rows and messages.

    `masked`: the runs of turns of which parts are masked. Also return the text of each document.
    """
    sequence = _training_sequences(turns, tokens, trained)
    end, last_message = (np.zeros(len(tokens.sequence_text), np.int64) for _ in range(2))
    np.maximum.at(end, sequence, tokens.completion_tokens[trained])
    np.maximum.at(last_message, sequence, turns.turn_message[trained])
    row = turns.sample[tokens.sequence_text]
    order = np.lexsort((tokens.prompt_tokens[trained], last_message[sequence], row[sequence]))
    run_turns, sequence = trained[order], sequence[order]
    is_first = np.diff(sequence, prepend=-1) != 0  # no two sequences of a row end with the same message
    used, run_document = sequence[is_first], np.cumsum(is_first) - 1
    start, stop = np.maximum(tokens.prompt_tokens[run_turns], 1), tokens.completion_tokens[run_turns]
    if masked:
        own = [masked.get(turn, [(a, b)]) for turn, a, b in zip(run_turns.tolist(), start, stop, strict=True)]
        counts = [len(each) for each in own]
        run_turns, run_document = np.repeat(run_turns, counts), np.repeat(run_document, counts)
        start, stop = np.array([pair for each in own for pair in each], np.int64).T
    documents = DocumentBatch(
        input_ids=taken_ranges(tokens.ids, tokens.offsets[used], end[used]),
        offsets=offsets_of(end[used]),
        sample=row[used].astype(np.int32),
        sample_id=tuple(map(sample_ids.__getitem__, row[used].tolist())),
        run_offsets=offsets_of(np.bincount(run_document, minlength=len(used))),
        run_start=start.astype(np.int32),
        run_end=stop.astype(np.int32),
        run_message=turns.turn_message[run_turns].astype(np.int32),
    )
    return documents, tokens.sequence_text[used]


def _training_sequences(turns: TurnBatch, tokens: TokenBatch, trained: Int64) -> Int64:
    """Return the sequence each trained turn is trained in: its sample's last one that begins with its ids.  # int64[U]

    Rendering has assigned the turns to texts by their characters. Only ids show that a sequence of a merged boundary
    begins with the turns before it, or that two texts differ only by a space the tokenizer drops.
    """
    assigned = tokens.turn_sequence[trained].astype(np.int64)
    row = turns.sample[turns.turn_text[trained]]
    last_of_row = np.full(int(row.max(initial=-1)) + 1, -1, np.int64)
    last_of_row[row] = assigned
    if (last_of_row[row] == assigned).all():
        return assigned  # one sequence per row
    order = np.lexsort((turns.turn_message[trained], row))
    for turns_of_row in np.split(order, np.flatnonzero(np.diff(row[order])) + 1):
        if len(turns_of_row) and np.any(assigned[turns_of_row] != assigned[turns_of_row[0]]):
            _move_to_last_extension(assigned, turns_of_row, tokens, trained)
    return assigned


def _move_to_last_extension(assigned: Int64, turns_of_row: Int64, tokens: TokenBatch, trained: Int64) -> None:
    """Move each turn of one sample, in message order, to the last sequence that begins with its ids."""
    starts, ends = tokens.offsets[assigned[turns_of_row]], tokens.completion_tokens[trained[turns_of_row]]
    turn_ids = [tokens.ids[start : start + end] for start, end in zip(starts, ends, strict=True)]
    sequences: dict[int, Int32] = {}
    for i, ids in zip(turns_of_row[::-1], turn_ids[::-1], strict=True):
        sequences.setdefault(int(assigned[i]), ids)  # ids up to its last turn; sequences in reverse order
    for i, ids in zip(turns_of_row, turn_ids, strict=True):
        last, num = ids[-1], len(ids)
        for sequence, other in sequences.items():
            if len(other) >= num and other[num - 1] == last and np.array_equal(other[:num], ids):
                assigned[i] = sequence
                break


class PretokenizedSupervisor:
    """Makes documents of given tokens, for one model: nothing is rendered or encoded.

    Two things can be checked on ids alone: each is in the tokenizer's vocabulary, and the mask is not shifted against
    its tokens.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    @cached_property
    def _is_token(self) -> Bool:
        """Which ids are tokens; a vocabulary may have gaps."""
        known = np.zeros(self._model.vocab_size, np.bool_)
        known[list(vocabulary_of(definition_of(self._model.files[TOKENIZER_FILE])).values())] = True
        known[[token.id for token in self._model.added_tokens]] = True
        return known

    def supervise(self, samples: Sequence[Sample]) -> tuple[DocumentBatch, tuple[Rejection, ...]]:
        """Return a document or a rejection for every sample; all of them are of kind `tokens`."""
        pretokenized = [sample.pretokenized for sample in samples if sample.pretokenized is not None]
        assert len(pretokenized) == len(samples) > 0, "rows of one schema, and at least one"
        documents = _given_documents(samples, pretokenized)
        ids, offsets = documents.input_ids, documents.offsets
        unknown = ~np.append(self._is_token, False)[np.minimum(ids, len(self._is_token))]
        has_unknown = np.logical_or.reduceat(unknown, offsets[:-1])
        shifted = self._shifted(pretokenized, documents)
        trained = np.diff(documents.run_offsets) > 0
        rejections = []
        for number in np.flatnonzero(has_unknown | shifted | ~trained).tolist():
            if has_unknown[number]:
                at = int(offsets[number] + np.argmax(unknown[offsets[number] :]))
                position = at - int(offsets[number]) + pretokenized[number].num_padding
                code, reason = "unknown_token", self._unknown_token(position, int(ids[at]))
            elif shifted[number]:
                code, reason = "labels_shifted", _SHIFTED_MASK
            else:
                code, reason = "nothing_trained", _no_target(pretokenized[number])
            rejections.append(Rejection(row=samples[number].row, code=code, reason=reason))
        kept = np.flatnonzero(~has_unknown & ~shifted & trained)
        return select_documents(documents, kept), tuple(rejections)

    def _shifted(self, pretokenized: Sequence[PretokenizedTokens], documents: DocumentBatch) -> Bool:
        """Return which rows seem to have a mask that is one token early.  # bool[D]

        In such a row every run ends right before a stop token: a mask that was shifted for the loss, so that position t
        refers to token t + 1, trains all of a reply but its end.
        """
        is_stop = np.append(np.isin(documents.input_ids, self._model.stop_ids), False)
        num_runs = np.diff(documents.run_offsets)
        document = np.repeat(np.arange(len(num_runs)), num_runs)
        end = documents.offsets[document] + documents.run_end
        before_stop = is_stop[end] & (end < documents.offsets[document + 1]) & ~is_stop[end - 1]
        num_before = np.bincount(document, weights=before_stop, minlength=len(num_runs))
        by_mask = np.array([not each.by_labels for each in pretokenized])
        shifted: Bool = by_mask & (num_runs > 0) & (num_before == num_runs)
        return shifted

    def _unknown_token(self, position: int, token_id: int) -> str:
        end = self._model.vocab_size - 1
        what = f"the vocabulary ends at {end}" if token_id > end else "the vocabulary has no such id"
        return f"input_ids[{position}] is {token_id}, but {what}"


_SHIFTED_MASK = (
    "every trained run ends right before a stop token, so the mask seems to lie one token early: expected a mask "
    "whose place t is about input_ids[t]"
)


def _no_target(pretokenized: PretokenizedTokens) -> str:
    return _FIRST_ONLY if pretokenized.trained[0] else "no token of the row is trained"


def _given_documents(samples: Sequence[Sample], pretokenized: Sequence[PretokenizedTokens]) -> DocumentBatch:
    """Return a document for each row, with its ranges of trained tokens as runs.

    Worked example: flags 0 1 0 1 1 of one row have the runs [1, 2) and [3, 5).
    """
    offsets = offsets_of([len(each.input_ids) for each in pretokenized])
    trained = np.concatenate([*(each.trained for each in pretokenized), [False]])
    trained[offsets] = False
    edges = np.flatnonzero(np.diff(trained)) + 1
    starts, ends = edges[::2], edges[1::2]
    document = np.searchsorted(offsets, starts, side="right") - 1
    return DocumentBatch(
        input_ids=np.concatenate([each.input_ids for each in pretokenized]),
        offsets=offsets,
        sample=np.array([sample.row for sample in samples], np.int32),
        sample_id=tuple(sample.sample_id for sample in samples),
        run_offsets=offsets_of(np.bincount(document, minlength=len(samples))),
        run_start=(starts - offsets[document]).astype(np.int32),
        run_end=(ends - offsets[document]).astype(np.int32),
        run_message=np.zeros(len(starts), np.int32),
    )
