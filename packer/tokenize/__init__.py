"""Stage: texts become ids, and turn borders become token positions (TurnBatch → TokenBatch).

`reference` is the encoder that defines the ids; `borders` finds where prompts and completions end in them; `guard`
encodes control tokens typed by people as ordinary text.
"""

from packer.tokenize.batch import Tokenizing
from packer.tokenize.reference import Encoder, ReferenceEncoder

__all__ = ["Encoder", "ReferenceEncoder", "Tokenizing"]
