"""Document boundaries in the forms that attention implementations need, as tensor functions on the inputs' device.

Packed blocks need three things to behave like documents run one by one: no attention across a boundary, positions that
restart, no target across a boundary. Positions and labels are in the micro-batch; this module covers the first, for
causal attention. The cumulative lengths of a flattened micro-batch are already the form for variable-length kernels
(flash-attn's ``flash_attn_varlen_func``, ``torch.nn.attention.varlen``); every other form is derived from them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from packer.load.step import MicroBatch


def boundaries(lengths: Tensor) -> MicroBatch:
    """Return the columns by which kernels of variable length keep sequences of these lengths, [S], apart in one row."""
    ends, longest = nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32), int(lengths.max())
    return {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends.clone(), "max_length_q": longest, "max_length_k": longest}


def flattened(documents: Sequence[Tensor]) -> MicroBatch:
    """Return a flattened micro-batch of documents of ids, all of them trained."""
    ids = torch.cat([*documents])[None]
    places = torch.cat([torch.arange(len(each), device=ids.device) for each in documents])[None]
    lengths = torch.tensor([len(each) for each in documents], device=ids.device)
    return {"input_ids": ids, "labels": ids.clone(), "position_ids": places} | boundaries(lengths)


def document_ids(cu_seq_lens: Tensor) -> Tensor:
    """Return the index of the sequence each position belongs to: [0, 0, 0, 1, 1] for [0, 3, 5].

    Args:
        cu_seq_lens: cumulative lengths, integer [S + 1], from 0 to T.

    Returns:
        int32 [T]
    """
    numbers = torch.arange(len(cu_seq_lens) - 1, dtype=torch.int32, device=cu_seq_lens.device)
    return numbers.repeat_interleave(cu_seq_lens.diff())


def documents_of(micro_batch: MicroBatch) -> Tensor:
    """Return document numbers for a micro-batch in any form; positions of a row with equal numbers see each other.

    Flattened: from ``cu_seq_lens_q``. Rows: ``document_ids``. Padded: ``attention_mask``, which makes the real tokens
    of a row one document, and its padding another that no real token sees.

    Returns:
        integer [B, T], of the shape of ``input_ids``

    Raises:
        ValueError: a micro-batch that does not say where documents begin.
    """
    if "cu_seq_lens_q" in micro_batch:
        return document_ids(micro_batch["cu_seq_lens_q"]).unsqueeze(0)
    for name in ("document_ids", "attention_mask"):
        if name in micro_batch:
            documents: Tensor = micro_batch[name]
            return documents
    raise ValueError("a micro-batch without cu_seq_lens_q, document_ids and attention_mask: no document boundaries")


def block_diagonal_mask(documents: Tensor) -> Tensor:
    """Return True where a query may see a key: in the same document, and not later.

    This is the ``attn_mask`` of `torch.nn.functional.scaled_dot_product_attention` (``[:, None]`` adds the dimension of
    heads to that of a batch). Quadratic in T, and layers with a sliding window lose it: for tests, small models and
    models without variable-length attention.

    Args:
        documents: number of the document each position belongs to, integer [..., T].

    Returns:
        bool [..., T, T], query by key

    Example:
        >>> block_diagonal_mask(torch.tensor([0, 0, 1])).int().tolist()
        [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    """
    length = documents.shape[-1]
    causal = torch.ones(length, length, dtype=torch.bool, device=documents.device).tril()
    return (documents.unsqueeze(-1) == documents.unsqueeze(-2)) & causal
