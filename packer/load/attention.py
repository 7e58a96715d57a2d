"""Document boundaries in the forms attention wants them, as functions of tensors, on the device of what they are given.

Packed blocks need three things to behave like documents run one by one: no attention across a boundary, positions that
restart, no target across a boundary. Positions and labels are in the micro-batch; what is here is the first, for causal
attention. The cumulative lengths of a flattened micro-batch are themselves the form of variable-length kernels
(flash-attn's ``flash_attn_varlen_func``, ``torch.nn.attention.varlen``); every other form is made from them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from packer.load.step import MicroBatch

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def document_ids(cu_seq_lens: Tensor) -> Tensor:
    """Number of the sequence each position belongs to: [0, 3, 5] gives [0, 0, 0, 1, 1].

    Args:
        cu_seq_lens: cumulative lengths, integer [S + 1], from 0 to T.

    Returns:
        int32 [T]

    """
    numbers = torch.arange(len(cu_seq_lens) - 1, dtype=torch.int32, device=cu_seq_lens.device)
    return numbers.repeat_interleave(cu_seq_lens.diff())


def documents_of(micro_batch: MicroBatch) -> Tensor:
    """Numbers of the documents of a micro-batch in any form; positions of one row with one number see each other.

    Flattened: from ``cu_seq_lens_q``. Rows: ``document_ids``. Padded: ``attention_mask``, so that what is real is one
    document of its row, and padding another that nothing real sees.

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
    """True where a query may see a key: the same document, and not later.

    The form `torch.nn.functional.scaled_dot_product_attention` takes as ``attn_mask`` (add a head dimension for a
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
    """The same rule as the 4-D ``attention_mask`` that transformers hands to attention as it is.

    SDPA takes ``torch.bool`` or the model's own dtype. Eager attention adds the mask to its scores, so it needs the
    model's dtype: a bool mask adds 0 and 1 there, and everything sees everything. Flash attention takes no 4-D mask.
    Quadratic in T, and the same in every layer: layers with a sliding window lose it.

    Args:
        documents: number of the document each position belongs to, integer [B, T].
        dtype: ``torch.bool`` for True where a query may see a key; a floating one for 0 there and the type's lowest
            number elsewhere, as transformers writes it.

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
    if not dtype.is_floating_point:
        raise ValueError(f"a mask of {dtype}; expected torch.bool or a floating type")
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)


def document_mask_mod(documents: Tensor) -> MaskMod:
    """The same rule as a ``mask_mod`` for `torch.nn.attention.flex_attention.create_block_mask`.

    With B and T of `documents` as its ``B``, ``Q_LEN`` and ``KV_LEN``; ``H=None``, as all heads see alike.

    Args:
        documents: number of the document each position belongs to, integer [B, T].

    """

    def mask_mod(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001 - flex's signature
        return (documents[batch, query] == documents[batch, key]) & (query >= key)

    return mask_mod
