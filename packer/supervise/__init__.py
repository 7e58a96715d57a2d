"""Stage: sequences become documents with their trained runs, each verified (TurnBatch + TokenBatch → DocumentBatch).

Rows that bring their own tokens become documents here without the earlier stages. The sides of pairs arrive as
separate rows and are joined here.
"""

from packer.supervise.preference import by_side, join_sides, row_of_side
from packer.supervise.pretokenized import PretokenizedSupervisor
from packer.supervise.round_trip import RoundTrip
from packer.supervise.supervisor import Supervised, Supervisor

__all__ = ["PretokenizedSupervisor", "RoundTrip", "Supervised", "Supervisor", "by_side", "join_sides", "row_of_side"]
