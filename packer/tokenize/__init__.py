"""Stage: texts become ids, and turn boundaries become token positions (TurnBatch → TokenBatch).

`reference_encoder` defines the ids, and `fast` is an encoder that is checked against it; `boundaries` finds where
prompts and completions end in them, `vectorized` does so for a whole batch; `guard` encodes control tokens typed by
people as ordinary text.
"""

from packer.tokenize.fast import (
    Check,
    EngineDiffersError,
    FastEncoder,
    ReferenceFailsError,
    Sampled,
    compare,
    differences,
)
from packer.tokenize.reference_encoder import Encoder, ReferenceEncoder, prefix_and_suffix_ids
from packer.tokenize.tokenizing import TurnTokenizer

__all__ = [
    "Check",
    "Encoder",
    "EngineDiffersError",
    "FastEncoder",
    "ReferenceEncoder",
    "ReferenceFailsError",
    "Sampled",
    "TurnTokenizer",
    "compare",
    "differences",
    "prefix_and_suffix_ids",
]
