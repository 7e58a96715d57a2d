"""Stage: plans which pieces of which documents go into which blocks, and lays the blocks out."""

from packer.pack.arrange import arrange, stream
from packer.pack.gather import gather
from packer.pack.overlong import (
    REASONS,
    CountTrained,
    DropCount,
    DroppedTokens,
    Pieces,
    Selection,
    cut,
    select,
    trained_counter,
)
from packer.pack.pack_plan import plan

__all__ = [
    "REASONS",
    "CountTrained",
    "DropCount",
    "DroppedTokens",
    "Pieces",
    "Selection",
    "arrange",
    "cut",
    "gather",
    "plan",
    "select",
    "stream",
    "trained_counter",
]
