"""Stage: texts become ids, and turn boundaries become token positions (TurnBatch → TokenBatch).

`reference` is the encoder that defines the ids, `fast` one that is checked against it; `boundaries` finds where prompts
and completions end in them; `guard` encodes control tokens typed by people as ordinary text.
"""

from packer.tokenize.fast import EngineDiffersError, FastEncoder, differences, fast_version
from packer.tokenize.reference_encoder import Encoder, ReferenceEncoder
from packer.tokenize.tokenizing import Tokenizing

__all__ = [
    "Encoder",
    "EngineDiffersError",
    "FastEncoder",
    "ReferenceEncoder",
    "Tokenizing",
    "differences",
    "fast_version",
]
