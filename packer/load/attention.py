"""Document borders in the forms attention wants them.

Packed blocks need three things to behave like documents run one by one: no attention across a border, positions that
restart, no target across a border. Positions and labels are in the micro-batch; what is here is the first.
"""

from collections.abc import Callable

import torch
from torch import Tensor

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


def document_mask_mod(documents: Tensor) -> MaskMod:
    """The same rule as a ``mask_mod`` for `torch.nn.attention.flex_attention.create_block_mask`.

    Args:
        documents: number of the document each position belongs to, integer [B, T].

    """

    def mask_mod(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001 - flex's signature
        return (documents[batch, query] == documents[batch, key]) & (query >= key)

    return mask_mod
