"""How rows are laid out in micro-batches, and what sizes count.

- ``packed``: the cache's blocks, as they were packed. Sizes count blocks.
- ``padded``: documents as rows of one length. Sizes count documents.
- ``padding_free``: documents one after another in one row, kept apart by ``cu_seq_lens``. Sizes count documents.
- ``token_budget``: as many documents in one row as fit into `micro_batch_size` tokens. A step takes documents until
  `global_batch_size` tokens are full, so the number of micro-batches varies. Sizes count tokens.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from packer.recipe.groups import BatchingName, Side, Tokens

End = Literal["drop", "pad", "short"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Padded:
    """How documents are padded, given as `batching`. Sizes count documents."""

    length: Tokens | None = None
    """Tokens to which every micro-batch is padded; None pads to its longest document."""

    multiple_of: Tokens = 1
    """The longest length is rounded up to a multiple of this: 8 or 128 suit matrix units."""

    side: Side = "right"

    def rounded(self, longest: int) -> int:
        """Return the padded row length of a micro-batch whose longest document has `longest` tokens."""
        return self.length or -(-longest // self.multiple_of) * self.multiple_of


Batching: TypeAlias = BatchingName | Padded
