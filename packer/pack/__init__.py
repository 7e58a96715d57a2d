"""Stage: which piece of which document lies where, and the blocks themselves."""

from packer.pack.arrange import EndsOpen, arrange
from packer.pack.cut import REASONS, CountTrained, DropCount, DroppedTokens, Pieces, cut, trained_counter
from packer.pack.gather import DocumentColumns, gather
from packer.pack.mixing import Mixing, mixing, mixing_of_pieces
from packer.pack.plan import plan, plan_pieces
from packer.pack.stream import stream

__all__ = [
    "REASONS",
    "CountTrained",
    "DocumentColumns",
    "DropCount",
    "DroppedTokens",
    "EndsOpen",
    "Mixing",
    "Pieces",
    "arrange",
    "cut",
    "gather",
    "mixing",
    "mixing_of_pieces",
    "plan",
    "plan_pieces",
    "stream",
    "trained_counter",
]
