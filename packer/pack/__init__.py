"""Stage: which piece of which document lies where, and the blocks themselves."""

from packer.pack.cut import CountTrained, LeftOut, Loss, Pieces, cut, trained_counter
from packer.pack.gather import DocumentColumns, gather
from packer.pack.mixing import Mixing, mixing
from packer.pack.plan import plan, plan_pieces

__all__ = [
    "CountTrained",
    "DocumentColumns",
    "LeftOut",
    "Loss",
    "Mixing",
    "Pieces",
    "cut",
    "gather",
    "mixing",
    "plan",
    "plan_pieces",
    "trained_counter",
]
