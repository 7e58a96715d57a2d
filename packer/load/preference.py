"""Preference data as padded batches, laid out as trainers of pairs concatenate it: chosen rows, then rejected ones.

A row is a whole document: a prompt and one of its answers. ``completion_mask`` marks what is trained: it is 1
where the cache has a label. Log-probabilities of an answer are summed over these tokens, in this and in other layouts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from packer.batches import CHOSEN, REJECTED, Bool, Int32, Int64
from packer.errors import UsageError
from packer.layout import MASKED, crossed
from packer.load.attention import documents_of
from packer.load.options import open_cache
from packer.load.step import MicroBatch
from packer.store.cache import Cache, DocumentShards


def preference_documents(cache: str | Path | Cache, split: str = "train") -> tuple[Cache, DocumentShards]:
    """Open a cache and return it with the documents of a split, which must be pairs or rated answers.

    Raises:
        UsageError: there is no such split, or it has examples to imitate, no documents, or fractional loss weights.
    """
    found = open_cache(cache)
    documents = found.documents(split)
    if not found.is_preference:
        raise UsageError(
            f"{found.folder} holds examples to imitate; expected pairs or rated answers",
            hint="build a cache of rows with chosen and rejected, or with completion and label",
        )
    if not len(documents):
        raise UsageError(
            f"split '{split}' of {found.folder} has no documents", hint="rejected.jsonl says why its rows were left out"
        )
    if documents.weighted:
        raise UsageError(
            f"{found.folder} has fractional loss weights, which losses of preference data have no place for",
            hint="build it without weights",
        )
    return found, documents


def answer_logps(logits: Tensor, micro_batch: MicroBatch) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the chosen and of the rejected answers of a micro-batch, in float32 at least.

    Each is summed over the tokens where ``completion_mask`` is 1. Works for padded rows, rows without padding and
    blocks of pairs.

    Args:
        logits: the model's output for the micro-batch's ids.  # [B, T, V]
        micro_batch: from a :class:`packer.load.PackedLoader` of pairs.

    Returns:
        float [P] each, of the pairs that are not padding: ``pair_ids[pair_ids >= 0]``
    """
    scores, targets = logits[:, :-1], micro_batch["input_ids"][:, 1:, None]
    picked = scores.gather(-1, targets)[..., 0].to(torch.promote_types(scores.dtype, torch.float32))
    # log_softmax would compute T · V log-probabilities, of which only T are needed.
    of_tokens = (picked - scores.to(picked.dtype).logsumexp(-1)) * micro_batch["completion_mask"][:, 1:]
    sums, sides = of_tokens.sum(-1), micro_batch.get("sides")
    if sides is None:
        chosen, rejected = sums.chunk(2)
        return chosen, rejected
    if "cu_seq_lens_q" in micro_batch or "document_ids" in micro_batch:
        numbers = documents_of(micro_batch)[:, 1:].long().clamp(min=0)  # -1 is padding, where the mask is 0
        sums = of_tokens.new_zeros(len(sides)).index_add(0, numbers.flatten(), of_tokens.flatten())
    return sums[sides == CHOSEN], sums[sides == REJECTED]


def padded_documents(documents: DocumentShards, numbers: Int64, *, pad_id: int, multiple_of: int = 1) -> MicroBatch:
    """Read some documents as rows padded to one length.

    Args:
        documents: of one split.
        numbers: document numbers, one per row.  # int64[R]
        pad_id: id of padding, on the right.
        multiple_of: the length is rounded up to a multiple of this.

    Returns:
        ``input_ids``, ``attention_mask`` (1 for tokens) and ``completion_mask`` (1 for trained tokens),
        int64 [R, L] each.

    Raises:
        CheckError: a document is not what was written.
    """
    found = documents.locate(numbers)
    ids, labels = found.values("input_ids"), found.values("labels")
    return padded_rows(ids, [each != MASKED for each in labels], pad_id=pad_id, multiple_of=multiple_of)


def mismatched_documents(
    documents: DocumentShards, prompts: Int64, answers: Int64, *, pad_id: int, multiple_of: int = 1
) -> MicroBatch:
    """Read the prompts of some documents, each followed by the answer of another one.  # as padded_documents

    KTO compares an answer with the model's estimate for answers to other requests.
    """
    of_prompts, of_answers = (
        zip(found.values("input_ids"), found.values("labels"), strict=True)
        for found in (documents.locate(prompts), documents.locate(answers))
    )
    ids, labels = zip(*map(crossed, of_prompts, of_answers), strict=True)
    return padded_rows(ids, [each != MASKED for each in labels], pad_id=pad_id, multiple_of=multiple_of)


def padded_rows(ids: Sequence[Int32], trained: Sequence[Bool], *, pad_id: int, multiple_of: int = 1) -> MicroBatch:
    """Pad rows to one length, see :func:`padded_documents`.

    Worked example: ids [5, 6, 7] and [5, 8] with the last one of each trained, padded by 0: ids [[5, 6, 7], [5, 8, 0]],
    attention mask [[1, 1, 1], [1, 1, 0]], completion mask [[0, 0, 1], [0, 1, 0]].
    """
    columns: dict[str, tuple[Sequence[npt.NDArray[Any]], int]] = {
        "input_ids": (ids, pad_id),
        "attention_mask": ([np.ones(len(row), np.int64) for row in ids], 0),
        "completion_mask": (trained, 0),
    }
    missing = -max(map(len, ids)) % multiple_of
    batch: MicroBatch = {}
    for name, (rows, fill) in columns.items():
        of_rows = [torch.from_numpy(row.astype(np.int64)) for row in rows]
        padded = nn.utils.rnn.pad_sequence(of_rows, batch_first=True, padding_value=fill)
        batch[name] = nn.functional.pad(padded, (0, missing), value=fill)
    return batch
