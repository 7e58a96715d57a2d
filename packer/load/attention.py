"""Document boundaries in the forms that attention implementations need, as tensor functions on the inputs' device.

Packed blocks need three things to behave like documents run one by one: no attention across a boundary, positions that
restart, no target across a boundary. Positions and labels are in the micro-batch; this module covers the first, for
causal attention. The cumulative lengths of a flattened micro-batch are already the form for variable-length kernels
(flash-attn's ``flash_attn_varlen_func``, ``torch.nn.attention.varlen``); every other form is derived from them.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from packer.load.step import MicroBatch

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


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

    This is the ``attn_mask`` of `torch.nn.functional.scaled_dot_product_attention` (add a head dimension for a
    batch). Quadratic in T: for tests, small models and models without variable-length attention.

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


def mask_4d(documents: Tensor, dtype: torch.dtype = torch.bool) -> Tensor:
    """Return the same rule as a 4-D ``attention_mask``, which transformers passes on to attention unchanged.

    SDPA accepts ``torch.bool`` or the model's own dtype. Eager attention adds the mask to its scores, so it needs the
    model's dtype: a bool mask would add 0 and 1, and hide nothing. Flash attention accepts no 4-D mask.
    Quadratic in T, and the same in every layer: layers with a sliding window lose it.

    Args:
        documents: number of the document each position belongs to, integer [B, T].
        dtype: ``torch.bool`` for True where a query may see a key; a floating dtype for 0 there and its lowest
            number elsewhere, as transformers does.

    Returns:
        dtype [B, 1, T, T], query by key

    Raises:
        ValueError: another dtype or another shape.
    """
    if documents.ndim != 2:
        raise ValueError(f"documents are {list(documents.shape)}; expected [B, T]")
    seen = block_diagonal_mask(documents).unsqueeze(1)
    if dtype == torch.bool:
        return seen
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"a mask of {dtype}; expected torch.bool or a floating type")
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)


def document_mask_mod(documents: Tensor) -> MaskMod:
    """Return the same rule as a ``mask_mod`` for `torch.nn.attention.flex_attention.create_block_mask`.

    Pass B and T of `documents` as its ``B``, ``Q_LEN`` and ``KV_LEN``, and ``H=None``, as all heads use the same mask.

    Args:
        documents: number of the document each position belongs to, integer [B, T].
    """

    def mask_mod(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001 - flex's signature
        return (documents[batch, query] == documents[batch, key]) & (query >= key)

    return mask_mod
