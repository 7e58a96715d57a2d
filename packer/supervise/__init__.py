"""Stage: sequences become documents with their trained runs, each verified (TurnBatch + TokenBatch → DocumentBatch).

Rows that bring their own tokens become documents here without the earlier stages. The sides of pairs arrive as
separate rows and are joined here.
"""

from packer.supervise.preference import join_sides, row_of_side, split_sides
from packer.supervise.pretokenized import PretokenizedSupervisor
from packer.supervise.round_trip import RoundTrip
from packer.supervise.supervisor import Supervised, Supervisor

__all__ = [
    "PretokenizedSupervisor",
    "RoundTrip",
    "Supervised",
    "Supervisor",
    "join_sides",
    "row_of_side",
    "split_sides",
]
