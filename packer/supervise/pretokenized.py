"""Documents from rows that bring their own tokens.

Nothing is rendered or encoded. A row becomes a document unchanged: its ids, and a run for every maximal range of
trained tokens of equal weight. Two things can be checked on ids alone: each is in the tokenizer's vocabulary, and the
mask is not shifted against its tokens. The first token of a document is never trained, whatever the row says.

Worked example: weights 1 1 0 1 .5 .5 of one row have the runs [1, 2), [3, 4) and [4, 6).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from packer.batches import Bool, DocumentBatch, Float32, Int32, Int64, PretokenizedTokens, Rejection, Sample
from packer.layout import begins_run, offsets_of, taken_ranges
from packer.model.backend import definition_of, vocabulary_of
from packer.model.model import TOKENIZER_FILE, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """Runs of trained tokens of equal weight, each within one document. U runs."""

    document: Int64  # [U]
    start: Int64  # [U] tokens from the start of the batch
    end: Int64  # [U]
    weight: Float32  # [U]


class PretokenizedSupervisor:
    """Makes documents of given tokens, for one model."""

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
        ids = np.concatenate([each.input_ids for each in pretokenized])
        offsets = offsets_of([len(each.input_ids) for each in pretokenized])
        weight = np.concatenate([each.weight for each in pretokenized])
        weight[offsets[:-1]] = 0
        runs = _runs(weight, offsets)
        unknown = ~np.append(self._is_token, False)[np.minimum(ids, len(self._is_token))]
        has_unknown = np.logical_or.reduceat(unknown, offsets[:-1])
        shifted = self._shifted(pretokenized, ids, offsets, runs)
        trained = np.bincount(runs.document, minlength=len(pretokenized)) > 0
        rejections = []
        for number in np.flatnonzero(has_unknown | shifted | ~trained).tolist():
            if has_unknown[number]:
                at = int(offsets[number] + np.argmax(unknown[offsets[number] :]))
                position = at - int(offsets[number]) + pretokenized[number].num_padding
                code, reason = "unknown_token", self._unknown_token(position, int(ids[at]))
            elif shifted[number]:
                code, reason = "labels_shifted", _SHIFTED_MASK
            else:
                code, reason = "nothing_trained", _nothing_trained(pretokenized[number])
            rejections.append(Rejection(row=samples[number].row, code=code, reason=reason))
        kept = np.flatnonzero(~has_unknown & ~shifted & trained)
        return _documents(samples, kept, ids, offsets, runs), tuple(rejections)

    def _shifted(self, pretokenized: Sequence[PretokenizedTokens], ids: Int32, offsets: Int64, runs: _Runs) -> Bool:
        """Return which rows seem to have a mask that is one token early.  # bool[D]

        In such a row every run ends right before a stop token: a mask that was shifted for the loss, so that position t
        refers to token t + 1, trains all of a reply but its end.
        """
        is_stop = np.append(np.isin(ids, self._model.stop_ids), False)
        before_stop = is_stop[runs.end] & (runs.end < offsets[runs.document + 1]) & ~is_stop[runs.end - 1]
        num_runs = np.bincount(runs.document, minlength=len(pretokenized))
        num_before = np.bincount(runs.document, weights=before_stop, minlength=len(pretokenized))
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


def _nothing_trained(pretokenized: PretokenizedTokens) -> str:
    first_only = pretokenized.weight[0] > 0
    return "the only token to train on is the first of a document" if first_only else "no token of the row is trained"


def _runs(weight: Float32, offsets: Int64) -> _Runs:
    """Find maximal runs of equal positive weight within each document."""
    begins = begins_run(weight)
    begins[offsets[:-1]] = True
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(weight))
    trained = weight[starts] > 0
    starts, ends = starts[trained], ends[trained]
    return _Runs(
        document=np.searchsorted(offsets, starts, side="right") - 1, start=starts, end=ends, weight=weight[starts]
    )


def _documents(samples: Sequence[Sample], kept: Int64, ids: Int32, offsets: Int64, runs: _Runs) -> DocumentBatch:
    """Assemble the documents of the kept samples."""
    first, lengths = offsets[kept], np.diff(offsets)[kept]
    of_kept = np.isin(runs.document, kept)
    begin, num_runs = offsets[runs.document[of_kept]], np.bincount(runs.document, minlength=len(samples))[kept]
    return DocumentBatch(
        input_ids=taken_ranges(ids, first, lengths),
        offsets=offsets_of(lengths),
        sample=np.array([samples[number].row for number in kept.tolist()], np.int32),
        sample_id=tuple(samples[number].sample_id for number in kept.tolist()),
        run_offsets=offsets_of(num_runs),
        run_start=(runs.start[of_kept] - begin).astype(np.int32),
        run_end=(runs.end[of_kept] - begin).astype(np.int32),
        run_message=np.zeros(len(begin), np.int32),
        run_weight=runs.weight[of_kept],
    )
